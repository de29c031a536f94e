//! [`UserMistake`]: planted mistakes of users of a store and of a client's connection to it, to
//! test the tests.

mod alone;

use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::cluster::Cluster;
use async_trait::async_trait;
use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::clock::{self, Instant};
use synod_core::error::{Effect, Error, ErrorKind, Result};
use synod_core::store::{
    Backend, Event, Op, Outcome, Query, RejectReason, Rejected, SessionInfo, SessionOptions,
    Status, Store, Txn, View, Watch, certain_until,
};
use tokio::sync::watch;

use alone::Alone;

synod_core::mistakes! {
    /// A mistake of the user of a store, or of the connection to it.
    pub enum UserMistake {
        BreakMeansUnsent = "takes a write whose connection broke at once for one that was not sent",
        AbsentMeansUnsent = "takes a lost write that is not to be seen for one that will never be",
        StuckMeansUnsent = "takes a write for unsent while heartbeats are answered and nothing else is",
        DropMeansUnsent = "takes a write that it gave up waiting for for one that does nothing",
        AloneMeansOutage = "takes it for an outage of the store when no server answers it",
        ResyncUntold = "does not report that a watch cannot resume where it was",
        RefusedMeansOutrun = "takes a write that the store refuses for one that lost its race",
        NameEndTrusted = "takes every sibling of its ticket for a ticket, by the end of its name",
        SameIdsAgain = "draws the same ids again when its process crashed and starts again",
        KindTrusted = "goes by the kind of a change where its copy knows better",
        OldCheckTrusted = "checks its session, lets others go on, and acts",
        WatchdogTrusted = "is certain of its session as long as its task of heartbeats finds nothing else",
        ClosesAtItsEnd = "lets go of its client when its work ends, and not when that is dropped",
        LastAnswerIsNewest = "takes the answer that arrives last for that of the latest state",
        WallClockTrusted = "goes by its own wall clock, and what others wrote by theirs",
    }
}

impl UserMistake {
    /// Wraps the connection to a store with the mistake, if it is a mistake of the connection.
    pub(crate) fn around(
        self,
        inner: Arc<dyn Backend>,
        cluster: &Cluster,
        actor: u64,
    ) -> Arc<dyn Backend> {
        Arc::new(Mistaken { inner, user_mistake: self, cluster: cluster.clone(), actor })
    }
}

/// The clients that the mistake keeps alive, each with its process and the life of that process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(Arc<Mutex<Vec<(Life, Client)>>>);

/// A process, and the number of its restarts.
type Life = (u64, u32);

impl Kept {
    pub(crate) fn keep(&self, life: Life, client: &Client) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((life, client.clone()));
    }

    pub(crate) fn let_go(&self, life: Life) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<_> = kept.extract_if(.., |(of, _)| *of == life).collect();
        drop(kept);
        drop(gone);
    }

    pub(crate) fn clear(&self) {
        let gone = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        drop(gone);
    }
}

/// A connection to a store, with a mistake in it.
#[derive(Debug)]
struct Mistaken {
    inner: Arc<dyn Backend>,
    user_mistake: UserMistake,
    cluster: Cluster,
    actor: u64,
}

/// A session over such a connection.
struct MistakenStore {
    inner: Box<dyn Store>,
    user_mistake: UserMistake,
    alone: Option<Alone>,
}

#[async_trait]
impl Backend for Mistaken {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        let inner = self.inner.open(options).await?;
        let alone = (self.user_mistake == UserMistake::AloneMeansOutage)
            .then(|| Alone::new(&*inner, self.cluster.clone(), self.actor));
        Ok(Box::new(MistakenStore { inner, user_mistake: self.user_mistake, alone }))
    }
}

#[async_trait]
impl Store for MistakenStore {
    fn session(&self) -> &SessionInfo {
        self.inner.session()
    }

    fn status(&self) -> watch::Receiver<Status> {
        self.alone.as_ref().map_or_else(|| self.inner.status(), Alone::status)
    }

