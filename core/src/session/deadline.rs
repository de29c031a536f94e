//! [`Deadline`]: one limit for a call and all of its retries.

use std::time::Duration;

use crate::clock::{self, Instant, sleep_until};

use crate::error::{Error, ErrorKind};
use crate::mutant::mistake;

/// When a call has to be over, whatever it still wants to try.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    limit: Duration,
    /// `None` if it is beyond the end of time.
    at: Option<Instant>,
}

impl Deadline {
    /// So much time from now.
    pub(crate) fn within(limit: Duration) -> Self {
        Self { limit, at: clock::now().checked_add(limit) }
    }

    /// Waits until the time is up.
    pub(crate) async fn passed(self) {
        mistake!(DeadlineIgnored: std::future::pending().await);
        match self.at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// What a call fails with when its time is up.
    pub(crate) fn error(self, doing: &'static str) -> Error {
        Error::new(ErrorKind::Unreachable, doing)
            .because(format!("no answer within {:?}", self.limit))
    }

    /// [`Deadline::error`], when the store answers no call of this session.
    pub(crate) fn error_suspended(self, doing: &'static str) -> Error {
        Error::new(ErrorKind::Unreachable, doing).because(format!(
            "no answer within {:?}; the session is suspended, and goes on if a server answers before its \
             time to live is over: are the servers running, and is the way to them open?",
            self.limit
        ))
    }
}
