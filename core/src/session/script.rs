//! A store for the tests of sessions: one tree in memory, whose calls fail according to a script.

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::clock::{self, Instant, sleep};
use async_trait::async_trait;
use tokio::sync::watch;

use crate::error::{Error, ErrorKind, Result};
use crate::path::Path;
use crate::store::{
    Backend, Change, Commit, End, Facts, Feed, Found, Freshness, Kind, Lifetime, Limits, Node, Op,
    OpResult, Outcome, Query, RejectReason, Rejected, Revision, Scope, Sequence, SessionEnd,
    SessionId, SessionInfo, SessionOptions, Stat, Status, Store, Txn, Version, View, Watch, judge,
};

/// The result of the next call of its kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The call succeeds.
    None,
    /// The call has no effect, and its error reports that.
    Refused,
    /// The call is applied, and its answer is lost.
    ReplyLost,
    /// The call has no effect, and its error reports an unknown effect.
    RequestLost,
    /// The call is applied after this delay, and its error leaves the effect unknown.
    Late(Duration),
    /// The call is applied and is answered after this delay.
    SlowReply(Duration),
    /// The call is applied after this delay.
    SlowRequest(Duration),
    /// A read is answered after this delay, with the state at the time of the call.
    Stale(Duration),
    /// The first operation is rejected, as its node exists already.
    Exists,
    /// The call is never answered, and has no effect.
    Silence,
    /// The credentials are rejected.
    Denied,
    /// No server accepts a connection.
    NoServer,
    /// The options are invalid.
    Invalid,
}

/// The tree and the server of the store, as a test sees them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script(Arc<Mutex<ScriptState>>);

#[derive(Debug, Default)]
struct ScriptState {
    tree: Tree,
    revision: u64,
    sequence: u64,
    commits: VecDeque<Fault>,
    reads: VecDeque<Fault>,
    opens: VecDeque<Fault>,
    late: Vec<(Instant, u64, Txn)>,
    log: Vec<String>,
    sessions: BTreeMap<u64, watch::Sender<Status>>,
    feeds: Vec<(u64, Query, Feed)>,
    hides_local: bool,
    answers_lost: bool,
}

#[derive(Debug, Default)]
struct Tree(BTreeMap<Path, Node>);

#[derive(Debug)]
struct Scripted {
    script: Script,
    info: SessionInfo,
    status: watch::Receiver<Status>,
}

impl Script {
    pub(crate) fn commits(&self, faults: impl IntoIterator<Item = Fault>) {
        self.lock().commits.extend(faults);
    }

    pub(crate) fn reads(&self, faults: impl IntoIterator<Item = Fault>) {
        self.lock().reads.extend(faults);
    }

    pub(crate) fn opens(&self, faults: impl IntoIterator<Item = Fault>) {
        self.lock().opens.extend(faults);
    }

    /// Makes reads that may lag return nothing from now on.
    pub(crate) fn hide_from_local_reads(&self) {
        self.lock().hides_local = true;
    }

    /// Makes calls succeed on sessions that are over from now on.
    pub(crate) fn answer_lost_sessions(&self) {
        self.lock().answers_lost = true;
    }

    /// Returns the paths of all nodes.
    pub(crate) fn nodes(&self) -> Vec<String> {
        let mut world = self.lock();
        world.catch_up();
        world.tree.0.keys().map(ToString::to_string).collect()
    }

    /// Adds a node that belongs to the given session.
    pub(crate) fn put(&self, path: &Path, owner: Option<u64>) -> Stat {
        let mut world = self.lock();
        world.revision += 1;
        let revision = Revision::new(world.revision);
        let owner = owner.map(SessionId::new);
        let stat = Stat::new(revision, revision, Version::new(0), owner);
        let node = Node::new(path.clone()).with("put".into(), stat);
        world.tree.0.insert(path.clone(), node.with_sequence(Some(Sequence::new(1))));
        stat
    }

    pub(crate) fn take(&self, path: &Path) {
        self.lock().tree.0.remove(path);
    }

    /// Returns the number of calls so far whose record starts with this text.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.lock().log.iter().filter(|line| line.starts_with(what)).count()
    }

    /// Returns the paths that were created and deleted so far, in order, with the time of the
    /// request.
    pub(crate) fn log(&self) -> Vec<String> {
        self.lock().log.clone()
    }

    /// Sets the status of the session that was opened as the `number`th.
    pub(crate) fn set_status(&self, number: u64, status: Status) {
        let mut world = self.lock();
        if status.is_lost() {
            world.end_session(number, SessionEnd::Expired);
        }
        world.sessions[&number].send_replace(status);
    }

    pub(crate) fn lose(&self, number: u64) {
        self.set_status(number, Status::Lost { reason: SessionEnd::Expired });
    }

    pub(crate) fn change(&self, path: &Path) {
        let world = self.lock();
        for (_, _, feed) in &world.feeds {
            feed.send(Change::new(path.clone(), Kind::Updated));
        }
    }

    /// Returns the number of watches that the server keeps.
    pub(crate) fn watches(&self) -> usize {
        self.lock().feeds.iter().filter(|(_, _, feed)| !feed.is_over()).count()
    }

    fn lock(&self) -> MutexGuard<'_, ScriptState> {
        self.0.lock().expect("no test panics while it holds the world")
    }
}

