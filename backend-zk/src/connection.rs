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

use crate::access_lists::AccessLists;
use crate::client::{Client, StateWatcher, ZkError, ZkStat};
use crate::containers::{Guards, Vacated};
use crate::error::Trouble;
use crate::options::{Heartbeat, ZkOptions};
use crate::recent_rejections::RecentRejections;

/// The client, the session's life, and the revision up to which the session has seen all changes.
pub(crate) struct Connection {
    client: Mutex<Option<Arc<Client>>>,
    abandoned: Mutex<Option<Arc<Client>>>,
    pub(crate) life: Life,
    pub(crate) access: Arc<AccessLists>,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) guards: Guards,
    pub(crate) vacated: Vacated,
    pub(crate) rejections: RecentRejections,
    /// The maximum number of nodes in a request whose response is not too long, whatever their
    /// data.
    pub(crate) max_nodes: usize,
    seen: AtomicU64,
    tickets: Mutex<BTreeSet<Path>>,
    create_stats: AtomicBool,
    ended: AtomicBool,
    generations: Mutex<Generations>,
    /// The last connection whose server had applied every change that the session was notified of
    /// before.
    caught_up: AtomicU64,
}

/// The length of the largest node, with its stat: by default, servers reject requests of more than
/// a mebibyte.
const NODE: usize = (1 << 20) + 1_024;

/// The number of changes of the connection that were observed.
struct Generations {
    states: StateWatcher,
    current: u64,
}

impl Connection {
    pub(crate) fn new(
        client: Arc<Client>,
        life: Life,
        access: Arc<AccessLists>,
        options: &ZkOptions,
    ) -> Self {
        let mut states = client.state_watcher();
        let _current = states.state();
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
            rejections: RecentRejections::default(),
            max_nodes: (options.max_answer / NODE).max(1),
            seen: AtomicU64::new(0),
            tickets: Mutex::default(),
            create_stats: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            generations: Mutex::new(Generations { states, current: 0 }),
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
    /// also delays the answers to the heartbeats, and the session is lost within its time to live.
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
            None => answered.map_err(Trouble::Zk),
        }
    }

    /// Records the client's report that the session is over.
    ///
    /// The client reports this when a server refuses the session, and also by its own clock, after
    /// it found no server for seven fifths of the session's time to live. At that time the session
    /// is no longer certain to be alive. So while the session is certain, the report comes from a
    /// server.
    pub(crate) fn expired(&self) {
        if self.life.until().is_some_and(|until| clock::now() < until) {
            self.ended.store(true, Ordering::Relaxed);
        }
        self.life.lose(SessionEnd::Expired);
    }

    /// Returns `true` if a server reported the end of the session, and so of its ephemeral nodes.
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
    pub(crate) fn add_ticket(&self, path: &Path) {
        /// A removed ticket costs one more request.
        const MAX_TICKETS: usize = 10_000;

        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        if tickets.len() >= MAX_TICKETS {
            tickets.clear();
        }
        tickets.insert(path.clone());
    }

    /// Returns `true` if the session created a ticket with this path.
    pub(crate) fn has_ticket(&self, path: &Path) -> bool {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner).contains(path)
    }

    /// Forgets a node that the session deleted.
    pub(crate) fn remove_ticket(&self, path: &Path) {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    }

    /// Records that the servers return the stat of a create in a transaction of several.
    pub(crate) fn record_create_stats(&self) {
        self.create_stats.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the servers have ever returned the stat of a create in a transaction of
    /// several.
    pub(crate) fn returns_create_stats(&self) -> bool {
        self.create_stats.load(Ordering::Relaxed)
    }

    /// The number of the current connection. The loss of a connection is reported before any
    /// answer on the next one.
    pub(crate) fn generation(&self) -> u64 {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        if generations.states.changed().now_or_never().is_some() {
            generations.current += 1;
        }
        generations.current
    }

    /// Returns `true` if the server of this connection may be behind an event of an earlier one.
    /// When the client reconnects, it requires a server that has everything it read, but not
    /// everything that it was notified of.
    pub(crate) fn may_be_behind(&self, generation: u64) -> bool {
        self.caught_up.load(Ordering::Relaxed) < generation
    }

    /// Records that a `sync` sent on this connection was answered.
    pub(crate) fn caught_up(&self, generation: u64) {
        self.caught_up.fetch_max(generation, Ordering::Relaxed);
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
