//! What a recipe repeats until it succeeds, and how long it waits between the tries.

use synod_core::error::Error;
use synod_core::retry::{Delays, Retry};

use crate::line::Line;
use crate::mutant::mistake;

impl Line {
    /// Whether a later try may succeed after this failure.
    pub(crate) fn is_transient(&self, error: &Error) -> bool {
        mistake!(OutageEndsIt: return false);
        self.client.is_transient(error)
    }

    /// How long to wait between the tries of what is repeated until it succeeds.
    pub(crate) fn delays(&self) -> Delays {
        Retry::forever().delays(self.client.random())
    }
}
