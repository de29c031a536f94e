//! [`Draws`]: what the hub keeps in its state for [`draw`](super::draw).

use futures_util::FutureExt as _;

use crate::client::StateWatcher;
use crate::sole_contender::SoleContender;

/// What the session knows about the directories in which it creates tickets.
pub(super) struct Draws {
    pub(super) alone: SoleContender,
    states: StateWatcher,
    /// How often the connection was seen to change.
    connection: u64,
}

impl Draws {
    pub(super) fn new(mut states: StateWatcher) -> Self {
        let _as_it_is = states.state();
        Self { alone: SoleContender::default(), states, connection: 0 }
    }

    /// The number of the current connection. The loss of a connection is reported before any
    /// answer on the next one.
    pub(super) fn connection(&mut self) -> u64 {
        if self.states.changed().now_or_never().is_some() {
            self.connection += 1;
        }
        self.connection
    }
}
