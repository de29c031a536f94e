//! [`Connection`]: the connection to the servers, shared by all parts of one session.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use synod_core::clock;
use synod_core::error::{Error, Result};
use synod_core::path::Path;
use synod_core::store::{Life, Revision, SessionEnd};

use crate::client::{Client, StateWatcher, ZkError, ZkStat};
use crate::error::Trouble;
use crate::guard::{Guards, Vacated};
use crate::options::{Access, Heartbeat, ZkOptions};
use crate::races::Races;

/// The client, the session's life, and the revision up to which the session has seen
/// changes.
pub(crate) struct Connection {
    client: Mutex<Option<Arc<Client>>>,
    abandoned: Mutex<Option<Arc<Client>>>,
    pub(crate) life: Life,
    pub(crate) access: Access,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) guards: Guards,
    pub(crate) vacated: Vacated,
    pub(crate) races: Races,
    /// The number of nodes whose answer is not too long, whatever their data.
    pub(crate) few: usize,
    seen: AtomicU64,
    mine: Mutex<BTreeSet<Path>>,
    births: AtomicBool,
    ended: AtomicBool,
    connections: Mutex<Connections>,
    /// The last connection whose server had applied every change that the session was notified of
    /// before.
    caught_up: AtomicU64,
}

/// The length of the largest node, with its stat: by default, servers take no request that is longer than a mebibyte.
const NODE: usize = (1 << 20) + 1_024;

/// How often the connection was seen to change.
struct Connections {
    states: StateWatcher,
    seen: u64,
}

impl Connection {
    pub(crate) fn new(
        client: Arc<Client>,
        life: Life,
        access: Access,
        options: &ZkOptions,
    ) -> Self {
        let mut states = client.state_watcher();
        let _as_it_is = states.state();
        let alive = life.status();
        client.set_certain(move || alive.borrow().until()?.checked_duration_since(clock::now()));
        let client = Mutex::new(Some(client));
        Self {
            client,
            abandoned: Mutex::default(),
            life,
            access,
            heartbeat: options.heartbeat,
            guards: Guards::default(),
            vacated: Vacated::default(),
            races: Races::default(),
            few: (options.max_answer / NODE).max(1),
            seen: AtomicU64::new(0),
            mine: Mutex::default(),
            births: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            connections: Mutex::new(Connections { states, seen: 0 }),
            caught_up: AtomicU64::new(0),
        }
    }

    /// The client, for sending.
    ///
    /// # Errors
    ///
    /// If the session is over: then nothing is sent.
    pub(crate) fn client(&self, doing: &'static str) -> Result<Arc<Client>> {
        let client = self.held().clone();
        match (self.life.loss(), client) {
            (None, Some(client)) => Ok(client),
            _ => Err(self.lost(doing)),
        }
    }

    /// The error for a missing answer: the session is over.
    pub(crate) fn lost(&self, doing: &'static str) -> Error {
        self.life.loss().unwrap_or(SessionEnd::Closed).error(doing)
    }

    /// Removes the client. It ends the session when the last reference is dropped.
    pub(crate) fn take(&self) -> Option<Arc<Client>> {
        self.held().take()
    }

    /// Keeps the client, so that dropping it does not end the session now.
    pub(crate) fn abandon(&self) {
        *self.abandoned.lock().unwrap_or_else(PoisonError::into_inner) = self.take();
    }

    /// The client of a session that was abandoned.
    pub(crate) fn abandoned(&self) -> Option<Arc<Client>> {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn held(&self) -> MutexGuard<'_, Option<Arc<Client>>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for an answer while the session is alive.
    ///
    /// This bounds every call: answers arrive in the order of the requests, so a missing answer
    /// also holds back those to the heartbeats, and the session is lost within its time.
    pub(crate) async fn answer<T>(
        &self,
        answer: impl Future<Output = Result<T, ZkError>>,
    ) -> Result<T, Trouble> {
        let answered = match select(pin!(answer), pin!(self.life.lost())).await {
            Either::Left((answered, _)) => answered,
            Either::Right(_) => Err(ZkError::SessionExpired),
        };
        match &answered {
            Err(ZkError::SessionExpired | ZkError::ClientClosed) => self.expired(),
            Err(ZkError::AuthFailed) => self.life.lose(SessionEnd::Denied),
            Err(ZkError::Abandoned) => self.life.lose(SessionEnd::Expired),
            _ => {}
        }
        match self.life.loss() {
            Some(why) => Err(Trouble::Lost(why)),
            None => answered.map_err(Trouble::Said),
        }
    }

    /// Called when the client reports that the session is over.
    ///
    /// It does so when a server refuses the session, and also by its own clock, after it found no
    /// server for seven fifths of the session's time. That is later than the session is certain to
    /// be alive; so while the session is certain, the report comes from a server.
    pub(crate) fn expired(&self) {
        if self.life.until().is_some_and(|until| clock::now() < until) {
            self.ended.store(true, Ordering::Relaxed);
        }
        self.life.lose(SessionEnd::Expired);
    }

    /// Whether a server reported the end of the session, and so of its ephemeral nodes.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Records that the session has seen a node with this stat.
    pub(crate) fn see(&self, stat: &ZkStat) -> Revision {
        let newest = stat.czxid.max(stat.mzxid).max(stat.pzxid);
        let newest = u64::try_from(newest).unwrap_or(0);
        self.seen.fetch_max(newest, Ordering::Relaxed);
        Revision::new(newest)
    }

    /// Records a ticket that the session created. No other client uses its name, so it is never a
    /// container.
    pub(crate) fn know(&self, path: &Path) {
        /// A ticket that was forgotten costs one more request.
        const MOST: usize = 10_000;

        let mut mine = self.mine.lock().unwrap_or_else(PoisonError::into_inner);
        if mine.len() >= MOST {
            mine.clear();
        }
        mine.insert(path.clone());
    }

    /// Whether the session created a ticket with this path.
    pub(crate) fn knows(&self, path: &Path) -> bool {
        self.mine.lock().unwrap_or_else(PoisonError::into_inner).contains(path)
    }

    /// Forgets a node that the session deleted.
    pub(crate) fn forget(&self, path: &Path) {
        self.mine.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    }

    /// Records that the servers return the stat of a create in a transaction of several.
    pub(crate) fn hear_births(&self) {
        self.births.store(true, Ordering::Relaxed);
    }

    /// Whether the servers have ever returned it.
    pub(crate) fn hears_births(&self) -> bool {
        self.births.load(Ordering::Relaxed)
    }

    /// The number of the current connection. The loss of a connection is reported before any
    /// answer on the next one.
    pub(crate) fn connection(&self) -> u64 {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if connections.states.changed().now_or_never().is_some() {
            connections.seen += 1;
        }
        connections.seen
    }

    /// Whether the server of this connection may lag behind an event of an earlier one. When the
    /// client reconnects it requires a server that has everything it read, but not everything that
    /// it was notified of.
    pub(crate) fn may_be_behind(&self, connection: u64) -> bool {
        self.caught_up.load(Ordering::Relaxed) < connection
    }

    /// Records that a `sync` sent on this connection was answered.
    pub(crate) fn caught_up(&self, connection: u64) {
        self.caught_up.fetch_max(connection, Ordering::Relaxed);
    }

    /// The revision up to which the session has certainly seen all changes.
    pub(crate) fn seen(&self) -> Revision {
        Revision::new(self.seen.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("life", &self.life).finish_non_exhaustive()
    }
}
