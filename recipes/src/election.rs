//! [`Election`]: leaders that proclaim values, observers of the values, and handover to a
//! candidate.

pub use crate::leader_latch::{Candidacy, LeaderLatch, LeadershipChange};
pub use crate::leader_selector::{LeaderSelector, Term};
pub use crate::line::hold::Leadership;

use bytes::Bytes;
use futures_core::Stream;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::Outcome;

use crate::election::observer::observe;
use crate::election::resign_to::resign_to;
use crate::line::hold::guard;
use crate::line::order::Contender;
use crate::line::{Form, Line};
use crate::mutant::mistake;

mod observer;
mod resign_to;

#[cfg_attr(not(doctest), doc = include_str!("../docs/election.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/elections.md"))]
#[derive(Clone, Debug)]
pub struct Election {
    line: Line,
}

guard! {
    /// A guard of the leadership of an [`Election`]. It can proclaim values, and resign in favour
    /// of a candidate.
    Leader(Line)
}

impl Election {
    /// The election at `path`.
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        Self { line: Line::new(client, path.into(), Form::exclusive("election", "latch-")) }
    }

    /// Waits for the lead. The value is visible while the candidate waits, and is its first value
    /// as a leader.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::lock::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn campaign(&self, value: impl Into<Bytes>) -> Result<Leader> {
        let line = self.line.clone().labelled(value.into());
        let ticket = line.enter().await?;
        Ok(Leader(ticket.hold(line)))
    }

    /// Acquires the lead if there is no leader and no other candidate. Never waits, and leaves no
    /// ticket if it returns `None`.
    ///
    /// # Errors
    ///
    /// As [`Election::campaign`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn try_campaign(&self, value: impl Into<Bytes>) -> Result<Option<Leader>> {
        let line = self.line.clone().labelled(value.into());
        let entered = line.try_enter().await?;
        Ok(entered.map(|ticket| Leader(ticket.hold(line))))
    }

    /// Returns the lead that another client held in this session before it [handed the session
    /// over](synod_core::client::Client::hand_over), with the same token and value. `None` if there
    /// is none, if it was returned before, or if this session was not resumed. Candidacies of that
    /// client that still wait here are removed.
    ///
    /// # Errors
    ///
    /// The errors common to all calls of a [`Client`]. The lead is then released.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may release the lead.
    pub async fn resume(&self) -> Result<Option<Leader>> {
        Ok(self
            .line
            .resume()
            .await?
            .map(|(ticket, node)| Leader(ticket.hold(self.line.clone().labelled(node.data)))))
    }

    /// The first candidate, with its value: it leads, or is about to lead.
    ///
    /// # Errors
    ///
    /// The errors common to all calls of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn leader(&self) -> Result<Option<Contender>> {
        Ok(self.candidates().await?.into_iter().next())
    }

    /// All candidates, the leader first, in the order in which they will lead.
    ///
    /// # Errors
    ///
    /// The errors common to all calls of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn candidates(&self) -> Result<Vec<Contender>> {
        self.line.contenders().await
    }

    /// The leaders and the values that they proclaim, beginning with the current one, across
    /// sessions. While there is no leader the stream yields nothing. It may skip values that are
    /// replaced in quick succession. It ends with an error, when the client is closed or the store
    /// rejects a read; an outage of any length does not end it.
    pub fn observe(&self) -> impl Stream<Item = Result<Contender>> + Send + use<> {
        observe(self.line.clone())
    }
}

impl Leader {
    /// Proclaims another value.
    ///
    /// # Errors
    ///
    /// [`SessionLost`](synod_core::error::ErrorKind) if the lead was lost: then nothing is
    /// proclaimed. Otherwise the errors common to all calls of a [`Client`]; after an unknown
    /// effect the value may be proclaimed again.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not have proclaimed it.
    pub async fn proclaim(&self, value: impl Into<Bytes>) -> Result<()> {
        match self.0.node.write(value.into()).await? {
            Outcome::Committed(_) => Ok(()),
            Outcome::Rejected(_) => {
                mistake!(ProclaimsUnguarded: return Ok(()));
                Err(Error::new(ErrorKind::SessionLost, "proclaiming")
                    .at(self.0.node.path())
                    .because("the lead was lost before"))
            }
        }
    }

    /// Releases the lead: [`Leader::release`].
    ///
    /// # Errors
    ///
    /// As [`Leader::release`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background.
    pub async fn resign(self) -> Result<()> {
        self.release().await
    }

    /// Hands the lead over to the candidate with this path: the
    /// [`Contender::path`](crate::lock::Contender::path) of one of the
    /// [`Election::candidates`](crate::election::Election::candidates). The candidates in between
    /// move to the end of the queue, in any order. If the candidate is no longer in the queue,
    /// nothing happens and the lead is returned.
    ///
    /// # Errors
    ///
    /// [`Refused`](synod_core::error::ErrorKind) if a candidate of another library, which could not
    /// be notified, is in between; [`SessionLost`](synod_core::error::ErrorKind) if the lead was
    /// lost before; otherwise the errors common to all calls of a [`Client`]. In each case the lead
    /// is released.
    ///
    /// # Cancel safety
    ///
    /// A dropped call releases the lead, possibly not in favour of the candidate.
    pub async fn resign_to(self, candidate: &Path) -> Result<Option<Self>> {
        let is_handed_over = resign_to(&self.0.node, &self.0.kind, candidate).await?;
        Ok((!is_handed_over).then_some(self))
    }
}
