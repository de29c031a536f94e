//! Sessions: their options, their limits, and the time until which they certainly live.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::{self, Instant};

use crate::error::{Error, ErrorKind, Result};
use crate::path::Path;
use crate::store::extension::Extension;
use crate::store::handover::{HandOver, HandoverRelease, SessionHandover};
use crate::store::node::SessionId;
use crate::store::servers::ServerList;

/// The requested properties of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionOptions {
    /// The time after which the session expires if the store receives no heartbeat. The store may
    /// raise or lower it: see [`SessionInfo::ttl`].
    pub ttl: Duration,
    /// The session to continue, instead of opening one. Its TTL remains, where the store permits
    /// that.
    pub resume: Option<SessionHandover>,
}

impl SessionOptions {
    /// Creates options with the given TTL.
    pub fn new(ttl: Duration) -> Self {
        Self { ttl, resume: None }
    }
}

impl Default for SessionOptions {
    /// Ten seconds.
    fn default() -> Self {
        Self::new(Duration::from_secs(10))
    }
}

/// The properties of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// The id in the store, which is also the [`Stat::owner`](super::Stat::owner) of its ephemeral
    /// nodes.
    pub id: SessionId,
    /// The negotiated TTL. It applies everywhere.
    pub ttl: Duration,
    /// The limits of the store.
    pub limits: Limits,
    /// The server that the session uses, if its store reports it.
    pub server: CurrentServer,
    /// The servers that the session may use, if its store reports them.
    pub servers: ServerList,
    /// The calls that only this kind of store has.
    extension: Extension,
    /// The roots of the namespaces that the session is in, the innermost first.
    roots: Vec<Path>,
    release: HandoverRelease,
}

impl SessionInfo {
    /// Creates the properties of a session.
    pub fn new(id: SessionId, ttl: Duration, limits: Limits) -> Self {
        let (server, servers) = (CurrentServer::default(), ServerList::default());
        let (extension, roots) = (Extension::default(), Vec::new());
        let release = HandoverRelease::default();
        Self { id, ttl, limits, server, servers, extension, roots, release }
    }

    /// Adds the server, which the store sets again whenever the session uses another one.
    pub fn with_server(mut self, server: CurrentServer) -> Self {
        self.server = server;
        self
    }

    /// Adds the servers of the store.
    pub fn with_servers(mut self, servers: ServerList) -> Self {
        self.servers = servers;
        self
    }

    /// Adds the calls that only this kind of store has.
    pub fn with_extension(mut self, extension: Extension) -> Self {
        self.extension = extension;
        self
    }

    /// Returns the calls that only one kind of store has, by their type. `None` if this store has
    /// no calls of this type.
    pub fn extension<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.extension.get()
    }

    /// Adds the call by which this session is handed over to another process.
    pub fn with_handover(mut self, release: Arc<dyn HandOver>) -> Self {
        self.release = HandoverRelease::new(release);
        self
    }

    /// Returns the call by which this session is handed over; `None` if its store does not support
    /// that. Only [`Client::hand_over`](crate::client::Client::hand_over) calls it.
    pub(crate) fn handover(&self) -> Option<Arc<dyn HandOver>> {
        self.release.get()
    }

    /// Returns the path in the store itself of a path of this session, which may be in a namespace.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it is too long.
    pub fn path_in_store(&self, path: &Path) -> Result<Path> {
        let within = |path: Path, root: &Path| path.within(root);
        Ok(self.roots.iter().try_fold(path.clone(), within)?)
    }

    /// The properties of the same session in a namespace.
    pub(crate) fn in_namespace(mut self, root: &Path) -> Self {
        self.roots.insert(0, root.clone());
        self
    }
}

/// The server that answered a session last. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct CurrentServer(Arc<Mutex<Option<String>>>);

impl CurrentServer {
    /// Sets the server, as `host:port`, with the address behind it if that is another text.
    pub fn set(&self, server: impl Into<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(server.into());
    }

