//! [`remove_old_write_ids`]: removes the persistent write ids of processes that were killed.

use std::time::Duration;

use synod_core::client::Client;
use synod_core::clock::sleep;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{Expect, Node, Query, Txn};

use crate::support::exactly_once::write_id::{WriteIds, WriteIdsInUse, date_of};
use crate::support::retry::OutageBackoff;
use crate::support::time::date;

/// The age after which the process of a write id is assumed to be killed. If it is alive but has
/// not written for this long, it creates a new write id, at the cost of one request.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The pause between two searches.
const PAUSE: Duration = Duration::from_secs(6 * 60 * 60);

/// The directory of write ids, for a task that does not keep their users alive.
pub(crate) struct OldWriteIds {
    client: Client,
    dir: Path,
    name: &'static str,
}

impl OldWriteIds {
    pub(crate) fn of(client: &Client, ids: &WriteIds) -> Self {
        Self { client: client.clone(), dir: ids.dir().clone(), name: ids.name() }
    }
}

/// Removes old write ids now and periodically, until the client is closed.
pub(crate) async fn remove_old_write_ids(ids: OldWriteIds) {
    loop {
        let mut backoff = OutageBackoff::new(&ids.client);
        while let Err(error) = ids.remove(MAX_AGE).await {
            if let Err(error) = backoff.wait(error).await {
                tracing::debug!(path = %ids.dir, %error, "could not remove old write ids");
                break;
            }
        }
        if ids.client.is_closed() {
            return;
        }
        sleep(PAUSE).await;
    }
}

impl OldWriteIds {
    /// Removes the write ids that are older than `age`.
    async fn remove(&self, age: Duration) -> Result<()> {
        let query = Query::children(&self.dir).starting_with(self.name);
        let view = self.client.read(query).await?;
        let in_use = self.client.local::<WriteIdsInUse>();
        let old = |node: &&Node| is_older(node, age) && !in_use.has(&node.path);
        for node in view.nodes.iter().filter(old) {
            let Some(stat) = node.stat else { continue };
            // The process of the write id may be writing it at this moment.
            let txn = Txn::new().delete(&node.path, Expect::Version(stat.version));
            let _gone_or_written = self.client.commit(txn).await?;
        }
        Ok(())
    }
}

/// Returns `true` if a write id was last written longer ago than `age`.
///
/// An ephemeral write id ends with its session, and a node without a date is not a write id.
fn is_older(node: &Node, age: Duration) -> bool {
    let is_persistent = node.stat.is_some_and(|stat| stat.owner.is_none());
    let written = date_of(&node.data).filter(|_| is_persistent);
    written.is_some_and(|written| date().saturating_sub(written) > age)
}
