//! [`ask_back`]: asks a holder to release. The holder is notified, and decides.

use synod_core::client::Client;
use synod_core::clock::sleep;
use synod_core::error::{ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Expect, Node, Outcome, Query, RejectReason};

use crate::line::hold::Hold;
use crate::mutant::mistake;

/// What is written to a ticket to ask its owner to release it, as Curator writes it.
const ASKED: &[u8] = b"__REVOKE__";

/// Asks the owner of the ticket at `path` to release what it holds; [`inspect`](crate::inspect()) shows the
/// paths of the tickets. An owner that waits for [`Hold::asked_back`] is notified, and decides.
///
/// Returns `false` if the ticket is gone.
///
/// A holder that listens is notified as soon as the store answers it, and keeps what it holds until it releases or
/// loses it. *Not promised*: that the holder listens, that it releases, or that it learns which client asks.
///
/// The request replaces the label of the ticket. To take a lock away from a holder that does not listen, delete
/// the ticket: the holder is then notified of the loss, and its guarded transactions fail.
///
/// On ZooKeeper, Curator's revocable locks ask and listen in the same way.
///
/// # Errors
///
/// As every verb of a [`Client`].
///
/// # Cancel safety
///
/// A dropped call has made the request or has not.
///
/// # Examples
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path::Path;
/// use synod_recipes::{ask_back, inspect};
///
/// # async fn example(client: Client) -> Result<()> {
/// let line = inspect(&client, Path::new("/locks/db")?).await?;
/// if let Some(holder) = line.first() {
///     ask_back(&client, &holder.path).await?;
/// }
/// # Ok(())
/// # }
/// ```
pub async fn ask_back(client: &Client, path: impl Into<Path>) -> Result<bool> {
    match client.set(&path.into(), ASKED, Expect::Any).await? {
        Outcome::Committed(_) => Ok(true),
        Outcome::Rejected(no) if no.reason == RejectReason::Missing => Ok(false),
        outcome @ Outcome::Rejected(_) => outcome.required().map(|_| true),
    }
}

impl<K> Hold<K> {
    /// Waits until another client [asks](ask_back) for it back. It remains held: the holder decides whether to release
    /// it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`] if it is lost before a request, and any error that the store returns.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches.
    pub async fn asked_back(&self) -> Result<()> {
        let mut delays = self.node.delays();
        loop {
            let query = Query::node(self.path().clone());
            let (view, mut watch) = match self.node.session().watch(query).await {
                // The session may still be alive.
                Err(error) if error.kind() == ErrorKind::Unreachable => {
                    sleep(delays.next().unwrap_or_default()).await;
                    continue;
                }
                observed => observed?,
            };
            let own = |node: &&Node| node.stat.is_none_or(|stat| self.node.learn(stat));
            let Some(node) = view.node().filter(own) else {
                self.lost().await;
                return Err(self.node.was_lost());
            };
            let written = node.stat.is_some_and(|stat| stat.modified != stat.created);
            mistake!(QuestionUnheard: let written = false);
            if written && node.data == ASKED {
                return Ok(());
            }
            let _look_again = watch.next().await;
        }
    }
}
