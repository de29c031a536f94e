//! [`Resumption`]: the claim of a session that another client handed over. One client resumes it.

use crate::clock::sleep;
use crate::error::{Error, ErrorKind, Result};
use crate::path::Path;
use crate::retry::Delays;
use crate::session::SessionClaim;
use crate::store::{Expect, Query, SessionHandover, Store, Txn};

const RESUMING: &str = "resuming a session";

/// The session that a client resumes, with the unique id by which it claims the session.
#[derive(Debug)]
pub(super) struct Resumption {
    pub(super) handover: SessionHandover,
    pub(super) claimant: String,
}

impl Resumption {
    /// Claims the session in a session of this client: the session itself is not disturbed.
    /// Returns the claim, and fails if another client has claimed the session.
    pub(super) async fn claim(&self, own: &dyn Store, mut delays: Delays) -> Result<SessionClaim> {
        loop {
            match self.try_claim(own).await {
                Err(error) if error.kind() == ErrorKind::Unreachable => match delays.next() {
                    Some(delay) => sleep(delay).await,
                    None => return Err(error),
                },
                claimed => return claimed,
            }
        }
    }

    async fn try_claim(&self, own: &dyn Store) -> Result<SessionClaim> {
        let path = self.handover.claim().ok_or_else(|| {
            Error::new(ErrorKind::Invalid, RESUMING).because("the handover has no claim")
        })?;
        loop {
            let node = own.read(Query::node(path.clone())).await?.into_node();
            let Some((node, stat)) = node.and_then(|node| node.stat.map(|stat| (node, stat)))
            else {
                return Err(ended(path));
            };
            if node.data == self.claimant {
                return Ok(SessionClaim { path: path.clone(), stat });
            }
            if !node.data.is_empty() {
                return Err(used(path));
            }
            let data = self.claimant.clone();
            let claim = Txn::new().set(path.clone(), data, Expect::Version(stat.version));
            // The next read shows who was first.
            let _outcome = own.commit(claim).await?;
        }
    }
}

fn ended(path: &Path) -> Error {
    Error::new(ErrorKind::SessionLost, RESUMING).at(path).because(
        "the session has ended, or this is another store or namespace; \
         open a client without the handover",
    )
}

fn used(path: &Path) -> Error {
    Error::new(ErrorKind::Refused, RESUMING)
        .at(path)
        .because("another client has resumed this session; open a client without the handover")
}
