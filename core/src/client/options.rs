//! The options of a client, [`ClientOptions`].

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::random::Random;
use crate::retry::{Backoff, Retry};
use crate::store::{SessionHandover, SessionOptions};

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
    /// The maximum duration of the opening of the first session if each server refuses the
    /// connection, or its name has no address: a longer wait seldom helps. Two seconds by default.
    pub refused_timeout: Duration,
    /// `true` if [`Client::open`](crate::client::Client::open) returns before there is a session.
    /// The first session is opened in the background, as later ones are, until the client is
    /// closed. Until then the state is
    /// [`Connecting`](crate::client::ConnectionState::Connecting), and calls wait for the session
    /// within their deadline.
    pub lazy: bool,
    /// The session with which the client starts, instead of opening one: it was
    /// [handed over](crate::client::Client::hand_over) by another client. If that session is lost
    /// later, the client opens its own.
    pub resume: Option<SessionHandover>,
    /// The policy that ends the retries of calls. By default it has no limit: the deadline of a
    /// call ends its retries.
    pub retry: Retry,
    /// The policy that ends the attempts to open a session. `None`, the default, sets no limit and
    /// uses the delays of [`retry`](Self::retry). After the last attempt the client is closed.
    pub session_retry: Option<Retry>,
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

    /// Sets the maximum duration of the opening of a session, even if each server refuses the
    /// connection.
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self.refused_timeout = connect_timeout;
        self
    }

    /// Sets the maximum duration of the opening of the first session if each server refuses the
    /// connection.
    pub fn refused_timeout(mut self, refused_timeout: Duration) -> Self {
        self.refused_timeout = refused_timeout;
        self
    }

    /// Sets whether the client is returned before there is a session.
    pub fn lazy(mut self, lazy: bool) -> Self {
        self.lazy = lazy;
        self
    }

    /// Continues a session that was [handed over](crate::client::Client::hand_over).
    /// [`Client::open`](crate::client::Client::open) then fails as [`ErrorKind::SessionLost`] if
    /// the session has ended or is of another store, and as [`ErrorKind::Refused`] if another
    /// client has resumed it: open a client without this option then.
    pub fn resume(mut self, session: SessionHandover) -> Self {
        self.resume = Some(session);
        self
    }

    /// Sets the retry policy of calls.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Sets the retry policy of attempts to open a session.
    pub fn session_retry(mut self, retry: Retry) -> Self {
        self.session_retry = Some(retry);
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
        let limits = [self.timeout, self.connect_timeout, self.refused_timeout];
        if limits.iter().any(Duration::is_zero) {
            return Err(Error::new(ErrorKind::Invalid, "opening a client")
                .because("a deadline is more than zero"));
        }
        if self.lazy && self.resume.is_some() {
            return Err(Error::new(ErrorKind::Invalid, "opening a client")
                .because("a lazy client cannot resume a session"));
        }
        self.retry.validate()?;
        self.session_retry.as_ref().map_or(Ok(()), Retry::validate)
    }

    /// Returns the policy of attempts to open a session.
    pub(super) fn session_policy(&self) -> Retry {
        let delays = match &self.retry {
            Retry::Never => Backoff::default(),
            Retry::Times { backoff, .. }
            | Retry::UntilElapsed { backoff, .. }
            | Retry::Forever { backoff } => *backoff,
        };
        self.session_retry.clone().unwrap_or(Retry::Forever { backoff: delays })
    }
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            session: SessionOptions::default(),
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(15),
            refused_timeout: Duration::from_secs(2),
            lazy: false,
            resume: None,
            retry: Retry::default(),
            session_retry: None,
            random: Random::from_system(),
        }
    }
}
