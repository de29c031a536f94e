//! Transactions of a function over several nodes.

use synod::Client;
use synod::Error;
use synod::Path;
use synod::transaction::Transaction;

use super::Ours;
use super::value::expect_sum;
use crate::racer::{Failure, drive};
use crate::report::Report;
use crate::task::{NODES, Task};

/// All add 1 to each of the same nodes, each with a session of its own.
pub(super) async fn add(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let (nodes, marks) = (nodes(&ours.dir)?, ours.dir.join("transactions")?);
    let (nodes, clients) = (&nodes, ours.sessions(task.clients).await?);
    let before = sum(&clients[0], nodes).await?;
    let lanes = clients.iter().map(|client| {
        let transaction = Transaction::new(client, marks.clone()).prefetch(nodes.clone());
        async move || {
            let add_to_each = async |run: synod::transaction::Attempt| {
                for node in nodes {
                    let number = run.get_value::<i64>(node).await?.unwrap_or_default();
                    run.put_value(node, &(number + 1))?;
                }
                Ok::<_, Error>(())
            };
            Ok(transaction.run(add_to_each).await?)
        }
    });
    let report = drive(task, lanes.collect()).await?;
    expect_sum(sum(&clients[0], nodes).await? - before, &report)?;
    Ok(report)
}

fn nodes(dir: &Path) -> Result<Vec<Path>, Failure> {
    let dir = dir.join("transacted")?;
    (0..NODES).map(|node| Ok(dir.join(&node.to_string())?)).collect()
}

/// Returns the amount that was added to each of the nodes. Fails if the amounts differ.
async fn sum(client: &Client, nodes: &[Path]) -> Result<i64, Failure> {
    let mut sums = Vec::new();
    for node in nodes {
        let found = client.get_value::<i64>(node).await?;
        sums.push(found.map_or(0, |found| found.value));
    }
    if sums.iter().any(|sum| *sum != sums[0]) {
        return Err(format!("a transaction was applied in part: {sums:?}").into());
    }
    Ok(sums[0])
}
