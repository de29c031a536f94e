//! [`ServerList`]: the servers of a store, which may change while a client uses them, and
//! [`ServerSource`], which says when.

use std::fmt;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{FutureExt as _, select};
use tokio::sync::{Mutex as AsyncMutex, Notify, watch};

use crate::clock::{self, Instant};
use crate::error::{Error, ErrorKind, Result};

mod file;

pub use file::ServersFile;

/// A source of the list of servers: a [file](ServersFile), a service registry, a closure of an
/// application.
///
/// A client reads it before each session, when a server does not answer, and once in each
/// [interval](Self::interval).
#[async_trait]
pub trait ServerSource: fmt::Debug + Send + Sync + 'static {
    /// Returns all servers, each as `host:port` or `host`. `Debug` of the source names it in
    /// errors and in the log.
    ///
    /// # Errors
    ///
    /// Any error: the client keeps the last list.
    ///
    /// # Cancel safety
    ///
    /// A call may be dropped, and is then repeated.
    async fn servers(&self) -> io::Result<Vec<String>>;

    /// Returns the time after which the source is read again: ten seconds by default, and at least
    /// a quarter of a second.
    fn interval(&self) -> Duration {
        Duration::from_secs(10)
    }
}

#[async_trait]
impl<S: ServerSource + ?Sized> ServerSource for Arc<S> {
    async fn servers(&self) -> io::Result<Vec<String>> {
        (**self).servers().await
    }

    fn interval(&self) -> Duration {
        (**self).interval()
    }
}

/// The current servers of a store, shared by the sessions of a [`Backend`](super::Backend). Clones
/// share it.
///
/// A list that cannot be read, is empty, or has an invalid server is not used: the last good one
/// remains, and the log has one warning until a good one is read again.
///
/// A list [of an ensemble](Self::of_ensemble) is the one that the servers themselves report. They
/// may report addresses that this client cannot reach, or that are another server's from here. So
/// the configured hosts remain as the [last resort](Self::last_resort).
#[derive(Clone)]
pub struct ServerList(Arc<Shared>);

type Servers = Arc<[String]>;

/// Validates a server, and returns it with its port.
type Check = dyn Fn(&str) -> Result<String> + Send + Sync;

struct Shared {
    /// Sent after each reading that succeeded, also if the list is the same.
    servers: watch::Sender<Servers>,
    origin: Origin,
    /// The time of the last reading. Locked while the source is read.
    last: AsyncMutex<Option<Instant>>,
    wanted: Notify,
    /// The reason that the last reading failed.
    fault: Mutex<Option<String>>,
    has_warned: AtomicBool,
}

/// The origin of the current list.
enum Origin {
    Fixed,
    Source(Arc<dyn ServerSource>, Box<Check>),
    /// The servers report it. The configured hosts remain.
    Ensemble {
        configured: Servers,
        check: Box<Check>,
    },
}

/// The minimum time between two readings, and the maximum duration of one.
const MIN_GAP: Duration = Duration::from_millis(250);
const MAX_READING: Duration = Duration::from_secs(5);

/// The time after which an ensemble is queried again that does not notify its clients.
const ENSEMBLE_INTERVAL: Duration = Duration::from_secs(10);

impl ServerList {
    /// Creates a list that does not change.
    pub fn fixed(servers: Vec<String>) -> Self {
        Self::new(servers, Origin::Fixed)
    }

    /// Creates a list that the servers [report](Self::report). `configured` are the hosts that the
    /// client was given. `check` validates a server that is reported, and returns it with its port.
    pub fn of_ensemble(
        configured: Vec<String>,
        check: impl Fn(&str) -> Result<String> + Send + Sync + 'static,
    ) -> Self {
        let hosts = configured.clone().into();
        Self::new(configured, Origin::Ensemble { configured: hosts, check: Box::new(check) })
    }

    /// Creates a list that follows a source. `first`, which may be empty, is the list until the
    /// source was read. `check` validates a server of the source, and returns it with its port.
    pub fn following(
        first: Vec<String>,
        source: Arc<dyn ServerSource>,
        check: impl Fn(&str) -> Result<String> + Send + Sync + 'static,
    ) -> Self {
        Self::new(first, Origin::Source(source, Box::new(check)))
    }

    fn new(servers: Vec<String>, origin: Origin) -> Self {
        Self(Arc::new(Shared {
            servers: watch::Sender::new(servers.into()),
            origin,
            last: AsyncMutex::default(),
            wanted: Notify::new(),
            fault: Mutex::default(),
            has_warned: AtomicBool::new(false),
        }))
    }

    /// Returns the current list.
    pub fn get(&self) -> Arc<[String]> {
        self.0.servers.borrow().clone()
    }

    /// Returns `true` if the list does not change.
    pub fn is_fixed(&self) -> bool {
        matches!(self.0.origin, Origin::Fixed)
    }

    /// Returns `true` if the servers report the list.
    pub fn is_of_ensemble(&self) -> bool {
        matches!(self.0.origin, Origin::Ensemble { .. })
    }

    /// Returns the configured hosts of a list that the servers report: a client without a server
    /// tries them after the list. Empty for any other list.
    pub fn last_resort(&self) -> &[String] {
        match &self.0.origin {
            Origin::Ensemble { configured, .. } => configured,
            Origin::Fixed | Origin::Source(..) => &[],
        }
    }