impl ScriptState {
    fn end_session(&mut self, number: u64, why: SessionEnd) {
        self.catch_up();
        self.tree.0.retain(|_, node| {
            node.stat.and_then(|stat| stat.owner) != Some(SessionId::new(number))
        });
        for (_, _, feed) in self.feeds.iter().filter(|(of, _, _)| *of == number) {
            feed.end(End::SessionOver(why));
        }
        self.feeds.retain(|(of, _, _)| *of != number);
    }

    fn catch_up(&mut self) {
        let now = clock::now();
        let (due, late) = std::mem::take(&mut self.late).into_iter().partition(|l| l.0 <= now);
        self.late = late;
        let due: Vec<(Instant, u64, Txn)> = due;
        for (_, number, txn) in due {
            let _late = self.apply(number, &txn);
        }
    }

    fn apply(&mut self, number: u64, txn: &Txn) -> Outcome {
        if let Err(rejected) = judge(&txn.ops, &self.tree) {
            let view = txn.look.as_ref().map(|query| self.view(query));
            return Outcome::Rejected(rejected.with_look(view));
        }
        self.revision += 1;
        let done = txn.ops.iter().map(|op| self.apply_op(number, op)).collect();
        Outcome::Committed(Commit::new(Some(Revision::new(self.revision)), done, None))
    }

    fn apply_op(&mut self, number: u64, op: &Op) -> OpResult {
        let revision = Revision::new(self.revision);
        match op {
            Op::Check { path, .. } => OpResult::new(path.clone()),
            Op::Delete { path, .. } => {
                self.tree.0.remove(path);
                OpResult::new(path.clone())
            }
            Op::Set { path, data, .. } => {
                let node = self.tree.0.get_mut(path).expect("judged");
                let stat = node.stat.as_mut().expect("a node");
                (stat.modified, stat.version) = (revision, Version::new(stat.version.get() + 1));
                node.data = data.clone();
                OpResult::new(path.clone()).with_stat(*stat)
            }
            Op::Create { path, data, lifetime, sequential } => {
                let owner = (*lifetime == Lifetime::Session).then(|| SessionId::new(number));
                let stat = Stat::new(revision, revision, Version::new(0), owner);
                let (mut at, mut sequence) = (path.clone(), None);
                if *sequential {
                    self.sequence += 1;
                    sequence = Some(Sequence::new(self.sequence));
                    at = Path::new(&format!("{path}{:010}", self.sequence)).expect("short");
                }
                let node = Node::new(at.clone()).with(data.clone(), stat).with_sequence(sequence);
                self.tree.0.insert(at.clone(), node);
                let done = OpResult::new(at).with_stat(stat);
                match sequence {
                    Some(sequence) => done.with_sequence(sequence),
                    None => done,
                }
            }
        }
    }

    fn view(&mut self, query: &Query) -> View {
        self.catch_up();
        let hides_local = self.hides_local && query.freshness == Freshness::Local;
        let found = self.tree.0.values().filter(|node| match query.scope {
            Scope::Node => query.nodes_asked().any(|path| *path == node.path),
            Scope::Children => {
                node.path.parent().as_ref() == Some(&query.path)
                    && node.path.name().starts_with(&query.prefix)
            }
            Scope::Subtree => node.path == query.path || node.path.is_below(&query.path),
        });
        let nodes = found.filter(|_| !hides_local).cloned().collect();
        View::new(Revision::new(self.revision), nodes)
    }
}

impl Facts for Tree {
    fn node(&self, path: &Path) -> Option<Found> {
        let stat = self.0.get(path)?.stat?;
        Some(Found { version: stat.version, leased: stat.owner.is_some() })
    }

    fn occupied(&self, path: &Path, gone: &dyn Fn(&Path) -> bool) -> bool {
        self.0.keys().any(|node| node.is_below(path) && !gone(node))
    }
}

