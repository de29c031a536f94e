//! [`EtcdStore`]: one session, as its application sees it.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::{Either, select, try_join};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::random::Random;
use synod_core::store::{
    End, Event, Feature, Feed, HandOver, Life, Limits, Outcome, Query, SessionEnd, SessionHandover,
    SessionInfo, Status, Store, Txn, View, Watch,
};
use synod_core::task::{Task, spawn};
use tokio::sync::{Mutex, watch};

use crate::endpoints::Endpoints;
use crate::heartbeat::{beat, revoke};
use crate::history::History;
use crate::lease;
use crate::member_list;
use crate::reader::{Reader, unsure};
use crate::watches::Watches;
use crate::writer::Writer;

/// The maximum number of operations in a transaction. A create in its own directory needs three of
/// the 128 conditions that etcd accepts (the node is missing, nothing is below it, the directory is
/// not ephemeral); a delete needs two, and one more if its parent is deleted too; the rest is for
/// their ancestors.
const OPERATIONS: usize = 40;

/// The kind of this store, in handovers of sessions.
pub(crate) const STORE: &str = "etcd";

/// One session on an etcd cluster.
pub(crate) struct EtcdStore {
    info: SessionInfo,
    lease: i64,
    life: Arc<Life<i64>>,
    reader: Arc<Reader>,
    writer: Writer,
    watches: Watches,
    /// The server confirmed that the lease is gone. Locked during a close: a second close waits for
    /// the first.
    closing: Mutex<bool>,
    _heart: Task,
    /// Follows the list of the members.
    _servers: Option<Task>,
}

impl EtcdStore {
    /// The session of `lease`, and the task that keeps it alive.
    pub(crate) fn start(
        endpoints: Arc<Endpoints>,
        random: Random,
        (lease, life): (i64, Life<i64>),
        history: History,
    ) -> Self {
        let life = Arc::new(life);
        let mut limits = Limits::default();
        limits.missing_features = vec![Feature::NumberedNames];
        limits.operations = OPERATIONS;
        let info = SessionInfo::new(lease::session(lease), life.ttl(), limits);
        let servers = endpoints.list().clone();
        let info = info.with_server(endpoints.server()).with_servers(servers.clone());
        let limit = endpoints.timeout().min(life.ttl());
        let reader = Arc::new(Reader::new(endpoints, history, limit));
        let watches = Watches::start(reader.clone(), life.clone(), random.clone());
        let writer = Writer::new(reader.clone(), random, lease);
        let release = Release { life: life.clone(), reader: reader.clone(), lease };
        let info = info.with_handover(Arc::new(release));
        let heart = spawn(beat(life.clone(), lease, reader.clone()));
        let servers = if servers.is_of_ensemble() {
            Some(spawn(member_list::follow(reader.clone())))
        } else {
            (!servers.is_fixed()).then(|| spawn(servers.follow()))
        };
        let closing = Mutex::default();
        Self {
            info,
            lease,
            life,
            reader,
            writer,
            watches,
            closing,
            _heart: heart,
            _servers: servers,
        }
    }

    /// Runs a future as long as the session is alive.
    async fn alive<T>(
        &self,
        doing: &'static str,
        write: bool,
        work: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        if let Some(why) = self.life.loss() {
            return Err(why.error(doing));
        }
        match select(pin!(self.life.lost()), pin!(work)).await {
            Either::Left((why, _)) => {
                let error = why.error(doing);
                Err(if write { unsure(error) } else { error })
            }
            Either::Right((Err(error), _)) if error.kind() == ErrorKind::SessionLost => {
                self.life.lose(SessionEnd::Expired);
                Err(error)
            }
            Either::Right((result, _)) => result,
        }
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        let (opening, watch) = self.watches.open(&query);
        let (opened, mut begun) = try_join(opening, self.reader.begin(&query)).await?;
        let created = opened.revision.max(0);
        // A concurrent write makes the two revisions differ.
        let busy = begun.revision() != created;
        while begun.revision() < created {
            // The read was answered before the watch started.
            self.reader.saw(created);
            begun = self.reader.begin(&query).await?;
        }
        let view = self.reader.finish(&query, begun).await?;
        if busy && view.node().is_some() {
            self.watches.double(&opened);
        }
        if query.is_until_gone() && view.node().is_none() {
            let (feed, over) = Feed::once();
            feed.end(End::Delivered);
            return Ok((view, over));
        }
        let (shown, reader) = (view.revision, self.reader.clone());
        let watch = watch.map(move |event| match event {
            Event::Changed(change) if change.revision.is_some_and(|at| at <= shown) => None,
            Event::Changed(change) => {
                let at = change.revision.unwrap_or_default().get();
                reader.saw(i64::try_from(at).unwrap_or(i64::MAX));
                Some(Event::Changed(change))
            }
            other => Some(other),
        });
        Ok((view, watch))
    }
}

#[async_trait]
impl Store for EtcdStore {
    fn session(&self) -> &SessionInfo {
        &self.info
    }

    fn status(&self) -> watch::Receiver<Status> {
        self.life.status()
    }

    async fn read(&self, query: Query) -> Result<View> {
        query.validate()?;
        let read = self.alive("read", false, self.reader.read(&query)).await;
        read.map_err(|error| error.or_at(&query.path))
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        query.validate_observed()?;
        let path = query.path.clone();
        let observed = self.alive("watch", false, self.watch(query)).await;
        observed.map_err(|error| error.or_at(&path))
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        txn.validate(&self.info.limits)?;
        // The transaction was validated, so it has a first operation.
        let first = txn.ops[0].path().clone();
        let committed = self.alive("commit", true, self.writer.commit(&txn)).await;
        committed.map_err(|error| error.or_at(&first))
    }

    async fn close(&self) -> Result<()> {
        let mut ended = self.closing.lock().await;
        if *ended {
            return Ok(());
        }
        if self.life.loss() == Some(SessionEnd::HandedOver) {
            return Ok(());
        }
        // This comes first, because no client may consider the session alive while the server ends
        // it. A lost session may still be alive at the server: only its certainty was lost.
        self.life.lose(SessionEnd::Closed);
        let revoked = revoke(&self.reader.endpoints, self.lease, self.reader.limit).await;
        *ended = revoked.is_ok();
        revoked.map_err(Error::with_unknown_effect)
    }
}

/// Releases a session without its end.
struct Release {
    life: Arc<Life<i64>>,
    reader: Arc<Reader>,
    lease: i64,
}

#[async_trait]
impl HandOver for Release {
    async fn hand_over(&self) -> Result<SessionHandover> {
        // Keep-alives end with this; a late one only extends the lease.
        self.life.lose(SessionEnd::HandedOver);
        let position = u64::try_from(self.reader.history.reached()).unwrap_or(0);
        let handover = SessionHandover::new(STORE, lease::session(self.lease), self.life.ttl());
        Ok(handover.with_position(position))
    }
}

impl Drop for EtcdStore {
    /// Lets the lease expire at the server; watches are notified now.
    fn drop(&mut self) {
        self.life.lose(SessionEnd::Closed);
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore")
            .field("session", &self.info.id)
            .field("status", &*self.life.status().borrow())
            .finish_non_exhaustive()
    }
}
