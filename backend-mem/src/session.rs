//! [`MemStore`]: a session in the store in memory.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{Either, select};
use synod_core::clock::{self, Instant};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::{
    End, Feed, HandOver, Life, Limits, Outcome, Query, SessionEnd, SessionHandover, SessionId,
    SessionInfo, Status, Store, Txn, View, Watch,
};
use synod_core::task::{Task, spawn};
use tokio::sync::watch;

use crate::event_queue::EventQueue;
use crate::link::{Direction, Link};
use crate::shared::Shared;
use crate::watches::WatchId;
use crate::world::SessionOver;

/// The kind of this store, in handovers of sessions.
pub(crate) const STORE: &str = "memory";

/// One session on a store in memory.
pub(crate) struct MemStore {
    info: SessionInfo,
    shared: Arc<Shared>,
    link: Arc<Link>,
    life: Arc<Life<WatchId>>,
    _heart: Task,
}

/// Removes a watch at the store when its reader drops it.
struct Unwatch {
    shared: Arc<Shared>,
    life: Arc<Life<WatchId>>,
    watch: WatchId,
}

impl MemStore {
    /// Creates the session `id`, which the store opened for a request that was sent at `sent`.
    pub(crate) fn start(
        shared: Arc<Shared>,
        (link, queue): (Arc<Link>, Arc<EventQueue>),
        id: SessionId,
        ttl: Duration,
        sent: Instant,
    ) -> Self {
        let life = Arc::new(Life::new(ttl, sent, Duration::ZERO));
        let (to_store, to_session) = (beat(shared.clone(), link.clone(), life.clone(), id), queue);
        let heart = spawn(async move {
            // Ends with the session, because `carry` never ends.
            let _first = select(pin!(to_store), pin!(to_session.carry())).await;
        });
        let mut limits = Limits::default();
        limits.missing_features = shared.missing_features.to_vec();
        let release = Release { life: life.clone(), id };
        let info = SessionInfo::new(id, ttl, limits).with_handover(Arc::new(release));
        Self { info, shared, link, life, _heart: heart }
    }

    /// Sends a request across the link and returns the answer. `Err` in time if there is none.
    async fn ask<T: Send>(
        &self,
        doing: &'static str,
        request: impl FnOnce(&Shared, Instant) -> Result<T, SessionOver> + Send,
    ) -> Result<T> {
        if let Some(why) = self.life.loss() {
            return Err(why.error(doing));
        }
        // A loop of calls that are answered immediately must not block the thread.
        tokio::task::coop::consume_budget().await;
        if !self.crosses(Direction::ToStore).await {
            return Err(self.unanswered(doing));
        }
        let answer = request(&self.shared, clock::now());
        if !self.crosses(Direction::ToSession).await {
            return Err(self.unanswered(doing).with_unknown_effect());
        }
        answer.map_err(|SessionOver| {
            self.life.lose(SessionEnd::Expired);
            SessionEnd::Expired.error(doing)
        })
    }

    /// Waits until a message has crossed the link. Returns `false` if it did not arrive while the
    /// session is alive, and within its time to live.
    async fn crosses(&self, way: Direction) -> bool {
        if self.link.is_clear() {
            return true;
        }
        let over = pin!(async {
            let limit = pin!(clock::sleep(self.info.ttl));
            let _first = select(limit, pin!(self.life.lost())).await;
        });
        matches!(select(pin!(self.link.cross(way)), over).await, Either::Left(_))
    }

    fn unanswered(&self, doing: &'static str) -> Error {
        match self.life.loss() {
            Some(why) => why.error(doing),
            None => Error::new(ErrorKind::Unreachable, doing)
                .because("the memory store did not answer within the session's time to live"),
        }
    }
}

#[async_trait]
impl Store for MemStore {
    fn session(&self) -> &SessionInfo {
        &self.info
    }

    fn status(&self) -> watch::Receiver<Status> {
        self.life.status()
    }

