//! [`DoubleBarrier`]: a fixed number of members that enter together and leave together.

use std::num::NonZeroU32;

use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use tracing::Instrument;

use crate::double_barrier::entering::Entering;
use crate::double_barrier::member_watch::BarrierPlace;
use crate::support::retry::OutageBackoff;

mod entering;
mod inside;
mod member;
mod member_watch;
mod present;

pub use inside::Entered;
pub use member_watch::OnLoss;

#[cfg_attr(not(doctest), doc = include_str!("../docs/double_barrier.md"))]
#[derive(Clone, Debug)]
pub struct DoubleBarrier {
    place: BarrierPlace,
}

impl DoubleBarrier {
    /// The barrier at `path`, for rounds of `parties` members. All clients must pass the same
    /// number.
    pub fn new(client: &Client, path: impl Into<Path>, parties: NonZeroU32) -> Self {
        Self { place: BarrierPlace::new(client, path.into(), parties) }
    }

    /// Sets the reaction of a waiting member when another one gives up or dies. The default is
    /// [`OnLoss::Wait`].
    pub fn on_loss(mut self, on_loss: OnLoss) -> Self {
        self.place.on_loss = on_loss;
        self
    }

    /// Makes [`enter`](DoubleBarrier::enter) fail as
    /// [`Refused`](synod_core::error::ErrorKind::Refused) while an earlier member, which waits or
    /// is inside, specified another number of parties. The error names both numbers, and the other
    /// member with its session.
    pub fn require_same_parties(mut self) -> Self {
        self.place.same_parties = true;
        self
    }

    /// Waits until there are enough members for a round, and enters with them. A member that
    /// arrives when the round is full waits for the next round.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Refused`](synod_core::error::ErrorKind::Refused) if another member gave up,
    /// with [`OnLoss::Fail`], or with
    /// [`require_same_parties`](DoubleBarrier::require_same_parties); [`ErrorKind::SessionLost`](synod_core::error::ErrorKind::SessionLost)
    /// once the client is closed, and the error of the store if it rejects the node of the member.
    /// An outage is not an error: the wait continues.
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves nothing: its node is removed in the background. Members that saw the
    /// node may have entered with it.
    pub async fn enter(&self) -> Result<Entered> {
        let path = &self.place.path;
        let span = tracing::debug_span!("entering", recipe = "double barrier", %path);
        // Boxed, so that the future of a caller with many waits stays small.
        Box::pin(self.entered()).instrument(span).await
    }

    async fn entered(&self) -> Result<Entered> {
        let (mut backoff, mut own) = (OutageBackoff::new(&self.place.client), Vec::new());
        loop {
            match Entering::new(&self.place, &mut own).run(&mut backoff).await {
                Ok(Some(inside)) => return Ok(inside),
                // The node was removed, and the position is lost. The member waits for the next
                // round.
                Ok(None) => {}
                Err(error) => backoff.wait(error).await?,
            }
        }
    }
}
