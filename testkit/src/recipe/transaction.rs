//! The row of transactions.

use synod_core::client::Client;
use synod_core::error::{Error, Result};
use synod_core::path::Path;
use synod_recipes::transaction::Transaction;

use crate::edges;
use crate::recipe::row::{Kind, Leaves, Part, Row, made};
use crate::recipe::usage::{Act, Use};

pub(super) const KIND: Kind = Kind {
    rows: &[TRANSACTION],
    laws: &[
        ("L-STM-1", "the effects of committed transactions are those of some serial order"),
        (
            "L-STM-2",
            "at the levels that promise it, no run continues with an inconsistent snapshot",
        ),
        ("L-STM-3", "a transaction is committed once, or fails with an unknown effect"),
        ("L-STM-4", "each level of isolation makes exactly the checks that it promises"),
        ("L-STM-5", "a transaction that only reads writes nothing"),
        (
            "L-STM-6",
            "a transaction that can never be accepted is an error, and a failed transaction writes nothing",
        ),
        ("L-STM-7", "transactions leave only their own writes in the store"),
    ],
    kept: &[],
};

const TRANSACTION: Row = Row {
    name: "Transaction",
    module: "transaction",
    cases: "transaction",
    stair: Some("support::exactly_once"),
    make: |client, path| made(Transaction::new(&client, path)),
    shown: "Transaction { marks: /shown, isolation: SerializableSnapshot, .. }",
    leaves: Leaves::Nodes,
    dirs: &["marks"],
    takes: edges::transaction::TRANSACTION,
    uses: &[Use {
        name: "transaction",
        act: Act::Change {
            change: |client, path| Box::pin(async move { add_twice(&client, &path).await }),
            measured: false,
        },
        outlasts: false,
    }],
    workloads: Part::Has(&["transaction"]),
    faults: Part::None("its processes hold nothing; the simulator has the same faults"),
    interop: Part::Has(&[
        "a_transaction_is_shared",
        "a_transfer_of_either_keeps_the_sum",
        "a_value_of_either_is_read_by_the_other",
    ]),
    bench: Part::Has(&["Transaction"]),
    family: None,
};

async fn add_twice(client: &Client, path: &Path) -> Result<()> {
    let transactions = Transaction::new(client, path.join("marks")?);
    let sum = &path.join("sum")?;
    for _ in 0..2 {
        let add = |run: synod_recipes::transaction::Attempt| async move {
            let before = run.get_value::<i64>(sum).await?.unwrap_or_default();
            run.put_value(sum, &(before + 1))?;
            Ok::<_, Error>(())
        };
        transactions.run(add).await?;
    }
    Ok(())
}
