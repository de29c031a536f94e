//! [`DoubleBarrier`]: so many members enter together, and leave together.

use std::num::NonZeroU32;

use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use tracing::Instrument;

use crate::cell::patience::Patience;
use crate::double_barrier::barrier_place::BarrierPlace;
use crate::double_barrier::entering::Entering;

mod barrier_place;
mod entering;
mod inside;
mod member;
mod member_watch;
mod present;
mod round;

pub use barrier_place::OnLoss;
pub use inside::Inside;

#[cfg_attr(not(doctest), doc = include_str!("../docs/double_barrier.md"))]
#[derive(Clone, Debug)]
pub struct DoubleBarrier {
    place: BarrierPlace,
}

impl DoubleBarrier {
    /// The barrier at `path`, for so many members a round. All clients must name the same number.
    pub fn new(client: &Client, path: impl Into<Path>, parties: NonZeroU32) -> Self {
        Self { place: BarrierPlace::new(client, path.into(), parties) }
    }

    /// What a member that waits to enter does when another one gives up, or dies: [`OnLoss::Wait`], if nothing else is said.
    pub fn on_loss(mut self, on_loss: OnLoss) -> Self {
        self.place.on_loss = on_loss;
        self
    }

    /// Waits until as many members are there as make a round, and enters with them. A member that comes when a round is full
    /// waits for the next one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Refused`](synod_core::error::ErrorKind::Refused) if another member gave up, and [`OnLoss::Fail`] is asked
    /// for; [`ErrorKind::SessionLost`](synod_core::error::ErrorKind::SessionLost) once the client is closed, and what the
    /// store says if it refuses the node of the member. An outage is no error: the wait goes on.
    ///
    /// # Cancel safety
    ///
    /// Nothing remains of a dropped call: its node is removed in the background. Those that saw the node may have entered
    /// with it.
    pub async fn enter(&self) -> Result<Inside> {
        let path = &self.place.path;
        let span = tracing::debug_span!("entering", recipe = "double barrier", %path);
        // On the heap, so that the future of a caller with many waits stays small.
        Box::pin(self.entered()).instrument(span).await
    }

    async fn entered(&self) -> Result<Inside> {
        let (mut patience, mut own) = (Patience::new(&self.place.client), Vec::new());
        loop {
            match Entering::new(&self.place, &mut own).run(&mut patience).await {
                Ok(Some(inside)) => return Ok(inside),
                // Its node is gone, and so is its place. It waits for the next round.
                Ok(None) => {}
                Err(error) => patience.rest(error).await?,
            }
        }
    }
}
