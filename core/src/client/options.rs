//! [`ClientOptions`]: how a client behaves.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::random::Random;
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
///     .timeout(Duration::from_secs(5))
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
    pub timeout: Duration,
    /// How long opening the first session may take, repetitions included, and later each attempt to
    /// open the next. Fifteen seconds.
    pub connect_timeout: Duration,
    /// When to stop repeating calls, and attempts to open the next session. For ever: their
    /// deadline ends them.
    pub retry: Retry,
    /// Where all ids and random choices come from.
    pub random: Random,
}

impl ClientOptions {
    /// Sets what each session is asked to be.
    pub fn session(mut self, session: SessionOptions) -> Self {
        self.session = session;
        self
    }

    /// Sets how long one call may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how long opening a session may take.
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// Sets when to stop repeating.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Sets where all ids and random choices come from.
    pub fn random(mut self, random: Random) -> Self {
        self.random = random;
        self
    }

    /// Refuses what cannot be meant.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for a deadline of zero, and what [`Retry::validate`] refuses.
    pub fn validate(&self) -> Result<()> {
        if self.timeout.is_zero() || self.connect_timeout.is_zero() {
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
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(15),
            retry: Retry::default(),
            random: Random::from_system(),
        }
    }
}