#[async_trait]
impl Backend for Script {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        let fault = self.lock().opens.pop_front().unwrap_or(Fault::None);
        self.lock().log.push("open".into());
        match fault {
            Fault::Silence => pending().await,
            Fault::Refused => return Err(unreachable("open")),
            Fault::Denied => return Err(Error::new(ErrorKind::Denied, "open")),
            Fault::NoServer => return Err(unreachable("open").with_no_server()),
            Fault::Invalid => return Err(Error::new(ErrorKind::Invalid, "open")),
            Fault::SlowReply(delay) => sleep(delay).await,
            _ => {}
        }
        let mut world = self.lock();
        let number = world.sessions.len() as u64 + 1;
        let until = clock::now() + options.ttl;
        let (sender, status) = watch::channel(Status::Live { until });
        world.sessions.insert(number, sender);
        let info = SessionInfo::new(SessionId::new(number), options.ttl, Limits::default());
        Ok(Box::new(Scripted { script: self.clone(), info, status }))
    }
}

impl Scripted {
    fn alive(&self, doing: &'static str) -> Result<()> {
        if self.status.borrow().is_lost() && !self.script.lock().answers_lost {
            return Err(Error::new(ErrorKind::SessionLost, doing));
        }
        Ok(())
    }

    async fn read_fault(&self, query: &Query) -> Result<Fault> {
        let fault = {
            let mut world = self.script.lock();
            world.log.push(format!("read {}", query.path));
            world.reads.pop_front().unwrap_or(Fault::None)
        };
        match fault {
            Fault::Silence => pending().await,
            Fault::Refused => Err(unreachable("read")),
            Fault::Denied => Err(Error::new(ErrorKind::Denied, "read")),
            Fault::SlowReply(delay) => {
                sleep(delay).await;
                Ok(fault)
            }
            _ => Ok(fault),
        }
    }
}

#[async_trait]
impl Store for Scripted {
    fn session(&self) -> &SessionInfo {
        &self.info
    }

    fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    async fn read(&self, query: Query) -> Result<View> {
        self.alive("read")?;
        let fault = self.read_fault(&query).await?;
        self.alive("read")?;
        let view = self.script.lock().view(&query);
        if let Fault::Stale(delay) = fault {
            sleep(delay).await;
        }
        Ok(view)
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        self.read_fault(&query).await?;
        self.alive("watch")?;
        let (feed, watch) = Feed::new(16);
        let mut world = self.script.lock();
        world.feeds.push((self.info.id.get(), query.clone(), feed));
        Ok((world.view(&query), watch))
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        self.alive("commit")?;
        txn.validate(&self.info.limits)?;
        let (number, lost) = (self.info.id.get(), unreachable("commit").with_unknown_effect());
        let fault = {
            let mut world = self.script.lock();
            let op = match &txn.ops[0] {
                Op::Create { path, .. } => format!("create {path}"),
                Op::Delete { path, .. } => format!("delete {path}"),
                Op::Set { path, .. } => format!("set {path}"),
                Op::Check { path, .. } => format!("check {path}"),
            };
            world.log.push(op);
            world.commits.pop_front().unwrap_or(Fault::None)
        };
        match fault {
            Fault::Refused => return Err(unreachable("commit")),
            Fault::RequestLost => return Err(lost),
            Fault::Denied => return Err(Error::new(ErrorKind::Denied, "commit")),
            Fault::Silence => pending().await,
            Fault::SlowRequest(delay) => sleep(delay).await,
            Fault::Exists => {
                let no = Rejected::new(0, txn.ops[0].path().clone(), RejectReason::Exists);
                return Ok(Outcome::Rejected(no));
            }
            Fault::Late(delay) => {
                let due = clock::now() + delay;
                self.script.lock().late.push((due, number, txn));
                return Err(lost);
            }
            Fault::NoServer => return Err(unreachable("commit").with_no_server()),
            Fault::Invalid => return Err(Error::new(ErrorKind::Invalid, "commit")),
            Fault::None | Fault::ReplyLost | Fault::SlowReply(_) | Fault::Stale(_) => {}
        }
        let outcome = {
            let mut world = self.script.lock();
            world.catch_up();
            world.apply(number, &txn)
        };
        match fault {
            Fault::ReplyLost => return Err(lost),
            Fault::SlowReply(delay) => sleep(delay).await,
            _ => {}
        }
        self.alive("commit").map_err(Error::with_unknown_effect)?;
        Ok(outcome)
    }

    async fn close(&self) -> Result<()> {
        let mut world = self.script.lock();
        world.log.push("close".into());
        let number = self.info.id.get();
        world.end_session(number, SessionEnd::Closed);
        world.sessions[&number].send_if_modified(|status| {
            let lives = !status.is_lost();
            if lives {
                *status = Status::Lost { reason: SessionEnd::Closed };
            }
            lives
        });
        Ok(())
    }
}

fn unreachable(doing: &'static str) -> Error {
    Error::new(ErrorKind::Unreachable, doing)
}

/// Asserts that no task is left but the test.
pub(crate) async fn idle() {
    tokio::task::yield_now().await;
    let alive = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(alive, 0);
}
