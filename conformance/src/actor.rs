//! [`Actor`]: a session whose calls must be answered. [`Watcher`]: a watch that must be notified.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use synod_core::error::{Error, Result};
use synod_core::path::Path;
use synod_core::store::{
    Change, Commit, End, Event, Expect, Kind, Lifetime, Node, OpResult, Outcome, Query, Rejected,
    SessionEnd, SessionId, Stat, Status, Store, Txn, View, Watch,
};
use tokio::time::timeout;

/// One session. The case fails if one of its calls does not end in time.
#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) store: Arc<dyn Store>,
    patience: Duration,
}

impl Actor {
    pub(crate) fn new(store: Box<dyn Store>, patience: Duration) -> Self {
        Self { store: Arc::from(store), patience }
    }

    pub(crate) fn id(&self) -> SessionId {
        self.store.session().id
    }

    /// The negotiated TTL.
    pub(crate) fn ttl(&self) -> Duration {
        self.store.session().ttl
    }

    pub(crate) fn status(&self) -> Status {
        *self.store.status().borrow()
    }

    /// Waits until the session is lost, and returns the reason.
    pub(crate) async fn lost(&self) -> SessionEnd {
        let mut status = self.store.status();
        let waiting = async {
            loop {
                if let Status::Lost { reason } = *status.borrow_and_update() {
                    return reason;
                }
                status.changed().await.expect("a store reports the loss before it ends");
            }
        };
        self.in_time("the loss of a session", self.ttl() + self.patience, waiting).await
    }

    async fn in_time<T>(&self, what: &str, limit: Duration, work: impl Future<Output = T>) -> T {
        let done = timeout(limit, work).await;
        done.unwrap_or_else(|_elapsed| panic!("{what}: no end within {limit:?}"))
    }

    /// Commits; the call may fail, but must end.
    pub(crate) async fn attempt(&self, txn: Txn) -> Result<Outcome> {
        self.in_time("commit", self.patience, self.store.commit(txn)).await
    }

    /// Reads; the call may fail, but must end.
    pub(crate) async fn ask(&self, query: Query) -> Result<View> {
        self.in_time("read", self.patience, self.store.read(query)).await
    }

    /// Commits a transaction that must be applied.
    pub(crate) async fn commit(&self, txn: Txn) -> Commit {
        let shown = brief(&txn);
        match self.attempt(txn).await {
            Ok(Outcome::Committed(commit)) => commit,
            Ok(Outcome::Rejected(no)) => {
                panic!("{shown} was rejected: operation {}, {no}", no.index)
            }
            Err(error) => panic!("{shown} failed: {}", text_of(&error)),
        }
    }

    /// Commits a transaction that must be rejected.
    pub(crate) async fn rejected(&self, txn: Txn) -> Rejected {
        let shown = brief(&txn);
        match self.attempt(txn).await {
            Ok(Outcome::Rejected(no)) => no,
            Ok(Outcome::Committed(_)) => panic!("{shown} was committed"),
            Err(error) => panic!("{shown} failed: {}", text_of(&error)),
        }
    }

    /// Reads; the read must be answered.
    pub(crate) async fn read(&self, query: Query) -> View {
        let shown = format!("{:?} of {}", query.scope, query.path);
        match self.ask(query).await {
            Ok(view) => view,
            Err(error) => panic!("reading {shown} failed: {}", text_of(&error)),
        }
    }

    pub(crate) async fn watch(&self, query: Query) -> (View, Watcher) {
        let observing = self.in_time("watch", self.patience, self.store.watch(query)).await;
        match observing {
            Ok((view, watch)) => (view, Watcher { watch, patience: self.patience }),
            Err(error) => panic!("observe failed: {}", text_of(&error)),
        }
    }

    pub(crate) async fn close(&self) {
        let closing = self.in_time("close", self.patience, self.store.close()).await;
        closing.expect("a session can be closed");
    }

    pub(crate) async fn get(&self, path: &Path) -> Option<Node> {
        let view = self.read(Query::node(path)).await;
        assert!(view.nodes.len() <= 1, "one node was asked for: {view:?}");
        view.into_node()
    }

    /// The data of the node, as text.
    pub(crate) async fn text(&self, path: &Path) -> Option<String> {
        self.get(path).await.map(|node| text(&node))
    }

    pub(crate) async fn exists(&self, path: &Path) -> bool {
        self.get(path).await.is_some()
    }

    pub(crate) async fn children(&self, path: &Path) -> Vec<Node> {
        self.read(Query::children(path)).await.nodes
    }

    /// The names of the children.
    pub(crate) async fn names(&self, path: &Path) -> Vec<String> {
        names(&self.read(Query::children(path).names_only()).await)
    }

    pub(crate) async fn make(
        &self,
        path: &Path,
        data: impl Into<Bytes>,
        lifetime: Lifetime,
    ) -> Stat {
        stat(self.commit(Txn::new().create(path, data, lifetime)).await)
    }

    pub(crate) async fn create(&self, path: &Path, data: impl Into<Bytes>) -> Stat {
        self.make(path, data, Lifetime::Persistent).await
    }

    pub(crate) async fn ephemeral(&self, path: &Path) -> Stat {
        self.make(path, "", Lifetime::Session).await
    }

