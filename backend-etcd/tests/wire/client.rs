//! [`Client`]: makes random calls on a store, and records the results.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use synod_core::path::Path;
use synod_core::random::Random;
use synod_core::store::{
    Backend as _, End, Event, Expect, Lifetime, Query, SessionOptions, Store, Txn, Version, Watch,
};
use synod_etcd::EtcdBackend;
use tokio::time::{Instant, sleep, timeout};

use crate::judge::{Heard, Judge};
use crate::world::{TTL, lease, path};

/// The time by which a call may exceed the time to live.
const GRACE: Duration = Duration::from_secs(1);

pub(crate) struct Client {
    name: usize,
    random: Random,
    judge: Judge,
    backend: EtcdBackend,
    store: Option<Arc<dyn Store>>,
    watches: Vec<(Watch, Heard)>,
    /// The version that it last saw at each path.
    seen: BTreeMap<Path, Version>,
    /// The highest revision that its session knows of.
    latest: u64,
    calls: usize,
}

impl Client {
    pub(crate) fn new(name: usize, random: Random, judge: Judge, backend: EtcdBackend) -> Self {
        let (watches, seen) = (Vec::new(), BTreeMap::new());
        Self { name, random, judge, backend, store: None, watches, seen, latest: 0, calls: 0 }
    }

