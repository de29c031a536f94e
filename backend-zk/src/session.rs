//! [`ZkStore`]: one session, as its application sees it.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use synod_core::clock::{self, Instant};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::{
    Heartbeats, Outcome, Query, SessionEnd, SessionInfo, Status, Store, Txn, View, Watch,
};
use synod_core::task::{Task, spawn};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use crate::client::{SessionState, StateWatcher};
use crate::commit::commit;
use crate::connection::Connection;
use crate::error::{NO_TTL_NODES, Sort};
use crate::heartbeat::beat;
use crate::hub::Hub;

/// One session with the servers.
pub(crate) struct ZkStore {
    info: SessionInfo,
    wire: Arc<Connection>,
    hub: Arc<Hub>,
    states: StateWatcher,
    heart: Option<Task>,
    /// Until when the session was certain to be alive when it was first closed. Locked for the
    /// length of a close: a second close waits for the first.
    closing: Mutex<Option<Instant>>,
}

impl ZkStore {
    pub(crate) fn start(
        info: SessionInfo,
        wire: Arc<Connection>,
        states: StateWatcher,
        beats: Heartbeats,
    ) -> Self {
        let hub = Hub::new(wire.clone(), states.clone());
        let heart = Some(spawn(beat(wire.clone(), hub.clone(), states.clone(), beats)));
        Self { info, wire, hub, states, heart, closing: Mutex::default() }
    }

    /// Waits until the client has ended the session.
    async fn over(&self) -> SessionState {
        let mut states = self.states.clone();
        let mut state = states.state();
        while !state.is_terminated() {
            state = states.changed().await;
        }
        state
    }
}

#[async_trait]
impl Store for ZkStore {
    fn session(&self) -> &SessionInfo {
        &self.info
    }

    fn status(&self) -> watch::Receiver<Status> {
        self.wire.life.status()
    }

    async fn read(&self, query: Query) -> Result<View> {
        query.validate()?;
        let client = self.wire.client("read").map_err(|error| error.at(&query.path))?;
        let view = self.hub.read(&client, &query).await;
        let (view, _) =
            view.map_err(|said| said.translate("read", Sort::Read).or_at(&query.path))?;
        Ok(view)
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        query.validate_observed()?;
        let path = query.path.clone();
        self.hub.watch(query).await.map_err(|error| error.or_at(&path))
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        txn.validate(&self.info.limits).map_err(|error| match error.kind() {
            ErrorKind::Unsupported => error.because(NO_TTL_NODES),
            _ => error,
        })?;
        // It was validated, so there is a first operation.
        commit(&self.hub, &txn).await.map_err(|error| error.or_at(txn.ops[0].path()))
    }

    async fn close(&self) -> Result<()> {
        const DOING: &str = "close";
        let mut certain = self.closing.lock().await;
        if self.wire.is_ended() {
            return Ok(());
        }
        if let Some(until) = self.wire.life.until() {
            *certain = Some(until);
        }
        self.wire.life.lose(SessionEnd::Closed);
        self.hub.end(SessionEnd::Closed);
        // The session is ended when its client is dropped everywhere. Without a connection the client
        // continues to look for a server for seven fifths of the session's time, even if the
        // session was given up by our own clock.
        drop(self.wire.take());
        let error = || Error::new(ErrorKind::Unreachable, DOING).with_unknown_effect();
        match timeout(self.info.ttl, self.over()).await {
            // A server answered the request that ends the session.
            Ok(SessionState::Closed) => Ok(()),
            // A server refused the session: the client by itself would not give up so early; see
            // `Connection::expired`.
            Ok(SessionState::Expired) if certain.is_some_and(|until| clock::now() < until) => {
                Ok(())
            }
            Ok(_) => Err(error().because("no server said that the session is over")),
            Err(_) => Err(error().because("no server answered within the session's time to live")),
        }
    }
}

impl Drop for ZkStore {
    /// The servers are left to expire the session; observers are notified now.
    fn drop(&mut self) {
        if self.wire.life.loss().is_none() {
            self.wire.abandon();
            self.wire.life.lose(SessionEnd::Closed);
            self.hub.end(SessionEnd::Closed);
        }
        // The task ends when the session's time does.
        if let Some(heart) = self.heart.take() {
            heart.let_go();
        }
    }
}

impl fmt::Debug for ZkStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkStore")
            .field("session", &self.info.id)
            .field("status", &*self.wire.life.status().borrow())
            .finish_non_exhaustive()
    }
}
