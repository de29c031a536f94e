//! [`Barrier`]: no waiter passes while it is set.

pub use crate::count_down::CountDown;
pub use crate::double_barrier::{DoubleBarrier, Entered, OnLoss};
pub use crate::support::barrier_change::BarrierChange;

use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{Expect, Outcome, Query, RejectReason};

use crate::support::barrier_change::create_once;
use crate::support::retry::repeat_in_doubt;
use crate::support::wait::until;

#[cfg_attr(not(doctest), doc = include_str!("../docs/barrier.md"))]
#[derive(Clone, Debug)]
pub struct Barrier {
    client: Client,
    path: Path,
}

impl Barrier {
    /// Creates the barrier at `path`.
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        Self { client: client.clone(), path: path.into() }
    }

    /// Sets the barrier if it is not set, and returns the effect of the call. After this returned
    /// without an error, no later wait returns before the barrier is lifted.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Refused`](synod_core::error::ErrorKind::Refused) if the path is a directory,
    /// and the errors that are common to all calls: see [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not have set the barrier.
    pub async fn set(&self) -> Result<BarrierChange> {
        create_once(&self.client, &self.path).await
    }

    /// Lifts the barrier if it is set, so that all waiters may pass. Returns the effect of the
    /// call.
    ///
    /// If the answer is lost, the request is sent again. A barrier that another client sets
    /// meanwhile may then be lifted, too, before this returns.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Refused`](synod_core::error::ErrorKind::Refused) if there are nodes below it,
    /// and the errors that are common to all calls: see [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not have lifted the barrier.
    pub async fn lift(&self) -> Result<BarrierChange> {
        let lift =
            async |in_doubt| Ok((self.client.delete(&self.path, Expect::Any).await?, in_doubt));
        let (lifted, in_doubt) = repeat_in_doubt(&self.client, lift).await?;
        match lifted {
            Outcome::Rejected(no) if no.reason == RejectReason::Missing => {
                Ok(BarrierChange::unchanged_unless(in_doubt))
            }
            lifted => lifted.required().map(|()| BarrierChange::Changed),
        }
    }

    /// Returns `true` if the barrier is set.
    ///
    /// # Errors
    ///
    /// The errors that are common to all calls: see [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn is_set(&self) -> Result<bool> {
        self.client.exists(&self.path).await
    }

    /// Waits until the barrier is not set. Returns immediately if it is not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`](synod_core::error::ErrorKind::SessionLost) once the client is
    /// closed, and the error of the store if it refuses the read. An outage is not an error: the
    /// wait continues.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn wait(&self) -> Result<()> {
        let query = Query::until_gone(&self.path);
        // Boxed, so that the future of a caller with many waits stays small.
        Box::pin(until(&self.client, query, |view| view.node().is_none())).await
    }
}
