//! The lead of an election: what whoever has it says to those who listen, and to whom he leaves it.

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::line::Line;
use crate::line::heir::give;
use crate::line::hold::Hold;
use crate::mutant::{self, Mutant};
use crate::path::Path;
use crate::store::Outcome;

/// The lead. See [`Hold`].
pub type Leader = Hold<Elected>;

/// What a [`Leader`] can do besides.
#[derive(Debug)]
pub struct Elected {
    line: Line,
}

impl Elected {
    /// By this line.
    pub(crate) fn of(line: Line) -> Self {
        Self { line }
    }
}

impl Leader {
    /// Proclaims another value.
    ///
    /// # Errors
    ///
    /// [`SessionLost`](crate::error::ErrorKind) if the lead was lost: nothing is proclaimed then. Otherwise as every
    /// verb of a [`Client`](crate::client::Client); a value of unknown effect may be proclaimed again.
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

    /// Gives the lead to the candidate whose node this is: [`Contender::path`](crate::recipe::inspect::Contender::path) of one of
    /// [`Election::candidates`](crate::recipe::election::Election::candidates). Whoever stands between them is sent behind everybody else, in whatever
    /// order. If the candidate does not stand any more, nothing happens and the lead is returned.
    ///
    /// # Errors
    ///
    /// [`Refused`](crate::error::ErrorKind) if a program of another kind stands between, which could not be told;
    /// [`SessionLost`](crate::error::ErrorKind) if the lead was lost before; otherwise as every verb of a [`Client`](crate::client::Client).
    /// In each case the lead is given up.
    ///
    /// # Cancel safety
    ///
    /// A dropped call gives up the lead, in favour of the candidate or not.
    pub async fn resign_to(self, candidate: &Path) -> Result<Option<Self>> {
        let given = give(&self.node, &self.kind.line, candidate).await?;
        Ok((!given).then_some(self))
    }
}
