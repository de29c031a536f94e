//! [`Patience`]: the pauses of a wait that goes on through outages.

use std::pin::pin;

use futures_util::future::select;
use synod_core::client::{Client, ConnectionState};
use synod_core::clock::sleep;
use synod_core::error::{Error, Result};
use synod_core::retry::{Delays, Retry};

/// The pauses of a wait that goes on through outages.
pub(crate) struct Patience {
    client: Client,
    delays: Option<Delays>,
}

impl Patience {
    pub(crate) fn new(client: &Client) -> Self {
        Self { client: client.clone(), delays: None }
    }

    /// Waits before another try, or until the client is closed. Returns the error if no try may succeed.
    pub(crate) async fn rest(&mut self, error: Error) -> Result<()> {
        if !self.client.is_transient(&error) {
            return Err(error);
        }
        let random = self.client.random();
        let delays = self.delays.get_or_insert_with(|| Retry::forever().delays(random));
        let pause = sleep(delays.next().unwrap_or_default());
        let mut state = self.client.state();
        let closed = state.wait_for(|state| *state == ConnectionState::Closed);
        let _either = select(pin!(pause), pin!(closed)).await;
        Ok(())
    }

    /// The store answers: the next pause is a short one again.
    pub(crate) fn begin_anew(&mut self) {
        self.delays = None;
    }
}
