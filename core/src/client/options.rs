//! The options of a client, [`ClientOptions`].

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::random::Random;
use crate::retry::Retry;
use crate::store::SessionOptions;

/// The options of a [`Client`](crate::client::Client).
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
    /// The options of each session. The default TTL is ten seconds.
    pub session: SessionOptions,
    /// The maximum duration of one call, including its retries and the wait for a session. Ten
    /// seconds by default.
    pub timeout: Duration,
    /// The maximum duration of the opening of the first session, including retries, and later of
    /// each attempt to open the next. Fifteen seconds by default.
    pub connect_timeout: Duration,
    /// The policy that ends the retries of calls, and of attempts to open the next session. Without
    /// an end by default: the deadline of a call ends its retries.
    pub retry: Retry,
    /// The source of all ids and random choices.
    pub random: Random,
}

impl ClientOptions {
    /// Sets the options of each session.
    pub fn session(mut self, session: SessionOptions) -> Self {
        self.session = session;
        self
    }

    /// Sets the maximum duration of one call.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the maximum duration of the opening of a session.
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// Sets the retry policy.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Sets the source of all ids and random choices.
    pub fn random(mut self, random: Random) -> Self {
        self.random = random;
        self
    }

    /// Validates the options.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for a deadline of zero, and the errors of [`Retry::validate`].
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
