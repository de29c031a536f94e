//! The client side of a session on a simulated store.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use synod_core::clock::{self, Instant};
use synod_core::error::{Effect, Error, ErrorKind, Result};
use synod_core::store::{
    Backend, End, Feed, Life, Limits, Outcome, Query, SessionEnd, SessionInfo, SessionOptions,
    Status, Store, Txn, View, Watch, clamp_ttl,
};
use synod_core::task::{Task, spawn};
use tokio::sync::watch;

use crate::cluster::Cluster;
use crate::cluster::answer::Answer;
use crate::cluster::client_end::ClientEnd;
use crate::cluster::heartbeat::beat;
use crate::cluster::link::Ask;
use crate::cluster::site::Site;

/// The number of events that a watch keeps for a slow reader.
const EVENTS: usize = 1_024;

/// The shortest and the longest session of a simulated store.
const TTLS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3_600));

/// Opens the sessions of one process on a simulated store.
#[derive(Clone, Debug)]
pub struct ClusterBackend {
    cluster: Cluster,
    actor: u64,
}

/// One session.
struct ClusterStore {
    info: SessionInfo,
    way: Arc<ClientEnd>,
    life: Arc<Life>,
    _heart: Task,
}

/// Removes a watch when its reader drops it.
struct Unwatch {
    way: Arc<ClientEnd>,
    life: Arc<Life>,
    watch: u64,
}

impl Cluster {
    /// The backend through which a process uses this store.
    pub fn backend(&self, actor: u64) -> ClusterBackend {
        ClusterBackend { cluster: self.clone(), actor }
    }
}

#[async_trait]
impl Backend for ClusterBackend {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        const DOING: &str = "opening a session";
        let ttl = clamp_ttl(options.ttl, TTLS.0, TTLS.1)?;
        let way = ClientEnd::new(self.cluster.clone(), self.actor);
        let sent = clock::now();
        let told = way.connect(Ask::Open(ttl));
        let Some(told) = told else { return Err(Error::new(ErrorKind::Unreachable, DOING)) };
        match clock::timeout(ttl, told).await {
            Ok(Ok(Answer::Opened(id, ttl))) => {
                let mut limits = Limits::default();
                limits.missing_features = self.cluster.state().personality.missing_features();
                let info = SessionInfo::new(id, ttl, limits);
                Ok(Box::new(ClusterStore::start(way, info, sent)))
            }
            _ => Err(Error::new(ErrorKind::Unreachable, DOING).because("no server answered")),
        }
    }
}

impl ClusterStore {
    fn start(way: Arc<ClientEnd>, info: SessionInfo, sent: Instant) -> Self {
        let life = Arc::new(Life::new(info.ttl, sent, Duration::ZERO));
        let heart = spawn(beat(way.clone(), life.clone(), sent));
        Self { info, way, life, _heart: heart }
    }

    /// Sends a request, and waits until the answer arrives or the connection breaks.
    async fn ask(&self, doing: &'static str, ask: Ask) -> Result<Answer> {
        if let Some(why) = self.life.loss() {
            return Err(why.error(doing));
        }
        let writes = matches!(ask, Ask::Commit(_) | Ask::Close);
        let Some(told) = self.way.send(ask) else {
            return Err(Error::new(ErrorKind::Unreachable, doing).because("no connection"));
        };
        match told.await {
            Ok(Answer::Broken) | Err(_) => {
                let error = match self.life.loss() {
                    Some(why) => why.error(doing),
                    None => Error::new(ErrorKind::Unreachable, doing)
                        .because("the connection broke before an answer came"),
                };
                Err(if writes { error.with_unknown_effect() } else { error })
            }
            Ok(Answer::Over) => {
                self.way.over.store(true, Ordering::Relaxed);
                self.life.lose(SessionEnd::Expired);
                Err(SessionEnd::Expired.error(doing))
            }
            Ok(Answer::Refused(kind, effect)) => {
                let error = Error::new(kind, doing).because("a planned refusal");
                Err(if effect == Effect::None { error } else { error.with_unknown_effect() })
            }
            Ok(answer) => Ok(answer),
        }
    }
}

#[async_trait]
impl Store for ClusterStore {
    fn session(&self) -> &SessionInfo {
        &self.info
    }

    fn status(&self) -> watch::Receiver<Status> {
        self.life.status()
    }

    async fn read(&self, query: Query) -> Result<View> {
        query.validate()?;
        match self.ask("read", Ask::Read(query)).await? {
            Answer::View(view, _) => Ok(view),
            other => Err(unexpected("read", &other)),
        }
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        query.validate_observed()?;
        let small = self.way.cluster.with_decisions(|decisions| {
            let room = decisions.fires(Site::SmallBuffer, self.way.actor, 2)?;
            usize::try_from(room).ok()
        });
        let tells_once = self.way.cluster.state().personality.tells_once();
        let (once, until_gone) = (query.once && tells_once, query.is_until_gone());
        let (feed, watch) = if once { Feed::once() } else { Feed::new(small.unwrap_or(EVENTS)) };
        match self.ask("watch", Ask::Watch(query, feed.clone())).await? {
            Answer::Observing(view, number, _) => {
                if (once || until_gone) && view.node().is_none() {
                    feed.end(End::Delivered);
                }
                self.life.keep(number, feed);
                let (way, life) = (self.way.clone(), self.life.clone());
                Ok((view, watch.with_guard(Unwatch { way, life, watch: number })))
            }
            other => Err(unexpected("watch", &other)),
        }
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        txn.validate(&self.info.limits)?;
        match self.ask("commit", Ask::Commit(txn)).await? {
            Answer::Outcome(outcome, _) => Ok(outcome),
            other => Err(unexpected("commit", &other)),
        }
    }

    async fn close(&self) -> Result<()> {
        if self.life.loss().is_none() {
            let closed = self.ask("close", Ask::Close).await;
            self.life.lose(SessionEnd::Closed);
            match closed {
                Ok(_) => self.way.over.store(true, Ordering::Relaxed),
                Err(_) if self.way.over.load(Ordering::Relaxed) => {}
                Err(error) => return Err(error),
            }
        }
        // Lost by the client's clock, or by a failed close: only a server knows whether the session
        // has ended.
        if self.way.over.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unreachable, "close")
            .because("no server confirmed the end of the session; it ends with its time to live")
            .with_unknown_effect())
    }
}

impl Drop for ClusterStore {
    /// Lets the session expire at the store; observers are notified now.
    fn drop(&mut self) {
        self.life.lose(SessionEnd::Closed);
    }
}

impl Drop for Unwatch {
    fn drop(&mut self) {
        self.way.cluster.touch(|state, _| {
            state.link(self.way.id).watching.remove(&self.watch);
        });
        self.life.forget(&self.watch);
    }
}

impl fmt::Debug for ClusterStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterStore")
            .field("session", &self.info.id)
            .field("status", &*self.life.status().borrow())
            .finish_non_exhaustive()
    }
}

fn unexpected(doing: &'static str, answer: &Answer) -> Error {
    Error::new(ErrorKind::Backend, doing).because(format!("the server said: {answer}"))
}
