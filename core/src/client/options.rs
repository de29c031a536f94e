//! [`ClientOptions`]: how a client behaves.

use std::time::Duration;

use crate::chance::Chance;
use crate::error::{Error, ErrorKind, Result};
use crate::retry::Retry;
use crate::store::SessionOptions;

/// How a [`Client`](crate::client::Client) behaves.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use synod_core::client::ClientOptions;
/// use synod_core::retry::Retry;
/// use synod_core::store::SessionOptions;
///
/// let options = ClientOptions::default()
///     .session(SessionOptions::new(Duration::from_secs(30)))
///     .deadline(Duration::from_secs(5))
///     .retry(Retry::forever());
/// # assert!(options.validate().is_ok());
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// What each session is asked to be. Ten seconds to live.
    pub session: SessionOptions,
    /// How long one call may take, its repetitions and the wait for a session included. Ten
    /// seconds.
    pub deadline: Duration,
    /// How long opening the first session may take, repetitions included, and later each attempt to
    /// open the next. Fifteen seconds.
    pub connect_deadline: Duration,
    /// When to stop repeating calls, and attempts to open the next session. For ever: their
    /// deadline ends them.
    pub retry: Retry,
    /// Where all ids and random choices come from.
    pub chance: Chance,
}

impl ClientOptions {
    /// Sets what each session is asked to be.
    pub fn session(mut self, session: SessionOptions) -> Self {
        self.session = session;
        self
    }

    /// Sets how long one call may take.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets how long opening a session may take.
    pub fn connect_deadline(mut self, connect_deadline: Duration) -> Self {
        self.connect_deadline = connect_deadline;
        self
    }

    /// Sets when to stop repeating.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Sets where all ids and random choices come from.
    pub fn chance(mut self, chance: Chance) -> Self {
        self.chance = chance;
        self
    }

    /// Refuses what cannot be meant.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for a deadline of zero, and what [`Retry::validate`] refuses.
    pub fn validate(&self) -> Result<()> {
        if self.deadline.is_zero() || self.connect_deadline.is_zero() {
            return Err(Error::new(ErrorKind::Invalid, "opening a client")
                .because("a deadline is more than zero"));
        }
        self.retry.validate()
    }
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            session: SessionOptions::default(),
            deadline: Duration::from_secs(10),
            connect_deadline: Duration::from_secs(15),
            retry: Retry::default(),
            chance: Chance::from_system(),
        }
    }
}
