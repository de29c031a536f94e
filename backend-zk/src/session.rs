//! [`ZkStore`]: one session, as its application sees it.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use synod_core::clock::{self, Instant};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::{
    HandOver, Heartbeats, Outcome, Query, SessionEnd, SessionHandover, SessionId, SessionInfo,
    Status, Store, Txn, View, Watch,
};
use synod_core::task::{Task, spawn};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use crate::client::{Credentials, OneshotWatcher, SessionState, StateWatcher};
use crate::commit::commit;
use crate::connection::Connection;
use crate::ensemble;
use crate::error::{NO_TTL_NODES, Sort};
use crate::heartbeat::beat;
use crate::listing_cache::ListingCache;
use crate::watch_registry::WatchRegistry;

/// The kind of this store, in handovers of sessions.
pub(crate) const STORE: &str = "zookeeper";

/// One session with the servers.
pub(crate) struct ZkStore {
    info: SessionInfo,
    connection: Arc<Connection>,
    registry: Arc<WatchRegistry>,
    listings: ListingCache,
    states: StateWatcher,
    heart: Option<Task>,
    /// Follows the list of servers.
    _servers: Option<Task>,
    /// The time until which the session was certain to be alive when it was first closed. Locked
    /// during a close: a second close waits for the first.
    closing: Mutex<Option<Instant>>,
}

/// The way in which a list of servers is followed that the servers report.
pub(crate) struct Following {
    /// The watch of the list that was read last.
    pub(crate) watch: Option<OneshotWatcher>,
    pub(crate) is_encrypted: bool,
}

impl ZkStore {
    pub(crate) fn start(
        info: SessionInfo,
        connection: Arc<Connection>,
        (states, beats): (StateWatcher, Heartbeats),
        Following { watch, is_encrypted }: Following,
        listing_cache: bool,
    ) -> Self {
        let registry = WatchRegistry::new(connection.clone());
        let listings = ListingCache::new(registry.clone(), listing_cache);
        let release = Release {
            connection: connection.clone(),
            registry: registry.clone(),
            states: states.clone(),
        };
        let info = info.with_handover(Arc::new(release));
        let heart = Some(spawn(beat(connection.clone(), registry.clone(), states.clone(), beats)));
        let servers = info.servers.clone();
        let servers = if servers.is_of_ensemble() {
            let (connection, states) = (connection.clone(), states.clone());
            Some(spawn(ensemble::follow(connection, servers, states, watch, is_encrypted)))
        } else {
            (!servers.is_fixed()).then(|| spawn(servers.follow()))
        };
        let closing = Mutex::default();
        Self { info, connection, registry, listings, states, heart, _servers: servers, closing }
    }
}

/// Waits until the client has no session any more.
async fn over(mut states: StateWatcher) -> SessionState {
    let mut state = states.state();
    while !state.is_terminated() {
        state = states.changed().await;
    }
    state
}

/// Releases a session without its end.
struct Release {
    connection: Arc<Connection>,
    registry: Arc<WatchRegistry>,
    states: StateWatcher,
}

#[async_trait]
impl HandOver for Release {
    async fn hand_over(&self) -> Result<SessionHandover> {
        // Taken first: when the session is lost, the task of the heartbeats drops the client, which
        // ends the session.
        let client = self.connection.take();
        let client = client.ok_or_else(|| self.connection.lost("handing a session over"))?;
        self.connection.life.lose(SessionEnd::HandedOver);
        self.registry.end(SessionEnd::HandedOver);
        let Credentials { id, password, newest } = client.depart();
        // When the task has ended, its connection is closed.
        let _state = over(self.states.clone()).await;
        let id = SessionId::new(id.cast_unsigned());
        let handover = SessionHandover::new(STORE, id, client.session_timeout());
        let position = u64::try_from(newest).unwrap_or(0);
        Ok(handover.with_secret(password).with_position(position))
    }
}

#[async_trait]
impl Store for ZkStore {
    fn session(&self) -> &SessionInfo {
        &self.info
    }

    fn status(&self) -> watch::Receiver<Status> {
        self.connection.life.status()
    }

    async fn read(&self, query: Query) -> Result<View> {
        query.validate()?;
        let client = self.connection.client("read").map_err(|error| error.at(&query.path))?;
        let view = self.registry.read(&client, &query).await;
        let (view, _) =
            view.map_err(|trouble| trouble.translate("read", Sort::Read).or_at(&query.path))?;
        Ok(view)
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        query.validate_observed()?;
        let path = query.path.clone();
        self.registry.watch(query).await.map_err(|error| error.or_at(&path))
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        txn.validate(&self.info.limits).map_err(|error| match error.kind() {
            ErrorKind::Unsupported => error.because(NO_TTL_NODES),
            _ => error,
        })?;
        // The transaction was validated, so it has a first operation.
        commit(&self.connection, &self.listings, &txn)
            .await
            .map_err(|error| error.or_at(txn.ops[0].path()))
    }

    async fn close(&self) -> Result<()> {
        const DOING: &str = "close";
        let mut certain = self.closing.lock().await;
        if self.connection.is_ended() {
            return Ok(());
        }
        if let Some(until) = self.connection.life.until() {
            *certain = Some(until);
        }
        self.connection.life.lose(SessionEnd::Closed);
        self.registry.end(SessionEnd::Closed);
        // The session ends when the last reference to its client is dropped. Without a connection
        // the client searches for a server for seven fifths of the session's time to live, even if
        // the session is already lost by the clock of this process.
        drop(self.connection.take());
        let error = || Error::new(ErrorKind::Unreachable, DOING).with_unknown_effect();
        match timeout(self.info.ttl, over(self.states.clone())).await {
            // A server answered the request that ends the session.
            Ok(SessionState::Closed) => Ok(()),
            // A server refused the session: the client alone would not stop so early; see
            // `Connection::expired`.
            Ok(SessionState::Expired) if certain.is_some_and(|until| clock::now() < until) => {
                Ok(())
            }
            Ok(_) => Err(error().because("no server confirmed the end of the session")),
            Err(_) => Err(error().because("no server answered within the session's time to live")),
        }
    }
}

impl Drop for ZkStore {
    /// Lets the session expire at the servers; observers are notified now.
    fn drop(&mut self) {
        if self.connection.life.loss().is_none() {
            self.connection.abandon();
            self.connection.life.lose(SessionEnd::Closed);
            self.registry.end(SessionEnd::Closed);
        }
        // The task ends when the session's time is over.
        if let Some(heart) = self.heart.take() {
            heart.let_go();
        }
    }
}

impl fmt::Debug for ZkStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkStore")
            .field("session", &self.info.id)
            .field("status", &*self.connection.life.status().borrow())
            .finish_non_exhaustive()
    }
}
