//! [`FileStore`]: one session, as its application sees it.

use std::fmt;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{Either, select};
use rusqlite::Connection;
use synod_core::clock::{self, Vigil};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::{
    End, Extension, Feed, Life, Limits, Outcome, Query, SessionEnd, SessionFiles, SessionId,
    SessionInfo, Status, Store, Txn, View, Watch,
};
use synod_core::task::{Task, spawn};
use tokio::sync::{oneshot, watch};

use crate::engine::Engine;
use crate::fault::Fault;
use crate::job::Call;
use crate::meta::Meta;
use crate::query::answer;
use crate::sessions::{self, Reason};
use crate::shared::{ReadJob, Shared};
use crate::writing::{SessionOver, Writing};

/// The number of events that a watch buffers.
const EVENTS: usize = 4_096;

/// One session on a directory.
pub(crate) struct FileStore {
    info: SessionInfo,
    engine: Arc<Engine>,
    life: Arc<Life>,
    _clock: Task,
}

/// Removes a watch when its reader drops it.
struct Unwatch {
    shared: Arc<Shared>,
    life: Arc<Life>,
    watch: u64,
}

/// Removes a watch whose view is not read yet, if its call is dropped.
struct Pending<'a> {
    shared: &'a Shared,
    watch: Option<u64>,
}

impl FileStore {
    /// Opens a session. `limit` is the time to wait for the turn.
    pub(crate) async fn open(
        engine: Arc<Engine>,
        ttl: Duration,
        lingers: bool,
        limit: Duration,
    ) -> Result<Self> {
        const OPENING: &str = "opening a session";
        let shared = &engine.0;
        let (opened, answer) = oneshot::channel();
        let opened = Arc::new(Mutex::new(Some(opened)));
        let of_session = Arc::downgrade(shared);
        let (call, claim, answered) = Call::new(OPENING, move |writing: &mut Writing<'_>| {
            let Some(shared) = of_session.upgrade() else { return Err(Fault::Gone) };
            let id = writing.open(shared.seat.id(), ttl, lingers)?;
            let opened = opened.clone();
            // With the commit, whether the opener still waits or not: else nobody would end it.
            writing.after.push(Box::new(move |_| {
                let opened = opened.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(opened) = opened {
                    shared.add_session(id, ttl, opened);
                }
            }));
            Ok(id)
        });
        shared.writes.push(Box::new(call));
        let both = pin!(async {
            let id = answered.await.unwrap_or_else(|_| Err(stopped(OPENING)))?;
            let life = answer.await.unwrap_or_else(|_| Err(stopped(OPENING)))?;
            Ok::<_, Error>((id, life))
        });
        let Ok(opened) = clock::timeout(limit, both).await else {
            let late = unanswered(shared, OPENING, limit);
            return Err(if claim.give_up() { late } else { late.with_unknown_effect() });
        };
        let (id, life): (SessionId, Arc<Life>) = opened?;
        let clock = spawn(keep_time(life.clone()));
        let of_session = Arc::downgrade(shared);
        let files = SessionFiles::new(move || match of_session.upgrade() {
            Some(shared) => shared.seat.copy_files(),
            None => Ok(Vec::new()),
        });
        let info = SessionInfo::new(id, ttl, Limits::default());
        let info = info.with_extension(Extension::new(Arc::new(files)));
        Ok(Self { info, engine, life, _clock: clock })
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.engine.0
    }

    /// Reads on a thread that may block, in one snapshot.
    async fn read_by<T: Send + 'static>(
        &self,
        doing: &'static str,
        read: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T> {
        self.read_after(doing, || Ok(()), read).await
    }

    /// Reads on a thread that may block, in one snapshot, which begins after `before`.
    async fn read_after<T: Send + 'static>(
        &self,
        doing: &'static str,
        before: impl FnOnce() -> io::Result<()> + Send + 'static,
        read: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T> {
        self.check(doing)?;
        let (id, (tell, answered)) = (self.info.id, oneshot::channel());
        let job: ReadJob = Box::new(move |db| {
            let result = before().map_err(Fault::from).and_then(|()| snapshot(db, id, read));
            let _received = tell.send(result).is_ok();
        });
        self.shared().reads.push(job);
        match self.wait(answered).await {
            Some(Ok(Ok(result))) => Ok(result),
            Some(Ok(Err(SessionOver))) => Err(self.over(doing)),
            Some(Err(fault)) => Err(fault.to_error(doing)),
            None => Err(self.unanswered(doing)),
        }
    }

    /// Writes in the turn.
    async fn write_by<T: Send + 'static>(
        &self,
        doing: &'static str,
        txn: Option<Arc<Txn>>,
        write: impl FnMut(&mut Writing<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T> {
        let (call, claim, answered) = Call::new(doing, write);
        let call = match txn {
            Some(txn) => call.durable_as(txn),
            None => call,
        };
        self.shared().writes.push(Box::new(call));
        match self.wait(answered).await {
            Some(result) => result,
            None if claim.give_up() => Err(self.unanswered(doing)),
            None => Err(self.unanswered(doing).with_unknown_effect()),
        }
    }

    /// Waits for an answer, but no longer than the session lives. `None` without one.
    async fn wait<T>(&self, answered: oneshot::Receiver<T>) -> Option<T> {
        let over = pin!(async {
            let limit = pin!(clock::sleep(self.info.ttl));
            let _first = select(limit, pin!(self.life.lost())).await;
        });
        match select(answered, over).await {
            Either::Left((answer, _)) => answer.ok(),
            Either::Right(_) => None,
        }
    }

    fn check(&self, doing: &'static str) -> Result<()> {
        self.life.loss().map_or(Ok(()), |why| Err(why.error(doing)))
    }

    fn over(&self, doing: &'static str) -> Error {
        self.life.lose(SessionEnd::Expired);
        SessionEnd::Expired.error(doing)
    }

    fn unanswered(&self, doing: &'static str) -> Error {
        match self.life.loss() {
            Some(why) => why.error(doing),
            None => unanswered(self.shared(), doing, self.info.ttl),
        }
    }
}

