//! [`LeaderLatch`]: stands for election from joining to closing, and always knows whether it leads.

use bytes::Bytes;

use crate::client::Client;
use crate::error::Result;
use crate::line::contender::Contender;
use crate::line::{Form, Line};
use crate::path::Path;

pub use crate::line::candidacy::{Candidacy, Change, Leadership};

/// An election in which whoever joined stands until he leaves, leading whenever it is his turn.
///
/// At most one candidate believes at any time that he leads, provided no two clocks differ in *rate* by more
/// than 1 % (their offset does not matter) and the process does not act on a check that it made before being
/// paused. Who joined first leads first; when the leader's session ends, or his node is removed, the next one
/// leads, and he stands again, as the last.
///
/// A session that is suspended is still the leader's until nobody can be certain that it lives: then
/// [`Candidacy::is_leader`] is false, before anybody is told. *Not promised* is that nobody acts too late: for work
/// that must be exclusive without any assumption use [`Hold::txn`](crate::recipe::Hold::txn), or send
/// [`Hold::token`](crate::recipe::Hold::token) to a system that refuses lower ones. Tokens never repeat and never
/// go back, also after the directory was deleted.
///
/// # Others on the same path
///
/// On ZooKeeper, Curator's `LeaderLatch`; on etcd, `etcdctl elect`.
///
/// # Examples
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path::Path;
/// use synod_core::recipe::leader_latch::LeaderLatch;
///
/// # async fn example(client: Client) -> Result<()> {
/// let latch = LeaderLatch::new(&client, Path::new("/leaders/billing")?).label("host-7");
/// let candidacy = latch.join().await?;
/// let lead = candidacy.leading().await?;
/// assert!(candidacy.is_leader());
/// lead.run(async { /* stopped if the lead is lost */ }).await?;
/// candidacy.close().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LeaderLatch {
    line: Line,
}

impl LeaderLatch {
    /// The election at `path`.
    pub fn new(client: &Client, path: Path) -> Self {
        Self { line: Line::new(client, path, Form::alone("leader_latch", "latch-")) }
    }

    /// What a candidate is known by to those who look at the participants.
    pub fn label(self, label: impl Into<Bytes>) -> Self {
        Self { line: self.line.labelled(label.into()) }
    }

    /// Stands for election from now on, in a task of its own. If nobody else does, he leads when this returns.
    ///
    /// # Errors
    ///
    /// [`Unreachable`](crate::error::ErrorKind) if there was no session for as long as the client's deadline,
    /// [`SessionLost`](crate::error::ErrorKind) once the client is closed, and what the store says. Who has joined
    /// stands on whatever happens; that he could not is then told as [`Change::Failed`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing behind.
    pub async fn join(&self) -> Result<Candidacy> {
        Candidacy::begin(&self.line).await
    }

    /// Who is the first: he leads, or is about to.
    ///
    /// # Errors
    ///
    /// As every verb of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn leader(&self) -> Result<Option<Contender>> {
        Ok(self.participants().await?.into_iter().next())
    }

    /// All who stand, the leader first, in the order in which they will lead.
    ///
    /// # Errors
    ///
    /// As every verb of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn participants(&self) -> Result<Vec<Contender>> {
        self.line.contenders().await
    }
}
