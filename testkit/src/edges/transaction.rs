//! The arguments of transactions.

use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_recipes::transaction::{Attempt, Transaction};

use crate::recipe::edge::{Takes, accepted, check, first, ignore_panic, later};

pub(crate) const TRANSACTION: Takes = Takes {
    data: &[
        first("put", |client, path, data| {
            Box::pin(async move {
                let put = |run: Attempt, at: Path| {
                    let data = data.clone();
                    async move { run.put(&at, data) }
                };
                runs(&client, &path, put).await?;
                let get = |run: Attempt, at: Path| async move { run.get(&at).await };
                let there = accepted(runs(&client, &path, get)).await?;
                check(there == Some(data), "reading what was put", &path)
            })
        }),
        later("create", |client, path, data| {
            Box::pin(async move {
                let create = |run: Attempt, at: Path| {
                    let data = data.clone();
                    async move { run.create(&at, data).await }
                };
                runs(&client, &path, create).await.map(drop)
            })
        }),
    ],
    values: &[first("put_value", |client, path, number| {
        Box::pin(async move {
            let put = |run: Attempt, at: Path| async move { run.put_value(&at, &number) };
            runs(&client, &path, put).await?;
            let get = |run: Attempt, at: Path| async move { run.get_value::<f64>(&at).await };
            match accepted(runs(&client, &path, get)).await {
                // The data is stored like any other, but may be unreadable for its reader.
                Err(error) if error.kind() != ErrorKind::Corrupt => Err(error),
                _ => Ok(()),
            }
        })
    })],
    functions: &[first("run", |client, path, trap| {
        Box::pin(async move {
            let put = |run: Attempt, at: Path| {
                let trap = trap.clone();
                async move {
                    run.put(&at, "")?;
                    trap.spring();
                    Ok(())
                }
            };
            ignore_panic(runs(&client, &path, put)).await;
            runs(&client, &path, put).await
        })
    })],
    ..Takes::NONE
};

/// Runs a transaction on its own node.
async fn runs<T, F>(
    client: &Client,
    path: &Path,
    function: impl Fn(Attempt, Path) -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let node = path.join("node")?;
    let transactions = Transaction::new(client, path.join("marks")?);
    transactions.run::<T, Error, _>(|run| function(run, node.clone())).await
}