    /// Follows the list: the receiver is notified after each successful reading of the source, also
    /// if the list is the same, and after each change of a list that the servers report. The
    /// current list counts as seen.
    pub fn subscribe(&self) -> watch::Receiver<Arc<[String]>> {
        self.0.servers.subscribe()
    }

    /// Reads the source, unless it was read just now.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the list remains as it was.
    pub async fn refresh(&self) {
        let Origin::Source(source, check) = &self.0.origin else { return };
        let mut last = self.0.last.lock().await;
        if last.is_some_and(|last| clock::elapsed(last) < MIN_GAP) {
            return;
        }
        let read = AssertUnwindSafe(async { source.servers().await }).catch_unwind();
        let read = match clock::timeout(MAX_READING, read).await {
            Ok(Ok(Ok(servers))) => checked(&servers, check),
            Ok(Ok(Err(error))) => Err(error.to_string()),
            Ok(Err(_panic)) => Err("it panicked".to_owned()),
            Err(_elapsed) => Err("it was not read in time".to_owned()),
        };
        *last = Some(clock::now());
        match read {
            Ok(servers) => self.take(&servers),
            Err(fault) => self.keep(fault),
        }
    }

    /// Takes the list that the servers report, or the reason that there is none. The caller has
    /// proven that they are the ensemble of its session. Ignored unless the list is
    /// [of an ensemble](Self::of_ensemble).
    pub fn report(&self, reported: Result<Vec<String>, String>) {
        let Origin::Ensemble { check, .. } = &self.0.origin else { return };
        match reported.and_then(|servers| checked(&servers, check)) {
            Ok(servers) => self.take(&servers),
            Err(fault) => self.keep(fault),
        }
    }

    /// Waits until a list of an ensemble that does not notify its clients is to be queried again:
    /// for ten seconds, or until a [request](Self::request_refresh), but for a quarter of a second
    /// at least.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, except that the request may be forgotten.
    pub async fn report_is_due(&self) {
        clock::sleep(MIN_GAP).await;
        let rest = clock::sleep(ENSEMBLE_INTERVAL.saturating_sub(MIN_GAP));
        let _first = select(pin!(rest), pin!(self.0.wanted.notified())).await;
    }

    /// Reads the source, and fails if there is no server to connect to.
    ///
    /// # Errors
    ///
    /// [`Unreachable`](ErrorKind::Unreachable), with the reason that there is no list.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn ready(&self) -> Result<()> {
        self.refresh().await;
        if !self.get().is_empty() {
            return Ok(());
        }
        let reason = match (&self.0.origin, self.fault().clone()) {
            (Origin::Source(source, _), Some(fault)) => {
                format!("no list of servers in {source:?}: {fault}")
            }
            _ => "no servers are named".to_owned(),
        };
        let error = Error::new(ErrorKind::Unreachable, "opening a session").because(reason);
        Err(error.with_no_server())
    }

    /// Requests a reading of the source by [`ServerList::follow`], or the end of
    /// [`ServerList::report_is_due`], without waiting for it.
    pub fn request_refresh(&self) {
        self.0.wanted.notify_one();
    }

    /// Reads the source in each of its intervals, and whenever it is requested. Returns if there is
    /// no source.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn follow(self) {
        let Origin::Source(source, _) = &self.0.origin else { return };
        loop {
            let interval = source.interval().max(MIN_GAP);
            let _first = select(pin!(clock::sleep(interval)), pin!(self.0.wanted.notified())).await;
            self.refresh().await;
        }
    }

    fn take(&self, servers: &Servers) {
        *self.fault() = None;
        let origin = &self.0.origin;
        if self.0.has_warned.swap(false, Ordering::Relaxed) {
            tracing::info!(?origin, "the list of servers is read again");
        }
        let is_change = **self.0.servers.borrow() != **servers;
        // The same report shows nothing new: a member that was not reachable is not tried again.
        if is_change || !self.is_of_ensemble() {
            self.0.servers.send_replace(servers.clone());
        }
        if is_change {
            tracing::info!(?origin, ?servers, "the list of servers");
        }
    }

    fn keep(&self, reason: String) {
        if !self.0.has_warned.swap(true, Ordering::Relaxed) {
            let (origin, servers) = (&self.0.origin, self.get());
            tracing::warn!(?origin, reason, ?servers, "no list of servers; the last one is used");
        }
        *self.fault() = Some(reason);
    }

    fn fault(&self) -> MutexGuard<'_, Option<String>> {
        self.0.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows where the list comes from.
impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed => f.write_str("the configuration"),
            Self::Source(source, _) => source.fmt(f),
            Self::Ensemble { .. } => f.write_str("the servers themselves"),
        }
    }
}

/// The servers of a source, each once and with its port; or the reason that they cannot be used.
fn checked(servers: &[String], check: &Check) -> Result<Servers, String> {
    let mut all: Vec<String> = Vec::with_capacity(servers.len());
    for server in servers {
        let server = check(server).map_err(|error| format!("{server:?}: {error}"))?;
        if !all.contains(&server) {
            all.push(server);
        }
    }
    if all.is_empty() {
        return Err("it names no server".to_owned());
    }
    Ok(all.into())
}

/// Two sessions with the same properties are equal whichever servers their store has.
impl PartialEq for ServerList {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ServerList {}

impl Default for ServerList {
    /// No servers.
    fn default() -> Self {
        Self::fixed(Vec::new())
    }
}

impl fmt::Debug for ServerList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.get().iter()).finish()
    }
}

#[cfg(test)]
mod tests;