    async fn read(&self, query: Query) -> Result<View> {
        query.validate()?;
        let id = self.info.id;
        let path = query.path.clone();
        let read = self.ask("read", move |shared, now| shared.world().read(id, &query, now)).await;
        read.map_err(|error| error.or_at(&path))
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        query.validate_observed()?;
        let path = query.path.clone();
        let (feed, watch) =
            if query.once { Feed::once() } else { Feed::new(self.shared.buffers.events) };
        let (id, life) = (self.info.id, self.life.clone());
        let observe = move |shared: &Shared, now| {
            let (view, watch) = shared.world().watch(id, &query, feed.clone(), now)?;
            if query.once && view.node().is_none() {
                feed.end(End::Delivered);
            }
            life.keep(watch, feed);
            Ok((view, watch))
        };
        let observed = self.ask("watch", observe).await;
        let (view, id) = observed.map_err(|error| error.or_at(&path))?;
        let (shared, life) = (self.shared.clone(), self.life.clone());
        Ok((view, watch.with_guard(Unwatch { shared, life, watch: id })))
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        txn.validate(&self.info.limits)?;
        let id = self.info.id;
        let first = txn.ops[0].path().clone();
        let commit = move |shared: &Shared, now| {
            let mut world = shared.world();
            let before = world.next_end();
            let outcome = world.commit(id, txn, now);
            if world.next_end() < before {
                shared.sooner.notify_waiters();
            }
            outcome
        };
        self.ask("commit", commit).await.map_err(|error| error.or_at(&first))
    }

    async fn close(&self) -> Result<()> {
        let id = self.info.id;
        match self.life.loss() {
            None => {}
            // Lost by its own clock, or by a close that did not arrive: the store has not ended it
            // yet.
            Some(_) if self.shared.world().lives(id) => {
                return Err(Error::new(ErrorKind::Unreachable, "close")
                    .because("given up on this side; it ends with its time to live")
                    .with_unknown_effect());
            }
            Some(_) => return Ok(()),
        }
        let end = move |shared: &Shared, now| {
            shared.world().end(id, now);
            Ok(())
        };
        let closed = self.ask("close", end).await;
        self.life.lose(SessionEnd::Closed);
        match closed {
            // The client has lost the session in the meantime; that does not prove that the store
            // ended it.
            Err(error) if self.shared.world().lives(id) => Err(error.with_unknown_effect()),
            // The store has ended it, by this request or by its time to live.
            _ => Ok(()),
        }
    }
}

/// Releases a session without its end.
struct Release {
    life: Arc<Life<WatchId>>,
    id: SessionId,
}

#[async_trait]
impl HandOver for Release {
    async fn hand_over(&self) -> Result<SessionHandover> {
        self.life.lose(SessionEnd::HandedOver);
        Ok(SessionHandover::new(STORE, self.id, self.life.ttl()))
    }
}

impl Drop for MemStore {
    /// Lets the session expire at the store; observers are notified now.
    fn drop(&mut self) {
        self.life.lose(SessionEnd::Closed);
    }
}

impl Drop for Unwatch {
    fn drop(&mut self) {
        self.shared.world().unwatch(self.watch);
        self.life.forget(&self.watch);
    }
}

impl fmt::Debug for MemStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemStore")
            .field("session", &self.info.id)
            .field("status", &*self.life.status().borrow())
            .finish_non_exhaustive()
    }
}

/// Sends heartbeats, three per time to live, and advances the store's clock: any live session does
/// that for the whole store.
async fn beat(shared: Arc<Shared>, link: Arc<Link>, life: Arc<Life<WatchId>>, id: SessionId) {
    let third = life.ttl() / 3;
    while life.loss().is_none() {
        let sent = clock::now();
        let answer = pin!(async {
            link.cross(Direction::ToStore).await;
            let answer = shared.world().touch(id, clock::now());
            link.cross(Direction::ToSession).await;
            answer
        });
        match select(answer, pin!(keep_time(&shared, &life, sent + third))).await {
            Either::Left((Ok(()), _)) => life.renew(sent),
            Either::Left((Err(SessionOver), _)) => life.lose(SessionEnd::Expired),
            Either::Right(_) => life.suspend(),
        }
        keep_time(&shared, &life, sent + third).await;
    }
}

/// Waits until `until` or the end of the session's certain life, and processes expirations during
/// the wait.
async fn keep_time(shared: &Shared, life: &Life<WatchId>, until: Instant) {
    let until = life.until().map_or(until, |certain| until.min(certain));
    while clock::now() < until && life.loss().is_none() {
        let sooner = pin!(shared.sooner.notified());
        let next = shared.world().next_end().map_or(until, |end| end.min(until));
        let _first = select(pin!(clock::sleep_until(next)), sooner).await;
        shared.world().tick(clock::now());
    }
    if life.until().is_none_or(|certain| certain <= clock::now()) {
        life.lose(SessionEnd::Expired);
    }
}
