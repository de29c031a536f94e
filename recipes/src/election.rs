//! [`Election`]: leaders with something to say, those who listen, and heirs.

use bytes::Bytes;
use futures_core::Stream;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::mutant::{self, Mutant};
use synod_core::path::Path;
use synod_core::store::Outcome;

use crate::election::observer::observe;
use crate::election::resign_to::resign_to;
use crate::line::contender::Contender;
use crate::line::hold::Hold;
use crate::line::{Form, Line};

mod observer;
mod resign_to;

/// An election in which whoever leads proclaims a value, and everybody can observe the values.
///
/// At most one believes at any time that he leads, on the assumption of
/// [`Mutex`](crate::Mutex): no two clocks differ in rate by more than 1 %, and nobody acts on a check
/// that he made before he was paused. Who campaigned first leads first, unless a leader resigns in favour of
/// another; who observes is told of leaders in the order of their terms, and of the latest in the end.
///
/// *Not promised* is that an observer sees every value or every term, nor that a leader who was observed still
/// leads; nor that nobody acts too late: for that there are [`Hold::txn`](crate::Hold::txn) and [`Hold::token`](crate::Hold::token).
///
/// # Others on the same path
///
/// On etcd, `etcdctl elect`; on ZooKeeper, Curator's `LeaderLatch`, whose values are its ids.
///
/// # Examples
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path::Path;
/// use std::pin::pin;
///
/// use futures_util::StreamExt as _;
/// use synod_recipes::Election;
///
/// # async fn example(client: Client) -> Result<()> {
/// let election = Election::new(&client, Path::new("/leaders/shard-3")?);
/// let leader = election.campaign("10.0.0.7:8080").await?;
/// leader.proclaim("10.0.0.7:9090").await?;
///
/// let mut values = pin!(election.observe());
/// let told = values.next().await.expect("it goes on")?;
/// assert_eq!(told.label, "10.0.0.7:9090");
/// leader.resign().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    line: Line,
}

/// The lead. See [`Hold`].
pub type Leader = Hold<Elected>;

/// What a [`Leader`] can do besides.
#[derive(Debug)]
pub struct Elected {
    line: Line,
}

impl Election {
    /// The election at `path`.
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        Self { line: Line::new(client, path.into(), Form::alone("election", "latch-")) }
    }

    /// Waits for the lead. The value is shown of who waits, too, and is what he proclaims when he leads.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing behind.
    pub async fn campaign(&self, value: impl Into<Bytes>) -> Result<Leader> {
        let line = self.line.clone().labelled(value.into());
        let ticket = line.enter().await?;
        Ok(ticket.hold(Elected::of(line)))
    }

    /// The lead if nobody has it and nobody waits. Never waits, and leaves nothing if it gets nothing.
    ///
    /// # Errors
    ///
    /// As [`Election::campaign`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing behind.
    pub async fn try_campaign(&self, value: impl Into<Bytes>) -> Result<Option<Leader>> {
        let line = self.line.clone().labelled(value.into());
        let entered = line.try_enter().await?;
        Ok(entered.map(|ticket| ticket.hold(Elected::of(line))))
    }

    /// Who is the first, with the value that he proclaims: he leads, or is about to.
    ///
    /// # Errors
    ///
    /// As every verb of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn leader(&self) -> Result<Option<Contender>> {
        Ok(self.candidates().await?.into_iter().next())
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
    pub async fn candidates(&self) -> Result<Vec<Contender>> {
        self.line.contenders().await
    }

    /// The leaders and what they proclaim, from the one there is now on, across sessions. While nobody leads
    /// nothing is told. Values that follow each other closely may be told as the last of them. It ends with
    /// an error, when the client is closed or the store refuses; not because the store does not answer for long.
    pub fn observe(&self) -> impl Stream<Item = Result<Contender>> + Send + use<> {
        observe(self.line.clone())
    }
}

impl Elected {
    fn of(line: Line) -> Self {
        Self { line }
    }
}

impl Leader {
    /// Proclaims another value.
    ///
    /// # Errors
    ///
    /// [`SessionLost`](synod_core::error::ErrorKind) if the lead was lost: nothing is proclaimed then. Otherwise as every
    /// verb of a [`Client`](synod_core::client::Client); a value of unknown effect may be proclaimed again.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has proclaimed it or has not.
    pub async fn proclaim(&self, value: impl Into<Bytes>) -> Result<()> {
        match self.node.write(value.into()).await? {
            Outcome::Committed(_) => Ok(()),
            Outcome::Rejected(_) if mutant::is(Mutant::ProclaimsUnguarded) => Ok(()),
            Outcome::Rejected(_) => Err(Error::new(ErrorKind::SessionLost, "proclaiming")
                .at(self.node.path())
                .because("the lead was lost before")),
        }
    }

    /// Gives the lead back: [`Hold::release`].
    ///
    /// # Errors
    ///
    /// As [`Hold::release`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call goes on in the background.
    pub async fn resign(self) -> Result<()> {
        self.release().await
    }

    /// Gives the lead to the candidate whose node this is: [`Contender::path`](crate::Contender::path) of one of
    /// [`Election::candidates`](crate::Election::candidates). Whoever stands between them is sent behind everybody else, in whatever
    /// order. If the candidate does not stand any more, nothing happens and the lead is returned.
    ///
    /// # Errors
    ///
    /// [`Refused`](synod_core::error::ErrorKind) if a program of another kind stands between, which could not be told;
    /// [`SessionLost`](synod_core::error::ErrorKind) if the lead was lost before; otherwise as every verb of a [`Client`](synod_core::client::Client).
    /// In each case the lead is given up.
    ///
    /// # Cancel safety
    ///
    /// A dropped call gives up the lead, in favour of the candidate or not.
    pub async fn resign_to(self, candidate: &Path) -> Result<Option<Self>> {
        let given = resign_to(&self.node, &self.kind.line, candidate).await?;
        Ok((!given).then_some(self))
    }
}