    pub(crate) async fn set(&self, path: &Path, data: impl Into<Bytes>) -> Stat {
        stat(self.commit(Txn::new().set(path, data, Expect::Any)).await)
    }

    /// Creates the node, or sets it if it exists.
    pub(crate) async fn make_or_set(&self, path: &Path, data: impl Into<Bytes>) -> Stat {
        if self.exists(path).await {
            self.set(path, data).await
        } else {
            self.create(path, data).await
        }
    }

    pub(crate) async fn delete(&self, path: &Path) {
        let _done = self.commit(Txn::new().delete(path, Expect::Any)).await;
    }

    /// Creates a sequential node whose path starts with this one.
    pub(crate) async fn draw(&self, path: &Path, lifetime: Lifetime) -> OpResult {
        let commit = self.commit(Txn::new().create_sequential(path, "", lifetime)).await;
        only(commit.results)
    }
}

/// A watch whose events must arrive in time.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) watch: Watch,
    patience: Duration,
}

impl Watcher {
    /// The next event, which must arrive.
    pub(crate) async fn next(&mut self, waiting_for: &str) -> Event {
        let patience = self.patience;
        let told = timeout(patience, self.watch.next())
            .await
            .unwrap_or_else(|_elapsed| panic!("no event for {waiting_for} within {patience:?}"));
        told.unwrap_or_else(|| panic!("the watch was over, waiting for {waiting_for}"))
    }

    /// Waits for a change for which `found` is true, or for a resync.
    pub(crate) async fn hears(
        &mut self,
        of: &str,
        mut found: impl FnMut(&Change) -> bool,
    ) -> Heard {
        loop {
            match self.next(of).await {
                Event::Changed(change) if found(&change) => return Heard::Told(change),
                Event::Changed(_) => {}
                Event::Resync => return Heard::Missed,
                Event::Ended(end) => panic!("the watch ended, waiting for {of}: {end:?}"),
            }
        }
    }

    /// Like [`Watcher::hears`], but also returns when a watch for one event has ended.
    pub(crate) async fn hears_or_ends(&mut self, of: &str, found: impl Fn(&Change) -> bool) {
        loop {
            match self.next(of).await {
                Event::Changed(change) if !found(&change) => {}
                Event::Changed(_) | Event::Resync => return,
                Event::Ended(End::Delivered) => {
                    assert!(self.watch.next().await.is_none(), "no event follows the end");
                    return;
                }
                Event::Ended(end) => panic!("the watch ended, waiting for {of}: {end:?}"),
            }
        }
    }

    /// Waits until a change of this path of any kind is reported, or may have been missed.
    pub(crate) async fn hears_of(&mut self, path: &Path) -> Heard {
        let parent = path.parent();
        let of = path.to_string();
        self.hears(&of, |change| {
            change.path == *path
                || (change.kind == Kind::Children && Some(&change.path) == parent.as_ref())
        })
        .await
    }

    /// The events up to the first one for this path, or up to a resync, including it.
    pub(crate) async fn up_to(&mut self, path: &Path) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let event = self.next(path.as_str()).await;
            let over = match &event {
                Event::Changed(change) => change.path == *path,
                Event::Resync => true,
                Event::Ended(end) => panic!("the watch ended, waiting for {path}: {end:?}"),
            };
            events.push(event);
            if over {
                return events;
            }
        }
    }

    /// The events up to the end, and the end.
    pub(crate) async fn rest(&mut self) -> (Vec<Event>, End) {
        let mut events = Vec::new();
        loop {
            match self.next("its end").await {
                Event::Ended(end) => return (events, end),
                event => events.push(event),
            }
        }
    }
}

/// The result of waiting for an event.
#[derive(Debug)]
pub(crate) enum Heard {
    Told(Change),
    /// Events may have been missed.
    Missed,
}

pub(crate) fn text(node: &Node) -> String {
    String::from_utf8_lossy(&node.data).into_owned()
}

pub(crate) fn names(view: &View) -> Vec<String> {
    view.nodes.iter().map(|node| node.path.name().to_owned()).collect()
}

/// An error with its causes.
pub(crate) fn text_of(error: &Error) -> String {
    let mut shown = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        shown = format!("{shown}: {error}");
        cause = error.source();
    }
    shown
}

/// The stat in the result of a transaction of one operation, which always has it.
pub(crate) fn stat(commit: Commit) -> Stat {
    only(commit.results).stat.expect("a single create or set returns the stat")
}

pub(crate) fn only<T>(things: Vec<T>) -> T {
    let [thing]: [T; 1] = things
        .try_into()
        .unwrap_or_else(|things: Vec<T>| panic!("{} instead of one", things.len()));
    thing
}

/// A transaction as it appears in a message: without its data.
fn brief(txn: &Txn) -> String {
    const SHOWN: usize = 4;
    let ops = txn.ops.iter().take(SHOWN).map(|op| {
        let shown = format!("{op:?}");
        let verb = shown.split(' ').next().unwrap_or_default().to_lowercase();
        format!("{verb} {}", op.path())
    });
    let ops = ops.collect::<Vec<_>>().join(", ");
    let more = if txn.ops.len() > SHOWN { ", ..." } else { "" };
    format!("[{ops}{more}]")
}