    pub(crate) async fn act(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step().await;
            self.listen();
            let pause = [1, 20, 500, 3_000][self.pick(4)];
            sleep(Duration::from_millis(self.random.below(pause))).await;
        }
    }

    fn pick(&self, of: u64) -> usize {
        usize::try_from(self.random.below(of)).unwrap_or(0)
    }

    async fn step(&mut self) {
        let Some(store) = self.live().await else { return };
        let began = Instant::now();
        let what = match self.random.below(10) {
            0 | 1 => self.create(&*store).await,
            2 | 3 => self.set(&*store).await,
            4 => self.delete(&*store).await,
            5 => self.several(&*store).await,
            6 => self.ticket(&*store).await,
            7 | 8 => self.read(&*store).await,
            _ => self.observe(&*store).await,
        };
        if began.elapsed() > TTL * 2 + GRACE {
            self.judge.breach(format!("{what} took {:?}", began.elapsed()));
        }
    }

    /// The session, or a new one if the session is lost.
    async fn live(&mut self) -> Option<Arc<dyn Store>> {
        if self.store.as_ref().is_some_and(|store| store.status().borrow().is_lost()) {
            self.judge.saw("a session that was lost");
            self.listen();
            self.leave();
        }
        if self.store.is_none() {
            let opened = self.backend.open(&SessionOptions::new(TTL)).await.ok()?;
            self.judge.session(lease(opened.session().id), opened.status());
            self.store = Some(opened.into());
            self.latest = 0;
        }
        self.store.clone()
    }

    fn node(&self) -> Path {
        path(["/d/a", "/d/b", "/d/a/x"][self.pick(3)])
    }

    fn value(&mut self) -> String {
        self.calls += 1;
        format!("{}.{}", self.name, self.calls)
    }

    async fn commit(&mut self, store: &dyn Store, txn: Txn, value: &str) {
        let outcome = store.commit(txn).await;
        self.judge.wrote(value, &outcome);
        let Some(commit) = outcome.ok().and_then(synod_core::store::Outcome::ok) else {
            return;
        };
        self.latest = self.latest.max(commit.revision.map_or(0, synod_core::store::Revision::get));
        for done in commit.results {
            if let Some(stat) = done.stat {
                self.seen.insert(done.path, stat.version);
            }
        }
    }

    async fn create(&mut self, store: &dyn Store) -> &'static str {
        let value = self.value();
        let lifetime =
            if self.random.below(2) == 0 { Lifetime::Session } else { Lifetime::Persistent };
        let txn = Txn::new().create(self.node(), value.clone(), lifetime);
        let txn =
            if self.random.below(2) == 0 { txn.look(Query::children(path("/d"))) } else { txn };
        self.commit(store, txn, &value).await;
        "a create"
    }

    async fn set(&mut self, store: &dyn Store) -> &'static str {
        let (node, value) = (self.node(), self.value());
        let expect = match self.seen.get(&node) {
            Some(version) if self.random.below(2) == 0 => Expect::Version(*version),
            _ => Expect::Any,
        };
        self.commit(store, Txn::new().set(node, value.clone(), expect), &value).await;
        "a set"
    }

    /// The effect of a delete shows in the reads and events of all clients.
    async fn delete(&mut self, store: &dyn Store) -> &'static str {
        let node = self.node();
        let deleted = store.commit(Txn::new().delete(node, Expect::Any)).await;
        if let Ok(synod_core::store::Outcome::Committed(commit)) = deleted {
            let at = commit.revision.map_or(0, synod_core::store::Revision::get);
            self.latest = self.latest.max(at);
        }
        "a delete"
    }

    async fn several(&mut self, store: &dyn Store) -> &'static str {
        let value = self.value();
        let txn = Txn::new().set(path("/d/b"), value.clone(), Expect::Any).create(
            path("/d/c"),
            "",
            Lifetime::Session,
        );
        let txn = if self.random.below(2) == 0 {
            Txn::new()
                .set(path("/d/b"), value.clone(), Expect::Any)
                .check(path("/d/b"), Expect::Any)
        } else {
            txn
        };
        self.commit(store, txn, &value).await;
        "a transaction"
    }

    async fn ticket(&mut self, store: &dyn Store) -> &'static str {
        let value = self.value();
        let at = path(&format!("/q/{value}-"));
        let txn = Txn::new().create_sequential(at.clone(), value.clone(), Lifetime::Session);
        self.commit(store, txn, &value).await;
        if self.random.below(2) == 0 {
            let _either = store.commit(Txn::new().delete(at, Expect::Any)).await.is_ok();
        }
        "a ticket"
    }

    fn query(&self) -> Query {
        match self.random.below(4) {
            0 => Query::node(self.node()),
            1 => Query::children(path("/d")),
            2 => Query::children(path("/q")),
            _ => Query::subtree(path("/d")),
        }
    }

    async fn read(&mut self, store: &dyn Store) -> &'static str {
        let local = self.random.below(3) == 0;
        let query = if local { self.query().local() } else { self.query() };
        // A local read may return an earlier state, but not one from before what this session
        // knows.
        let floor = if local { self.latest } else { self.judge.now() };
        if let Ok(view) = store.read(query.clone()).await {
            self.judge.read(&query, &view, floor);
            self.latest = self.latest.max(view.revision.get());
            for node in view.nodes {
                if let Some(stat) = node.stat {
                    self.seen.insert(node.path, stat.version);
                }
            }
        }
        "a read"
    }

    async fn observe(&mut self, store: &dyn Store) -> &'static str {
        let (query, floor) = (self.query(), self.judge.now());
        if let Ok((view, watch)) = store.watch(query.clone()).await {
            self.judge.read(&query, &view, floor);
            self.judge.saw("a watch");
            let from = view.revision.get();
            self.latest = self.latest.max(from);
            let heard =
                Heard { query, from, changes: Vec::new(), missed: 0, over: false, until: 0 };
            self.watches.push((watch, heard));
        }
        if self.watches.len() > 3 {
            let (_watch, heard) = self.watches.remove(0);
            self.judge.heard(Heard { over: true, ..heard });
        }
        "an observation"
    }

    /// Takes the events of the watches.
    fn listen(&mut self) {
        for (watch, heard) in &mut self.watches {
            while let Some(event) = watch.try_next() {
                match event {
                    Event::Changed(change) => {
                        let at = change.revision.map_or(0, synod_core::store::Revision::get);
                        self.latest = self.latest.max(at);
                        heard.changes.push(change);
                    }
                    Event::Resync => {
                        self.judge.saw("a resync");
                        heard.missed = self.judge.now();
                    }
                    Event::Ended(End::SessionOver(_)) => heard.over = true,
                    Event::Ended(end) => {
                        heard.over = true;
                        self.judge.breach(format!("{:?} ended: {end:?}", heard.query));
                    }
                }
            }
        }
    }

    fn leave(&mut self) {
        self.store = None;
        for (_watch, heard) in std::mem::take(&mut self.watches) {
            self.judge.heard(Heard { over: true, ..heard });
        }
    }

    /// Takes the remaining events, and closes the session. No fault is active now.
    pub(crate) async fn end(mut self) {
        let is_lost = |store: &Arc<dyn Store>| store.status().borrow().is_lost();
        if self.store.as_ref().is_some_and(is_lost) {
            self.listen();
            self.leave();
        }
        let Some(store) = self.store.clone() else { return };
        // A broken stream is noticed and opened again within two thirds of the time to live.
        let until = self.judge.now();
        sleep(TTL * 2).await;
        self.listen();
        if is_lost(&store) {
            self.leave();
        } else {
            for (_watch, heard) in std::mem::take(&mut self.watches) {
                self.judge.heard(Heard { until, ..heard });
            }
            match timeout(TTL * 2, store.close()).await {
                Ok(Ok(())) => self.judge.saw("a session that was closed"),
                Ok(Err(error)) => self.judge.breach(format!("close: {error}")),
                Err(_elapsed) => self.judge.breach("close does not end"),
            }
        }
    }
}
