//! The time limit of a call and all its retries: [`Deadline`].

use std::time::Duration;

use crate::clock::{self, Instant, sleep_until};

use crate::error::{Error, ErrorKind};
use crate::mutant::mistake;

/// The instant at which a call ends, with all its retries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    limit: Duration,
    /// `None` if it exceeds the range of the clock.
    at: Option<Instant>,
}

impl Deadline {
    /// Creates a deadline this long from now.
    pub(crate) fn within(limit: Duration) -> Self {
        Self { limit, at: clock::now().checked_add(limit) }
    }

    /// Waits until the deadline has passed.
    pub(crate) async fn passed(self) {
        mistake!(DeadlineIgnored: std::future::pending().await);
        match self.at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Returns the error of a call whose deadline has passed.
    pub(crate) fn error(self, doing: &'static str) -> Error {
        Error::new(ErrorKind::Unreachable, doing)
            .because(format!("no answer within {:?}", self.limit))
    }

    /// Returns [`Deadline::error`] for a session whose store does not answer.
    pub(crate) fn error_suspended(self, doing: &'static str) -> Error {
        Error::new(ErrorKind::Unreachable, doing).because(format!(
            "no answer within {:?}; the session is suspended, and continues if a server answers before its \
             TTL has passed: are the servers running and reachable?",
            self.limit
        ))
    }
}
