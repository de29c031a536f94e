//! [`Gate`]: a layer between a client and its store that affects all calls, unlike a script of
//! single faults: it refuses them, never answers them, delays their answers, and counts them.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{
    Backend, Change, Commit, Event, Freshness, Kind, Node, Outcome, Query, Revision, Scope,
    Sequence, SessionEnd, SessionInfo, SessionOptions, Status, Store, Txn, View, Watch, Window,
};
use synod_core::task::{self, Task};
use synod_testkit::fault::Verb;
use tokio::sync::watch;

/// A gate in front of a store. Clones are the same gate.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    backend: Arc<dyn Backend>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    way: watch::Sender<Way>,
    /// The number of answers that have been held back so far.
    held: watch::Sender<usize>,
    calls: watch::Sender<BTreeMap<Verb, usize>>,
    answers: watch::Sender<BTreeMap<Verb, usize>>,
    /// A node that is added to every view.
    stranger: Mutex<Option<Path>>,
    /// A container in every listing of its parent, with the sequence in its name.
    container: Mutex<Option<Path>>,
    /// For each kind of call, the number of calls that are answered. Later calls are executed, but
    /// their answers are held back.
    holding: watch::Sender<BTreeMap<Verb, usize>>,
    blind: AtomicBool,
    starved: AtomicBool,
    garbles: AtomicBool,
    /// `true` if watches lose changes and report the loss.
    forgetful: AtomicBool,
    /// `true` if watches lose changes without reporting that.
    mute: AtomicBool,
    /// The server's status of sessions that can be lost is not forwarded.
    frozen: watch::Sender<bool>,
    /// A node of which watches report only the removal, merged with its creation.
    brief: Mutex<Option<Path>>,
    /// The number of subtrees that were read or observed.
    subtrees: AtomicUsize,
    /// The number of directories that were listed or observed.
    lists: AtomicUsize,
    /// `true` if sessions opened from now on can be reported as lost: [`Gate::lose`].
    losing: AtomicBool,
    /// The number of calls that still pass before the process ends, if it must end.
    passing: Mutex<Option<usize>>,
    dead: watch::Sender<bool>,
    told: Mutex<Vec<watch::Sender<Status>>>,
}

/// The treatment of a call by the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Open,
    /// The request is not sent, and the caller gets [`ErrorKind::Unreachable`].
    Shut,
    /// The request is not sent, and the call is never answered. Only closing passes.
    Silent,
    /// The call happens, and its answer is held back.
    Holding,
}

#[derive(Debug)]
struct Gated {
    store: Box<dyn Store>,
    shared: Arc<Shared>,
    /// The status that is reported until another one arrives.
    first: watch::Sender<Status>,
    /// Forwards the server's status.
    relay: Option<Task>,
}