/// Reads in one snapshot, if the session has not ended.
fn snapshot<T>(
    db: &Connection,
    session: SessionId,
    read: impl FnOnce(&Connection) -> Result<T, Fault>,
) -> Result<Result<T, SessionOver>, Fault> {
    let snapshot = db.unchecked_transaction()?;
    if !sessions::lives(&snapshot, session)? {
        return Ok(Err(SessionOver));
    }
    read(&snapshot).map(Ok)
}

fn view(db: &Connection, query: &Query) -> Result<View, Fault> {
    answer(db, query, &Meta::read(db)?, None)
}

fn stopped(doing: &'static str) -> Error {
    Error::new(ErrorKind::Unreachable, doing).because("the store was closed meanwhile")
}

fn unanswered(shared: &Shared, doing: &'static str, limit: Duration) -> Error {
    let holder = shared.place.turn_holder();
    let who = holder.map_or_else(
        || "the disk, or another process, was too slow".to_owned(),
        |pid| format!("process {pid} has the turn to write: it may be stopped"),
    );
    Error::new(ErrorKind::Unreachable, doing).because(format!("no answer within {limit:?}: {who}"))
}

#[async_trait]
impl Store for FileStore {
    fn session(&self) -> &SessionInfo {
        &self.info
    }

    fn status(&self) -> watch::Receiver<Status> {
        self.life.status()
    }

