//! [`Keeping`]: what the task of a keeper does, turn by turn, until it is asked to end.

use synod_core::client::Client;
use synod_core::clock::sleep;
use synod_core::error::{ErrorKind, Result};
use synod_core::retry::Retry;
use tokio::sync::oneshot;

use crate::keeper::asked::Asked;
use crate::keeper::page::KeeperPage;

/// What keeps a node, as the one task that writes it.
pub(crate) trait Keeping: Send {
    /// Makes the node if it is not there, and otherwise looks after it, up to the next event.
    fn turn(&mut self, asked: &mut Asked) -> impl Future<Output = Result<()>> + Send;

    /// Whether it knows of its node.
    fn has_node(&self) -> bool;

    /// The node was there for the first time. From now on none of another client is removed.
    fn was_made(&mut self);

    /// Removes the node.
    fn leave(self) -> impl Future<Output = Result<()>> + Send;
}

/// Keeps the node until it is asked to end, and then removes it. Reports whether the node could be made at first.
pub(super) async fn run(
    mut keeping: impl Keeping,
    (client, page): (&Client, &KeeperPage),
    mut asked: Asked,
    made: oneshot::Sender<Result<()>>,
) -> Result<()> {
    let (mut made, mut delays) = (Some(made), None);
    while !asked.look() && !client.is_closed() {
        let Err(error) = keeping.turn(&mut asked).await else {
            delays = None;
            if keeping.has_node()
                && let Some(made) = made.take()
            {
                let _heard = made.send(Ok(())).is_ok();
                keeping.was_made();
            }
            continue;
        };
        tracing::debug!(%error, "a node could not be kept");
        if !error.kind().is_outage() {
            if let Some(made) = made.take() {
                let _heard = made.send(Err(error)).is_ok();
                break;
            }
            if !keeping.has_node() {
                page.is_denied(&error);
            }
        }
        if error.kind() == ErrorKind::SessionLost {
            // So it is for all others at this moment.
            asked.pause(client).await;
        }
        let delays = delays.get_or_insert_with(|| Retry::forever().delays(client.random()));
        asked.or(sleep(delays.next().unwrap_or_default())).await;
    }
    page.end();
    keeping.leave().await
}