    async fn read(&self, query: Query) -> Result<View> {
        self.inner.read(query).await
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        let (view, watch) = self.inner.watch(query).await?;
        if self.user_mistake == UserMistake::ResyncUntold {
            let news = |event: Event| Some(event).filter(|it| !matches!(it, Event::Resync));
            return Ok((view, watch.map(news)));
        }
        Ok((view, watch))
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        let (sent, copy) = (clock::now(), txn.clone());
        let answer = pin!(self.inner.commit(txn));
        let Either::Left((outcome, _)) = select(answer, pin!(self.wait_if_stuck(sent))).await
        else {
            return Err(unsent_error());
        };
        let Err(error) = outcome else { return outcome };
        let refused = matches!(error.kind(), ErrorKind::Backend | ErrorKind::Denied);
        if let (UserMistake::RefusedMeansOutrun, true, Some(op)) =
            (self.user_mistake, refused, copy.ops.first())
        {
            return Ok(Outcome::Rejected(Rejected::new(
                0,
                op.path().clone(),
                RejectReason::OtherVersion,
            )));
        }
        let took = clock::now().saturating_duration_since(sent);
        let unsent = match (self.user_mistake, error.effect()) {
            (UserMistake::BreakMeansUnsent, Effect::Unknown) => {
                took < SOON && self.wait_until_back().await
            }
            (UserMistake::AbsentMeansUnsent, Effect::Unknown) => self.is_absent(&copy).await,
            _ => false,
        };
        if unsent {
            return Err(unsent_error());
        }
        Err(error)
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

/// A shorter time counts as immediate.
const SOON: Duration = Duration::from_millis(10);

/// Duration of a reconnect without a further fault.
const BACK: Duration = Duration::from_millis(40);

fn unsent_error() -> Error {
    Error::new(ErrorKind::Unreachable, "commit").because("it was not sent")
}

impl MistakenStore {
    /// Waits until a heartbeat that was sent later than `sent` is answered, while earlier requests
    /// are not. Waits for ever if this mistake is not planted.
    async fn wait_if_stuck(&self, sent: Instant) {
        if self.user_mistake != UserMistake::StuckMeansUnsent {
            pending::<()>().await;
        }
        let asked = self.inner.read(Query::node(synod_core::path::Path::root()).local());
        let answered = async {
            let later = certain_until(sent, self.inner.session().ttl, Duration::ZERO);
            let mut status = self.inner.status();
            while status.borrow_and_update().until().is_some_and(|until| until < later) {
                if status.changed().await.is_err() {
                    return pending().await;
                }
            }
            clock::sleep(BACK).await;
        };
        if let Either::Left(_) = select(pin!(asked), pin!(answered)).await {
            pending::<()>().await;
        }
    }

    /// Returns `true` if the store answers again, as if nothing had happened.
    async fn wait_until_back(&self) -> bool {
        let until = clock::now() + BACK;
        while clock::now() < until {
            let query = Query::node(synod_core::path::Path::root());
            if clock::timeout(BACK, self.inner.read(query)).await.is_ok_and(|view| view.is_ok()) {
                return clock::now() < until;
            }
            clock::sleep(SOON / 2).await;
        }
        false
    }

    /// Returns `true` if a read does not show the node that a transaction creates.
    async fn is_absent(&self, txn: &Txn) -> bool {
        let created = txn.ops.iter().find_map(|op| match op {
            Op::Create { path, sequential: false, .. } => Some(path.clone()),
            _ => None,
        });
        let Some(path) = created else { return false };
        for _ in 0..20 {
            match self.inner.read(Query::node(path.clone())).await {
                Ok(view) => return view.into_node().is_none(),
                Err(error) if error.kind() == ErrorKind::Unreachable => clock::sleep(SOON).await,
                Err(_) => return false,
            }
        }
        false
    }
}

impl fmt::Debug for MistakenStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}
