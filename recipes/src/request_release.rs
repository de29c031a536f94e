//! [`request_release`]: requests that a holder releases. The holder is notified, and decides.

use synod_core::client::Client;
use synod_core::error::{ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Expect, Node, Outcome, Query, RejectReason};

use crate::line::hold::Hold;
use crate::mutant::mistake;

/// The data that requests the release of a ticket, as Curator writes it.
const REVOKE: &[u8] = b"__REVOKE__";

/// Requests that the owner of the ticket at `path` releases it; [`inspect`](crate::lock::inspect())
/// shows the paths of the tickets. An owner that waits for
/// [`release_requested`](crate::lock::MutexGuard::release_requested) is notified, and decides
/// whether to release.
///
/// Returns `false` if the ticket is gone.
///
/// A holder that listens is notified as soon as the store responds to it, and keeps the lock until
/// it releases or loses it. *Not guaranteed*: that the holder listens, that it releases, or that it
/// learns which client made the request.
///
/// The request replaces the label of the ticket. To take the lock from a holder that does not
/// listen, delete the ticket: the holder is then notified of the loss, and its guarded transactions
/// fail.
///
/// On ZooKeeper, Curator's revocable locks use the same data.
///
/// # Errors
///
/// The errors common to all calls of a [`Client`].
///
/// # Cancel safety
///
/// A dropped call may or may not have made the request.
///
/// # Examples
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path::Path;
/// use synod_recipes::lock::{request_release, inspect};
///
/// # async fn example(client: Client) -> Result<()> {
/// let contenders = inspect(&client, Path::new("/locks/db")?).await?;
/// if let Some(holder) = contenders.first() {
///     request_release(&client, &holder.path).await?;
/// }
/// # Ok(())
/// # }
/// ```
pub async fn request_release(client: &Client, path: impl Into<Path>) -> Result<bool> {
    match client.set(&path.into(), REVOKE, Expect::Any).await? {
        Outcome::Committed(_) => Ok(true),
        Outcome::Rejected(no) if no.reason == RejectReason::Missing => Ok(false),
        outcome @ Outcome::Rejected(_) => outcome.required().map(|_| true),
    }
}

impl<K> Hold<K> {
    /// Waits until another client [requests](request_release) its release.
    pub(crate) async fn release_requested(&self) -> Result<()> {
        let mut delays = self.node.delays();
        loop {
            let query = Query::node(self.path().clone());
            let (view, mut watch) = match self.node.session().watch(query).await {
                // The session may still be alive.
                Err(error) if error.kind() == ErrorKind::Unreachable => {
                    delays.wait().await;
                    continue;
                }
                observed => observed?,
            };
            let own = |node: &&Node| node.stat.is_none_or(|stat| self.node.record(stat));
            let Some(node) = view.node().filter(own) else {
                self.lost().await;
                return Err(self.node.was_lost());
            };
            let written = node.stat.is_some_and(|stat| stat.modified != stat.created);
            mistake!(QuestionUnheard: let written = false);
            if written && node.data == REVOKE {
                return Ok(());
            }
            let _event = watch.next().await;
        }
    }
}