impl Gate {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        let shared = Shared {
            way: watch::Sender::new(Way::Open),
            held: watch::Sender::new(0),
            calls: watch::Sender::default(),
            answers: watch::Sender::default(),
            stranger: Mutex::default(),
            container: Mutex::default(),
            holding: watch::Sender::default(),
            blind: AtomicBool::new(false),
            starved: AtomicBool::new(false),
            garbles: AtomicBool::new(false),
            forgetful: AtomicBool::new(false),
            mute: AtomicBool::new(false),
            frozen: watch::Sender::new(false),
            brief: Mutex::default(),
            subtrees: AtomicUsize::new(0),
            lists: AtomicUsize::new(0),
            losing: AtomicBool::new(false),
            passing: Mutex::default(),
            dead: watch::Sender::new(false),
            told: Mutex::default(),
        };
        Self { backend, shared: Arc::new(shared) }
    }

    /// Sets the treatment of calls from now on.
    pub(crate) fn set(&self, way: Way) {
        self.shared.way.send_replace(way);
    }

    /// Waits until this number of answers has been held back.
    pub(crate) async fn held(&self, answers: usize) {
        let mut held = self.shared.held.subscribe();
        let all = held.wait_for(|held| *held >= answers).await.is_ok();
        assert!(all, "the gate stands as long as this one");
    }

    /// Returns the number of calls of this kind that have been made.
    pub(crate) fn count(&self, verb: Verb) -> usize {
        count(&self.shared.calls.borrow(), verb)
    }

    /// Returns the number of calls of this kind that have been answered.
    pub(crate) fn answers(&self, verb: Verb) -> usize {
        count(&self.shared.answers.borrow(), verb)
    }

    /// Waits until this number of calls of this kind has been made.
    pub(crate) async fn called(&self, verb: Verb, times: usize) {
        until(&self.shared.calls, verb, times).await;
    }

    /// Waits until this number of calls of this kind has been answered.
    pub(crate) async fn answered(&self, verb: Verb, times: usize) {
        until(&self.shared.answers, verb, times).await;
    }

    /// From now on reads that may lag show an empty store, until a latest read has shown the
    /// current state.
    pub(crate) fn blind_local_reads(&self) {
        self.shared.blind.store(true, Ordering::Relaxed);
    }

    /// From now on every view contains this node too, wherever it is.
    pub(crate) fn tell_of(&self, stranger: &Path) {
        let mut told = self.shared.stranger.lock().unwrap_or_else(PoisonError::into_inner);
        *told = Some(stranger.clone());
    }

    /// From now on listings contain this container, whose name ends in `0000000000`, as ZooKeeper's
    /// do: with a sequence, and without a stat.
    pub(crate) fn name_container(&self, path: &Path) {
        let mut named = self.shared.container.lock().unwrap_or_else(PoisonError::into_inner);
        *named = Some(path.clone());
    }

    /// Holds back the answers to calls of these kinds after the given number of calls; with no
    /// kind, releases the answers.
    pub(crate) fn hold_behind(&self, calls: impl IntoIterator<Item = (Verb, usize)>) {
        self.shared.holding.send_replace(calls.into_iter().collect());
    }

    /// Sets whether answers from now on omit everything optional that a store could return.
    pub(crate) fn garble(&self, garbles: bool) {
        self.shared.garbles.store(garbles, Ordering::Relaxed);
    }

    /// Sets whether watches from now on lose every change and report only the loss.
    pub(crate) fn lose_events(&self, loses: bool) {
        self.shared.forgetful.store(loses, Ordering::Relaxed);
    }

    /// Makes watches lose every change and report nothing, as if their events were delayed; or ends
    /// that.
    pub(crate) fn mute(&self, is_mute: bool) {
        self.shared.mute.store(is_mute, Ordering::Relaxed);
    }

    /// Makes watches report only the removal of this node, which is already gone.
    pub(crate) fn join_changes_of(&self, brief: &Path) {
        let mut joined = self.shared.brief.lock().unwrap_or_else(PoisonError::into_inner);
        *joined = Some(brief.clone());
    }

    /// Returns the number of subtrees that have been read or observed.
    pub(crate) fn subtrees(&self) -> usize {
        self.shared.subtrees.load(Ordering::Relaxed)
    }

    /// Returns the number of directories that have been listed or observed.
    pub(crate) fn lists(&self) -> usize {
        self.shared.lists.load(Ordering::Relaxed)
    }

    /// Makes sessions that are opened from now on report nothing after their first status, as if
    /// their task did not run.
    pub(crate) fn starve(&self) {
        self.shared.starved.store(true, Ordering::Relaxed);
    }
}

impl Gate {
    /// Stops sending after this number of further calls, as if the process had ended. Not even a
    /// close is sent.
    pub(crate) fn die_after(&self, calls: usize) {
        let mut passing = self.shared.passing.lock().unwrap_or_else(PoisonError::into_inner);
        *passing = Some(calls);
    }

