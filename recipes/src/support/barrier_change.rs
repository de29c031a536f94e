//! [`BarrierChange`]: the effect of a call that sets or lifts a barrier, or counts a party.

use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{Node, Stat};

use crate::support::retry::repeat_in_doubt;

/// The effect of a call that sets or lifts a [`Barrier`](crate::barrier::Barrier), or counts a
/// party of a [`CountDown`](crate::barrier::CountDown).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BarrierChange {
    /// This call has made the change.
    Changed,
    /// The state was already the requested one. This call has changed nothing.
    Unchanged,
    /// The state is the requested one, and the answer to a request of this call was lost: this call
    /// or another one has made the change.
    Unknown,
}

impl BarrierChange {
    /// The effect of a request that found the requested state. It does not show the effect of an
    /// earlier request whose answer was lost.
    pub(crate) fn unchanged_unless(in_doubt: bool) -> Self {
        if in_doubt { Self::Unknown } else { Self::Unchanged }
    }
}

/// Creates the persistent node at `path`, if it does not exist.
///
/// The node belongs to no client, so it is written by a put, and stays if the call is dropped. The
/// data of the node is the id of the call that wrote it last. If this is still the first write of
/// the node, its writer has created it.
pub(crate) async fn create_once(client: &Client, path: &Path) -> Result<BarrierChange> {
    let id = client.random().id();
    let attempt = async |in_doubt| {
        if in_doubt && let Some(change) = change_by(&id, client.get(path).await?) {
            return Ok(change);
        }
        let done = client.put(path, id.clone()).await?;
        // Some ZooKeeper servers report no stat of a created node.
        let Some(stat) = done.stat else {
            let node = client.get(path).await?;
            return Ok(change_by(&id, node).unwrap_or(BarrierChange::Unknown));
        };
        Ok(if is_first_write(stat) {
            BarrierChange::Changed
        } else {
            BarrierChange::unchanged_unless(in_doubt)
        })
    };
    repeat_in_doubt(client, attempt).await
}

/// Returns the effect of the call with this id, if its write is the last one of the node.
fn change_by(id: &str, node: Option<Node>) -> Option<BarrierChange> {
    let stat = node.filter(|node| *node.data == *id.as_bytes())?.stat?;
    Some(if is_first_write(stat) { BarrierChange::Changed } else { BarrierChange::Unchanged })
}

fn is_first_write(stat: Stat) -> bool {
    stat.created == stat.modified
}
