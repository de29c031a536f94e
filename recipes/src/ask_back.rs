//! Asking for something back: the holder learns of it, and decides.

use synod_core::client::Client;
use synod_core::clock::sleep;
use synod_core::error::{ErrorKind, Result};
use synod_core::mutant::{self, Mutant};
use synod_core::path::Path;
use synod_core::store::{Expect, Node, Outcome, Query, Why};

use crate::line::hold::Hold;

/// What is written to a ticket to ask for what it stands for, as Curator writes it.
const ASKED: &[u8] = b"__REVOKE__";

/// Asks whoever has the ticket at `path` to give back what it stands for; [`inspect`](crate::inspect())
/// tells where tickets are. He learns of it if he listens, by [`Hold::asked_back`], and decides.
///
/// `false` if nobody has it any more.
///
/// Who holds and listens is told, once the store answers him, and goes on holding until he gives it back or loses it.
/// *Not promised* is that he listens, nor that he gives it back, nor that he learns who asks.
///
/// It takes the place of what he said of himself. To take a lock away from somebody who does not listen, delete
/// the ticket: he then learns that it is lost, and his guarded transactions fail.
///
/// On ZooKeeper, Curator's revocable locks ask and listen in the same way.
///
/// # Errors
///
/// As every verb of a [`Client`].
///
/// # Cancel safety
///
/// A dropped call has asked or has not.
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
        Outcome::Rejected(no) if no.why == Why::Missing => Ok(false),
        outcome @ Outcome::Rejected(_) => outcome.required().map(|_| true),
    }
}

impl<K> Hold<K> {
    /// Waits until somebody [asks](ask_back) for it back. It goes on being held: whether to give it back is
    /// for the holder to decide.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`] if it is lost before anybody asks, and what the store says.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches.
    pub async fn asked_back(&self) -> Result<()> {
        let mut delays = self.node.delays();
        loop {
            let query = Query::node(self.path().clone());
            let (view, mut watch) = match self.node.session().observe(query).await {
                // The session may live on.
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
            if written && node.data == ASKED && !mutant::is(Mutant::QuestionUnheard) {
                return Ok(());
            }
            let _look_again = watch.next().await;
        }
    }
}