    /// Sends calls again. Calls that were not sent are never answered.
    pub(crate) fn revive(&self) {
        *self.shared.passing.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Waits until a call was not sent because the process had ended.
    pub(crate) async fn died(&self) {
        let died = self.shared.dead.subscribe().wait_for(|dead| *dead).await.is_ok();
        assert!(died, "the gate stands as long as this one");
    }

    /// Sessions that are opened from now on can be reported as lost, and stay alive at the server:
    /// [`Gate::lose`].
    pub(crate) fn may_lose(&self) {
        self.shared.losing.store(true, Ordering::Relaxed);
    }

    /// Withholds the server's status from the holders of sessions that [can be
    /// lost](Self::may_lose); or ends that.
    pub(crate) fn freeze(&self, is_frozen: bool) {
        self.shared.frozen.send_replace(is_frozen);
    }

    /// Reports to the holders of the sessions opened so far that the store does not answer, until
    /// [`Gate::freeze`] ends that.
    pub(crate) fn suspend(&self) {
        self.freeze(true);
        for status in &*self.shared.told.lock().unwrap_or_else(PoisonError::into_inner) {
            status.send_if_modified(|status| {
                let Some(until) = status.until() else { return false };
                *status = Status::Suspended { until };
                true
            });
        }
    }

    /// Reports to the holders of the sessions opened so far that they are lost. The server keeps
    /// them for their TTL.
    pub(crate) fn lose(&self) {
        let mut told = self.shared.told.lock().unwrap_or_else(PoisonError::into_inner);
        for status in told.drain(..) {
            status.send_replace(Status::Lost { reason: SessionEnd::Expired });
        }
    }
}

async fn until(counts: &watch::Sender<BTreeMap<Verb, usize>>, verb: Verb, times: usize) {
    let mut counts = counts.subscribe();
    let so_many = counts.wait_for(|counts| count(counts, verb) >= times).await.is_ok();
    assert!(so_many, "the gate stands as long as this one");
}

fn count(calls: &BTreeMap<Verb, usize>, verb: Verb) -> usize {
    calls.get(&verb).copied().unwrap_or_default()
}

impl Shared {
    /// Counts a call. Returns `true` if the process is still alive when it makes it.
    fn count_call(&self) -> bool {
        let mut passing = self.passing.lock().unwrap_or_else(PoisonError::into_inner);
        let lives = *passing != Some(0);
        *passing = passing.map(|calls| calls.saturating_sub(1));
        lives
    }

    async fn pass<T>(&self, verb: Verb, call: impl Future<Output = Result<T>>) -> Result<T> {
        if !self.count_call() {
            self.dead.send_replace(true);
            return pending().await;
        }
        let mut nth = 0;
        self.calls.send_modify(|calls| {
            let count = calls.entry(verb).or_default();
            *count += 1;
            nth = *count;
        });
        let way = *self.way.borrow();
        let holds = |held: &BTreeMap<Verb, usize>| held.get(&verb).is_some_and(|it| nth > *it);
        match way {
            Way::Open if holds(&self.holding.borrow()) => {
                let answer = call.await;
                self.held.send_modify(|held| *held += 1);
                let mut holding = self.holding.subscribe();
                let let_go = holding.wait_for(|held| !holds(held)).await.is_ok();
                assert!(let_go, "the gate stands as long as this one");
                answer
            }
            Way::Shut => Err(Error::new(ErrorKind::Unreachable, "passing the gate")),
            Way::Silent if verb != Verb::Close => pending().await,
            Way::Holding if verb != Verb::Close => {
                let answer = call.await;
                self.held.send_modify(|held| *held += 1);
                let mut way = self.way.subscribe();
                let opened = way.wait_for(|way| *way != Way::Holding).await.is_ok();
                assert!(opened, "the gate stands as long as this one");
                answer
            }
            _ => {
                let answer = call.await;
                self.answers.send_modify(|answers| *answers.entry(verb).or_default() += 1);
                answer
            }
        }
    }

    fn counts(&self, query: &Query) {
        let subtree = usize::from(query.scope == Scope::Subtree);
        self.subtrees.fetch_add(subtree, Ordering::Relaxed);
        let list = usize::from(query.scope == Scope::Children);
        self.lists.fetch_add(list, Ordering::Relaxed);
    }

    /// The watch, which may lose or merge changes.
    fn forgets(self: &Arc<Self>, watch: Watch) -> Watch {
        let shared = self.clone();
        watch.map(move |event| match event {
            Event::Changed(_) if shared.mute.load(Ordering::Relaxed) => None,
            Event::Changed(_) if shared.forgetful.load(Ordering::Relaxed) => Some(Event::Resync),
            Event::Changed(change) if shared.joins(&change) => None,
            event => Some(event),
        })
    }

    /// Returns `true` if this change is reported together with a later change of its path.
    fn joins(&self, change: &Change) -> bool {
        let brief = self.brief.lock().unwrap_or_else(PoisonError::into_inner);
        change.kind != Kind::Deleted && brief.as_ref() == Some(&change.path)
    }