    /// Returns the server, as it was set; `None` if the store does not report it.
    pub fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Two sessions with the same properties are equal even if they use different servers.
impl PartialEq for CurrentServer {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for CurrentServer {}

/// The limits of a store, and the features that it lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The maximum number of bytes of data in one node.
    pub data: usize,
    /// The maximum number of operations in one transaction.
    pub operations: usize,
    /// The maximum number of bytes in one transaction, including paths.
    pub request: usize,
    /// The features that this store lacks.
    pub missing_features: Vec<Feature>,
}

impl Default for Limits {
    /// Limits that every store satisfies: a million bytes per node and per transaction, 40
    /// operations (etcd accepts 128 conditions, and a create needs two and one for each of its
    /// ancestors).
    fn default() -> Self {
        Self { data: 1_000_000, operations: 40, request: 1_020_000, missing_features: Vec::new() }
    }
}

/// A feature that a store may lack. A call that needs it fails as
/// [`Unsupported`](crate::error::ErrorKind::Unsupported).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// TTL nodes.
    TtlNodes,
    /// A number at the end of the name of a sequential node, which has a
    /// [`Sequence`](super::Sequence) in any case.
    NumberedNames,
}

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "every holder must distinguish them")]
pub enum Status {
    /// The store answers.
    Live {
        /// The instant up to which the session certainly lives at the server, by
        /// [`clock::now`](crate::clock::now), which counts the time in which the machine was
        /// suspended.
        until: Instant,
    },
    /// The store currently does not answer.
    Suspended {
        /// The instant up to which the session certainly lives at the server.
        until: Instant,
    },
    /// The session is over, or must be assumed to be. Final.
    Lost {
        /// The reason.
        reason: SessionEnd,
    },
}

impl Status {
    /// Returns the instant up to which the session certainly lives; `None` once it is lost.
    pub fn until(&self) -> Option<Instant> {
        match self {
            Self::Live { until } | Self::Suspended { until } => Some(*until),
            Self::Lost { .. } => None,
        }
    }

    /// Returns `true` if the session certainly lives at this instant. Only this proves that a lock
    /// is still held.
    pub fn is_certain(&self) -> bool {
        self.until().is_some_and(|until| clock::now() < until)
    }

    /// Returns `true` if the session is over.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }
}

/// The reason for the end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SessionEnd {
    /// The server ended it, or may have, as it has not answered for too long.
    Expired,
    /// This client closed it.
    Closed,
    /// The server no longer accepts the credentials.
    Denied,
    /// This client handed it over to another one. Its ephemeral nodes still exist.
    HandedOver,
}

impl SessionEnd {
    /// Returns the error of every call on a lost session.
    pub fn error(self, doing: &'static str) -> Error {
        Error::new(ErrorKind::SessionLost, doing).because(self.to_string())
    }
}

impl fmt::Display for SessionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the session expired",
            Self::Closed => "the session was closed",
            Self::HandedOver => "the session was handed over",
            Self::Denied => "the store does not accept the credentials any more",
        })
    }
}

/// Returns the instant up to which a session certainly lives at the server, given that a request
/// which was *sent* at `sent` has been answered.
///
/// The server counts the TTL from the time at which it received the request, which was not before
/// `sent`. Two clocks may run at rates that differ by 1 %, and the server may check its clock early
/// by `slack`.
pub fn certain_until(sent: Instant, ttl: Duration, slack: Duration) -> Instant {
    // (1 - r) / (1 + r) for r = 1 %, rounded down.
    let certain = ttl.saturating_sub(slack) / 1_000 * 980;
    sent.checked_add(certain).unwrap_or(sent)
}

/// Clamps a requested TTL to the range that the store supports.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] for zero.
pub fn clamp_ttl(wanted: Duration, shortest: Duration, longest: Duration) -> Result<Duration> {
    if wanted.is_zero() {
        return Err(Error::new(ErrorKind::Invalid, "opening a session")
            .because("the TTL of a session is more than zero"));
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
    fn an_extension_is_found_by_its_type_and_paths_by_all_roots() {
        let at = |path: &str| Path::new(path).expect("valid");
        let info = SessionInfo::new(SessionId::new(1), Duration::MAX, Limits::default());
        assert_eq!(info.extension::<u8>(), None);
        let same = info.clone().with_extension(Extension::new(Arc::new(7_u8)));
        assert_eq!((same.extension::<u8>(), same.extension::<u16>()), (Some(Arc::new(7)), None));
        assert_eq!(info, same);
        let inner = same.in_namespace(&at("/outer")).in_namespace(&at("/inner"));
        assert_eq!(inner.extension::<u8>(), Some(Arc::new(7)));
        assert_eq!(inner.path_in_store(&at("/a")).expect("short"), at("/outer/inner/a"));
        assert_eq!(inner.path_in_store(&Path::root()).expect("short"), at("/outer/inner"));
        let long = at(&format!("/{}", vec!["x".repeat(200); 9].join("/")));
        let inner = inner.in_namespace(&long);
        assert_eq!(inner.path_in_store(&long).expect_err("long").kind(), ErrorKind::Invalid);
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