    async fn read(&self, query: Query) -> Result<View> {
        query.validate()?;
        let path = query.path.clone();
        let read = self.read_by("read", move |db| view(db, &query)).await;
        read.map_err(|error| error.or_at(&path))
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        query.validate_observed()?;
        let path = query.path.clone();
        self.check("watch").map_err(|error| error.or_at(&path))?;
        let (feed, watch) = if query.once { Feed::once() } else { Feed::new(EVENTS) };
        let shared = self.shared();
        // Before the view, so that no change between the two is missed.
        let id = shared.watches.add(query.clone(), feed.clone());
        let mut pending = Pending { shared, watch: Some(id) };
        let once = query.once;
        let of_watch = Arc::downgrade(shared);
        let publish = move || of_watch.upgrade().map_or(Ok(()), |shared| shared.publish_filter());
        let viewed = self.read_after("watch", publish, move |db| view(db, &query)).await;
        let view = viewed.map_err(|error| error.or_at(&path))?;
        pending.watch = None;
        if once && view.node().is_none() {
            feed.end(End::Delivered);
        }
        self.life.keep(id, feed);
        if shared.watches.set_view(id, view.revision) {
            shared.seat.wake();
        }
        let unwatch = Unwatch { shared: shared.clone(), life: self.life.clone(), watch: id };
        Ok((view, watch.with_guard(unwatch)))
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        txn.validate(&self.info.limits)?;
        let first = txn.ops[0].path().clone();
        let (id, txn) = (self.info.id, Arc::new(txn));
        let write = {
            let txn = txn.clone();
            move |writing: &mut Writing<'_>| writing.commit(id, &txn)
        };
        let committed = match self.check("commit") {
            Ok(()) => self.write_by("commit", Some(txn), write).await,
            Err(error) => Err(error),
        };
        match committed {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(SessionOver)) => Err(self.over("commit").or_at(&first)),
            Err(error) => Err(error.or_at(&first)),
        }
    }

    async fn close(&self) -> Result<()> {
        let id = self.info.id;
        // A lost session may still be in the database: this ends it.
        let (call, claim, closed) =
            Call::new("close", move |writing: &mut Writing<'_>| writing.end(id, Reason::Closed));
        // Not lost by the event of its end: it is closed.
        self.shared().forget_session(id);
        self.shared().writes.push(Box::new(call));
        let closed = clock::timeout(self.info.ttl, closed).await;
        self.life.lose(SessionEnd::Closed);
        let error = match closed {
            Ok(Ok(Ok(()))) => return Ok(()),
            // The sessions of a directory that is gone are gone with it.
            Ok(Ok(Err(_))) if self.shared().is_gone() => return Ok(()),
            Ok(Ok(Err(error))) => error,
            Ok(Err(_)) | Err(_) => {
                let _given_up = claim.give_up();
                unanswered(self.shared(), "close", self.info.ttl)
            }
        };
        self.shared().drop_session(id, self.info.ttl, Some(self.engine.clone()));
        Err(error.with_unknown_effect())
    }
}

impl Drop for FileStore {
    /// Leaves the session to end after its time to live; observers are notified now.
    fn drop(&mut self) {
        let is_closed = self.life.loss() == Some(SessionEnd::Closed);
        self.life.lose(SessionEnd::Closed);
        if !is_closed {
            let (id, engine) = (self.info.id, self.engine.clone());
            self.shared().drop_session(id, self.info.ttl, Some(engine));
        }
    }
}

impl Drop for Unwatch {
    fn drop(&mut self) {
        self.shared.watches.remove(self.watch);
        self.life.forget(&self.watch);
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(watch) = self.watch {
            self.shared.watches.remove(watch);
        }
    }
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStore")
            .field("session", &self.info.id)
            .field("status", &*self.life.status().borrow())
            .finish_non_exhaustive()
    }
}

/// Suspends a session whose heartbeats are late, and ends it when it is not certain any more.
async fn keep_time(life: Arc<Life>) {
    let mut vigil = Vigil::new();
    while let Some(until) = life.until() {
        let _counted = vigil.resumed();
        let now = clock::now();
        if until <= now {
            life.lose(SessionEnd::Expired);
            return;
        }
        // Two heartbeats are missing by then.
        let late = until.checked_sub(life.ttl() / 3).unwrap_or(until);
        if late <= now {
            life.suspend();
            let over = pin!(vigil.sleep_until(until));
            let mut status = life.status();
            drop(status.borrow_and_update());
            let _first = select(over, pin!(status.changed())).await;
        } else {
            vigil.sleep_until(late).await;
        }
    }
}
