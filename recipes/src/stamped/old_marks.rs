//! [`remove_old_marks`]: removes the lasting marks of processes that were killed.

use std::time::Duration;

use synod_core::client::Client;
use synod_core::clock::sleep;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::store::{Expect, Node, Query, Txn};

use crate::stamped::date::date;
use crate::stamped::mark::{Marks, date_of};

/// The age of a mark that is taken for that of a process which is gone. A process that lives and has not written
/// for so long makes another one: that costs it a request.
const OLD: Duration = Duration::from_secs(24 * 60 * 60);

/// The pause between two looks.
const PAUSE: Duration = Duration::from_secs(6 * 60 * 60);

/// The places of marks, for a task that outlives none of their users.
pub(crate) struct OldMarks {
    client: Client,
    dir: Path,
    name: &'static str,
}

impl OldMarks {
    pub(crate) fn of(client: &Client, marks: &Marks) -> Self {
        Self { client: client.clone(), dir: marks.dir().clone(), name: marks.name() }
    }
}

/// Removes old marks now and from time to time, until the client is closed.
pub(crate) async fn remove_old_marks(marks: OldMarks) {
    loop {
        let mut delays = Retry::forever().delays(marks.client.random());
        while let Err(error) = marks.remove(OLD).await {
            let delay = delays.next().filter(|_| marks.client.is_transient(&error));
            let Some(delay) = delay else {
                tracing::debug!(path = %marks.dir, %error, "the marks of processes that are gone stay");
                break;
            };
            sleep(delay).await;
        }
        if marks.client.is_closed() {
            return;
        }
        sleep(PAUSE).await;
    }
}

impl OldMarks {
    /// Removes the marks that were written so long ago.
    async fn remove(&self, age: Duration) -> Result<()> {
        let query = Query::children(&self.dir).starting_with(self.name);
        let view = self.client.read(query).await?;
        for node in view.nodes.iter().filter(|node| is_older(node, age)) {
            let Some(stat) = node.stat else { continue };
            // Its process may write it at this moment.
            let txn = Txn::new().delete(&node.path, Expect::Version(stat.version));
            let _gone_or_written = self.client.commit(txn).await?;
        }
        Ok(())
    }
}

/// Returns true if a mark was written so long ago. Ephemeral marks go by themselves, and a node without a date is no mark.
fn is_older(node: &Node, age: Duration) -> bool {
    let is_lasting = node.stat.is_some_and(|stat| stat.owner.is_none());
    let written = date_of(&node.data).filter(|_| is_lasting);
    written.is_some_and(|written| date().saturating_sub(written) > age)
}
