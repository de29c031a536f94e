//! What a recipe repeats until it succeeds, and how long it waits between the tries.

use synod_core::error::{Error, ErrorKind};
use synod_core::retry::{Delays, Retry};

use crate::line::Line;
use crate::mutant::mistake;

impl Line {
    /// Whether a later try may succeed after this failure: the store did not answer, or there was no session in time.
    pub(crate) fn may_pass(&self, error: &Error) -> bool {
        let passes = matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::SessionLost);
        mistake!(OutageEndsIt: let passes = false);
        passes && !self.client.is_closed()
    }

    /// How long to wait between the tries of what is repeated until it succeeds.
    pub(crate) fn delays(&self) -> Delays {
        Retry::forever().delays(self.client.chance())
    }
}
