//! What a session is, what it was asked to be, and how long it certainly lives.

use std::fmt;
use std::time::Duration;

use crate::clock::{self, Instant};

use crate::error::{Error, ErrorKind, Result};
use crate::store::node::SessionId;

/// What a session is asked to be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionOptions {
    /// How long the session outlives its last sign of life. The store may raise or lower it: see
    /// [`SessionInfo::ttl`].
    pub ttl: Duration,
}

impl SessionOptions {
    /// A session with the given time to live.
    pub fn new(ttl: Duration) -> Self {
        Self { ttl }
    }
}

impl Default for SessionOptions {
    /// Ten seconds.
    fn default() -> Self {
        Self::new(Duration::from_secs(10))
    }
}

/// What a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// As its store calls it; [`Stat::owner`](super::Stat::owner) of its ephemeral nodes.
    pub id: SessionId,
    /// The time to live that was negotiated. It is what counts everywhere.
    pub ttl: Duration,
    /// What its store takes.
    pub limits: Limits,
}

impl SessionInfo {
    /// A session by its three facts.
    pub fn new(id: SessionId, ttl: Duration, limits: Limits) -> Self {
        Self { id, ttl, limits }
    }
}

/// What a store takes, and what it cannot do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of data in one node.
    pub data: usize,
    /// Operations in one transaction.
    pub operations: usize,
    /// Bytes in one transaction, paths included.
    pub request: usize,
    /// What this store cannot do at all.
    pub missing_features: Vec<Feature>,
}

impl Default for Limits {
    /// What fits every store: a million bytes a node and a transaction, 40 operations (etcd takes
    /// 128 conditions, and a create needs two and one for each of its ancestors).
    fn default() -> Self {
        Self { data: 1_000_000, operations: 40, request: 1_020_000, missing_features: Vec::new() }
    }
}

/// Something that a store cannot do. What needs it fails as
/// [`Unsupported`](crate::error::ErrorKind::Unsupported).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// Nodes with a time to live.
    TtlNodes,
    /// A number at the end of the name of a sequential node. It has a [`Sequence`](super::Sequence) in any case.
    NumberedNames,
}

/// Whether a session lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "every holder must distinguish them")]
pub enum Status {
    /// The store answers.
    Live {
        /// Up to here the session certainly lives at the server, whatever happens: by
        /// [`clock::now`](crate::clock::now), which counts the time in which the machine was suspended.
        until: Instant,
    },
    /// The store does not answer just now.
    Suspended {
        /// Up to here the session certainly lives at the server.
        until: Instant,
    },
    /// The session is over, or must be assumed to be. Final.
    Lost {
        /// Why it is over.
        reason: SessionEnd,
    },
}

impl Status {
    /// Up to when the session certainly lives; `None` once it is lost.
    pub fn until(&self) -> Option<Instant> {
        match self {
            Self::Live { until } | Self::Suspended { until } => Some(*until),
            Self::Lost { .. } => None,
        }
    }

    /// Whether the session certainly lives at this instant. This, and nothing else, is what "I
    /// still hold it" means.
    pub fn is_certain(&self) -> bool {
        self.until().is_some_and(|until| clock::now() < until)
    }

    /// Whether the session is over for good.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }
}

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SessionEnd {
    /// The server ended it, or was not heard of for so long that it may have.
    Expired,
    /// It was closed from this side.
    Closed,
    /// The server does not accept the credentials any more.
    Denied,
}

impl SessionEnd {
    /// The error of every call on a lost session.
    pub fn error(self, doing: &'static str) -> Error {
        Error::new(ErrorKind::SessionLost, doing).because(self.to_string())
    }
}

impl fmt::Display for SessionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the session expired",
            Self::Closed => "the session was closed",
            Self::Denied => "the store does not accept the credentials any more",
        })
    }
}

/// Until when a session certainly lives at the server whose answer to a request *sent* at `sent`
/// was received.
///
/// The server counts the time to live from when it received the request, which was not before
/// `sent`. Two clocks may run at rates that differ by 1 %, and the server may look at its clock
/// early by `slack`.
pub fn certain_until(sent: Instant, ttl: Duration, slack: Duration) -> Instant {
    // (1 - r) / (1 + r) for r = 1 %, rounded down.
    let certain = ttl.saturating_sub(slack) / 1_000 * 980;
    sent.checked_add(certain).unwrap_or(sent)
}

/// Fits a wanted time to live into what a store can do.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] for zero, which no store can mean.
pub fn clamp_ttl(wanted: Duration, shortest: Duration, longest: Duration) -> Result<Duration> {
    if wanted.is_zero() {
        return Err(Error::new(ErrorKind::Invalid, "opening a session")
            .because("a session needs a time to live of more than zero"));
    }
    Ok(wanted.clamp(shortest, longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certainty_ends_before_the_time_to_live_does() {
        let sent = clock::now();
        let ttl = Duration::from_secs(10);
        let until = certain_until(sent, ttl, Duration::from_millis(100));
        assert!(until <= sent + Duration::from_millis(9_702));
        assert!(until > sent + Duration::from_millis(9_700));
        assert_eq!(certain_until(sent, ttl, ttl * 2), sent);
    }

    #[test]
    fn no_duration_overflows() {
        let now = clock::now();
        let _no_panic = certain_until(now, Duration::MAX, Duration::ZERO);
        let (low, high) = (Duration::from_millis(1), Duration::from_secs(3_600));
        assert_eq!(clamp_ttl(Duration::MAX, low, high).expect("clamped"), high);
        assert_eq!(clamp_ttl(Duration::from_nanos(1), low, high).expect("clamped"), low);
        assert!(clamp_ttl(Duration::ZERO, low, high).is_err());
    }
}
