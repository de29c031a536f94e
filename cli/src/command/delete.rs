//! `delete --recursive`: a node and everything below it.

use serde_json::json;
use synod::Client;
use synod::Path;
use synod::Result as StoreResult;
use synod::{Expect, Outcome, Query, RejectReason, Txn};

use crate::args::Common;
use crate::command::connect;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

/// Nodes per transaction: every store accepts this many operations in one.
const BATCH: usize = 40;

/// Limit of the reads of the tree when other clients change it meanwhile.
const ROUNDS: usize = 100;

pub(crate) async fn tree(common: &Common, path: &Path) -> Result<(), Failure> {
    let client = connect(common).await?;
    let deleted = remove(&client, path).await;
    client.close().await?;
    let deleted = deleted?;
    if deleted == 0 {
        return Err(Failure::NotThere(format!("there is nothing at {path}")));
    }
    if common.json {
        output::object(&json!({ "deleted": path.as_str(), "nodes": deleted }))?;
    }
    Ok(())
}

/// Removes a node and everything below it, and returns the number of removed nodes.
pub(crate) async fn remove(client: &Client, path: &Path) -> Result<u64, Failure> {
    let mut deleted = 0;
    for _ in 0..ROUNDS {
        let mut nodes = below(client, path).await?;
        if nodes.is_empty() {
            return Ok(deleted);
        }
        // Children first: the path of a child is longer than that of its parent.
        nodes.sort_by_key(|path| std::cmp::Reverse(path.as_str().len()));
        let progress = Progress::new("deleting", Some(nodes.len() as u64));
        for batch in nodes.chunks(BATCH) {
            deleted += remove_batch(client, batch).await?;
            progress.advance(batch.len() as u64);
        }
    }
    Err(Failure::plain(format!("others keep making nodes below {path}; stop them first")))
}

async fn below(client: &Client, path: &Path) -> StoreResult<Vec<Path>> {
    let view = Progress::waiting("reading", client.read(Query::subtree(path))).await?;
    let nodes = view.nodes.into_iter().filter(|node| node.stat.is_some());
    Ok(nodes.map(|node| node.path).collect())
}

/// Removes the nodes in one transaction, or one by one if something changed meanwhile. A node that
/// is gone already is no error; a node that got children is left to the next round.
async fn remove_batch(client: &Client, batch: &[Path]) -> Result<u64, Failure> {
    let all = batch.iter().fold(Txn::new(), |txn, path| txn.delete(path, Expect::Any));
    if let Outcome::Committed(_) = client.commit(all).await? {
        return Ok(batch.len() as u64);
    }
    let mut deleted = 0;
    for path in batch {
        let outcome = client.delete(path, Expect::Any).await?;
        match &outcome {
            Outcome::Committed(()) => deleted += 1,
            Outcome::Rejected(no)
                if matches!(no.reason, RejectReason::Missing | RejectReason::HasChildren) => {}
            Outcome::Rejected(_) => drop(outcome.required()?),
        }
    }
    Ok(deleted)
}