    /// The view, with the additional container if a listing contains it.
    fn name(&self, query: &Query, mut view: View) -> View {
        let named = self.container.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let named = named.filter(|it| {
            let below = query.scope == Scope::Children && it.parent().as_ref() == Some(&query.path);
            below && it.name().starts_with(&query.prefix)
        });
        let Some(named) = named else { return view };
        view.nodes.retain(|node| node.path != named);
        let first = Node::new(named).with_sequence(Some(Sequence::new(0)));
        match query.window {
            // The container has the lowest sequence.
            Some(Window::Newest { count, .. }) if view.nodes.len() >= count => {}
            Some(Window::Oldest { count }) if view.nodes.len() >= count => {
                view.nodes.pop();
                view.nodes.insert(0, first);
            }
            _ => view.nodes.insert(0, first),
        }
        view
    }

    fn show(&self, view: View) -> View {
        let stranger = self.stranger.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut nodes: Vec<_> = view.nodes.into_iter().chain(stranger.map(Node::new)).collect();
        if self.garbles.load(Ordering::Relaxed) {
            for node in &mut nodes {
                (node.stat, node.sequence) = (None, None);
            }
        }
        View::new(view.revision, nodes)
    }
}

#[async_trait]
impl Backend for Gate {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        let store = self.shared.pass(Verb::Open, self.backend.open(options)).await?;
        let first = watch::Sender::new(*store.status().borrow());
        let relay = self.shared.losing.load(Ordering::Relaxed).then(|| {
            let told = self.shared.told.lock();
            told.unwrap_or_else(PoisonError::into_inner).push(first.clone());
            let frozen = self.shared.frozen.subscribe();
            task::spawn(relay(store.status(), first.clone(), frozen))
        });
        Ok(Box::new(Gated { store, shared: self.shared.clone(), first, relay }))
    }
}

#[async_trait]
impl Store for Gated {
    fn session(&self) -> &SessionInfo {
        self.store.session()
    }

    fn status(&self) -> watch::Receiver<Status> {
        if self.shared.starved.load(Ordering::Relaxed) || self.relay.is_some() {
            return self.first.subscribe();
        }
        self.store.status()
    }

    async fn read(&self, query: Query) -> Result<View> {
        if query.freshness == Freshness::Local && self.shared.blind.load(Ordering::Relaxed) {
            return Ok(View::new(Revision::ZERO, Vec::new()));
        }
        self.shared.blind.store(false, Ordering::Relaxed);
        self.shared.counts(&query);
        let view = self.shared.pass(Verb::Read, self.store.read(query.clone())).await?;
        Ok(self.shared.show(self.shared.name(&query, view)))
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        self.shared.counts(&query);
        let observed = self.shared.pass(Verb::Watch, self.store.watch(query.clone())).await;
        observed.map(|(view, watch)| (self.shared.name(&query, view), self.shared.forgets(watch)))
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        let look = txn.look.clone();
        let outcome = self.shared.pass(Verb::Commit, self.store.commit(txn)).await?;
        let name = |view| look.as_ref().map(|query| self.shared.name(query, view));
        let outcome = match outcome {
            Outcome::Committed(mut commit) => {
                commit.look = commit.look.take().and_then(name);
                Outcome::Committed(commit)
            }
            Outcome::Rejected(mut no) => {
                no.look = no.look.take().and_then(name);
                Outcome::Rejected(no)
            }
        };
        Ok(if self.shared.garbles.load(Ordering::Relaxed) {
            outcome.map(|_told| Commit::new(None, Vec::new(), None))
        } else {
            outcome
        })
    }

    async fn close(&self) -> Result<()> {
        if self.relay.is_some() && self.first.borrow().is_lost() {
            // Only the client considers the session lost: no request is sent to the server.
            return Err(
                Error::new(ErrorKind::Unreachable, "passing the gate").with_unknown_effect()
            );
        }
        self.shared.pass(Verb::Close, self.store.close()).await
    }
}

/// Forwards the server's status of a session, until it was reported as lost.
async fn relay(
    mut from: watch::Receiver<Status>,
    to: watch::Sender<Status>,
    mut frozen: watch::Receiver<bool>,
) {
    while from.changed().await.is_ok() && frozen.wait_for(|is_frozen| !is_frozen).await.is_ok() {
        let now = *from.borrow_and_update();
        to.send_if_modified(|told| {
            let goes_on = !told.is_lost();
            if goes_on {
                *told = now;
            }
            goes_on
        });
    }
}
