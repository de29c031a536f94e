//! [`MasterTerm`]: the work of a master while it leads. [`CrewFeeds`]: the changes that it follows.

use std::collections::BTreeSet;
use std::future::pending;
use std::pin::{Pin, pin};
use std::time::Duration;

use futures_core::Stream;
use futures_util::StreamExt as _;
use futures_util::future::{self, Either, poll_immediate, select};
use futures_util::stream::{FuturesUnordered, SelectAll, select_all, unfold};
use synod_core::client::Client;
use synod_core::clock::{self, Instant, sleep_until};
use synod_core::error::{Error, Result};
use synod_core::path::Path;
use synod_core::store::Node;

use crate::crew::deadlines::Deadlines;
use crate::crew::finished::Finished;
use crate::crew::layout::CrewPaths;
use crate::crew::policy::CrewPolicy;
use crate::crew::state::CrewState;
use crate::crew::steps::{ASIDE, MasterStep, StepOutcome, Steps};
use crate::line::hold::Leadership;
use crate::mirror::Mirror;
use crate::mirror::event::CacheEvent;
use crate::mirror::extent::Extent;
use crate::mutant::mistake;
use crate::support::time::date;

/// The maximum number of concurrent steps.
const MAX_STEPS: usize = 64;

/// The minimum delay before the removal of a finished task is tried again: because a worker still
/// has the task, or the last removal had no answer.
const MIN_REMOVAL_DELAY: Duration = Duration::from_millis(100);

/// The maximum number of changes that are applied between two steps.
const MAX_CHANGES: usize = 1_000;

/// The state of one term of a master.
pub(super) struct MasterTerm<'a> {
    paths: &'a CrewPaths,
    state: CrewState,
    finished: Finished,
    deadlines: Deadlines,
    /// The tasks whose expiry is in flight. They are not removed before its outcome is known.
    expiring: BTreeSet<String>,
    /// True if all existing nodes were reported: from then on each report is a new change.
    is_complete: bool,
}

/// An event that a master handles.
enum MasterCause {
    /// A change, or the error of a directory that can no longer be followed.
    Change(Result<CrewChange>),
    /// The outcome of a step.
    Outcome(Result<(MasterStep, StepOutcome)>),
    /// The time of the next removal or expiry.
    Due,
}

impl<'a> MasterTerm<'a> {
    pub(super) fn new(paths: &'a CrewPaths, retention: Duration, policy: CrewPolicy) -> Self {
        let (state, finished) = (CrewState::new(policy), Finished::new(retention));
        let (deadlines, expiring) = (Deadlines::default(), BTreeSet::new());
        Self { paths, state, finished, deadlines, expiring, is_complete: false }
    }

    /// Leads until the store reports another master. It is dropped when the leadership is lost.
    pub(super) async fn lead(mut self, client: &Client, lead: Leadership) -> Result<()> {
        let steps = Steps::new(self.paths, lead);
        if !steps.begin().await? {
            return Ok(());
        }
        let mut feeds = CrewFeeds::open(client, self.paths).await?;
        let mut in_flight = FuturesUnordered::new();
        loop {
            while feeds.are_complete()
                && in_flight.len() < MAX_STEPS
                && let Some(step) = self.next_step()
            {
                in_flight.push(steps.make(step));
            }
            let due = if in_flight.len() < MAX_STEPS { self.next_due(&feeds) } else { None };
            let cause = match select(
                pin!(feeds.next()),
                select(pin!(some(&mut in_flight)), pin!(until(due))),
            )
            .await
            {
                Either::Left((change, _)) => MasterCause::Change(change),
                Either::Right((Either::Left((outcome, _)), _)) => MasterCause::Outcome(outcome),
                Either::Right((Either::Right(_), _)) => MasterCause::Due,
            };
            match cause {
                MasterCause::Change(change) => self.apply_all(change?, &mut feeds).await?,
                MasterCause::Outcome(outcome) => match outcome? {
                    (_, StepOutcome::Deposed) => return Ok(()),
                    (step, outcome) => self.record_outcome(step, outcome),
                },
                MasterCause::Due => {}
            }
        }
    }

    /// Chooses the next step.
    fn next_step(&mut self) -> Option<MasterStep> {
        let now = clock::now();
        while let Some(task) = self.deadlines.pop_due(now) {
            let waits = self.state.remove_waiting_task(&task);
            // A step that is in flight is repeated until the task is finished.
            if self.expiring.insert(task.clone()) {
                return Some(MasterStep::Expire { task, waits });
            }
        }
        self.state.next_step(now).or_else(|| self.next_removal())
    }

    /// The time of the next step that no change triggers.
    fn next_due(&self, feeds: &CrewFeeds) -> Option<Instant> {
        let due = [self.finished.next_due(), self.deadlines.next_due(), self.state.next_due()];
        due.into_iter().flatten().min().filter(|_| feeds.are_complete())
    }

    /// Records the outcome of a step.
    fn record_outcome(&mut self, step: MasterStep, outcome: StepOutcome) {
        let (now, task) = (clock::now(), step.task().to_owned());
        match &step {
            MasterStep::Expire { .. } => {
                self.expiring.remove(&task);
                if outcome == StepOutcome::SetAside {
                    self.deadlines.set(&task, now, ASIDE);
                }
            }
            MasterStep::Assign { queued, .. } => {
                let terms = queued.terms.clone();
                self.state.record_outcome(step, outcome, now);
                // The end of the last assignment may have been reported while the task was neither
                // waiting nor assigned.
                self.deadlines.add_terms(&task, &terms, now, date());
                self.forget_unless_open(&task);
            }
            MasterStep::TakeBack { .. } => {
                self.state.record_outcome(step, outcome, now);
                self.forget_unless_open(&task);
            }
            MasterStep::Remove { .. } => self.put_off_removal(&task),
        }
    }

    /// Keeps a finished task for another retention, unless its removal is reported before.
    fn put_off_removal(&mut self, task: &str) {
        let pause = self.finished.retention().max(MIN_REMOVAL_DELAY);
        self.finished.put_off(task, clock::now(), pause);
    }

    /// Forgets the deadline of a task that is finished.
    fn forget_unless_open(&mut self, task: &str) {
        if !self.state.knows(task) {
            self.deadlines.forget(task);
        }
    }

    /// Returns the removal of a finished task that is due.
    fn next_removal(&mut self) -> Option<MasterStep> {
        loop {
            let task = self.finished.pop_due(clock::now())?;
            // A worker that still has a cancelled task must give it up first.
            if self.state.holder(&task).is_none() && !self.expiring.contains(&task) {
                let possible_holder = self.state.possible_holder(&task).map(str::to_owned);
                return Some(MasterStep::Remove { task, possible_holder });
            }
            self.put_off_removal(&task);
        }
    }

    /// Applies a change, and others that have already arrived.
    async fn apply_all(&mut self, first: CrewChange, feeds: &mut CrewFeeds) -> Result<()> {
        self.apply(first);
        for _ in 0..MAX_CHANGES {
            match poll_immediate(feeds.next()).await {
                Some(change) => self.apply(change?),
                None => break,
            }
        }
        Ok(())
    }

    fn apply(&mut self, change: CrewChange) {
        match change {
            CrewChange::Set(dir, node) => self.apply_node(dir, &node),
            CrewChange::Removed(dir, node) => self.apply_removal(dir, &node),
            CrewChange::Reset(dir) => self.reset(dir),
            CrewChange::Complete => {
                self.is_complete = true;
                for task in self.finished.end_reload() {
                    self.state.forget_task(&task);
                }
                self.state.find_orphans();
                self.deadlines.retain(|task| self.state.knows(task));
            }
        }
    }

    /// Prepares for a new report of all nodes of a directory.
    fn reset(&mut self, dir: CrewDir) {
        self.is_complete = false;
        match dir {
            CrewDir::Todo => self.state.forget_queue(),
            CrewDir::Workers => self.state.forget_workers(),
            CrewDir::Assigned => self.state.forget_assigned(),
            CrewDir::Done => self.finished.begin_reload(),
            CrewDir::Switch => self.state.forget_switch(),
        }
    }

    /// Applies the report of a node.
    fn apply_node(&mut self, dir: CrewDir, node: &Node) {
        match dir {
            CrewDir::Todo => {
                let (now, date, is_new) = (clock::now(), date(), self.is_complete);
                self.deadlines.add(node, now, date);
                // The clock of the worker matters only to a later master.
                let date = if is_new { Duration::ZERO } else { date };
                self.state.add_waiting(node, |terms| terms.pause_left(date), now);
            }
            CrewDir::Workers => self.state.add_worker(node),
            CrewDir::Assigned => {
                if let Some(worker) = self.worker_of(&node.path) {
                    self.deadlines.add(node, clock::now(), date());
                    mistake!(DeadlineEndsWithTheWait: self.deadlines.forget(node.path.name()));
                    self.state.add_assignment(&worker, node);
                }
            }
            CrewDir::Done => {
                self.state.remove_finished(node.path.name());
                self.finished.add(node, clock::now(), date());
                self.forget_unless_open(node.path.name());
            }
            CrewDir::Switch => self.state.set_switch(node),
        }
    }

    /// Applies the report that a node is gone.
    fn apply_removal(&mut self, dir: CrewDir, node: &Node) {
        match dir {
            CrewDir::Todo => {
                self.state.remove_waiting(node);
                self.forget_unless_open(node.path.name());
            }
            CrewDir::Workers => self.state.remove_worker(node.path.name()),
            CrewDir::Assigned => {
                if let Some(worker) = self.worker_of(&node.path) {
                    self.state.remove_assignment(&worker, node.path.name());
                    self.forget_unless_open(node.path.name());
                }
            }
            CrewDir::Done => {
                self.finished.remove(node.path.name());
                self.state.forget_task(node.path.name());
            }
            CrewDir::Switch => self.state.forget_switch(),
        }
    }

    /// Returns the worker whose assignment a node is, or `None` for other nodes.
    fn worker_of(&self, path: &Path) -> Option<String> {
        let dir = path.parent()?;
        let is_of_worker = dir.parent_str() == Some(self.paths.all_assigned().as_str());
        is_of_worker.then(|| dir.name().to_owned())
    }
}

/// Waits for the next result. Never returns without one.
async fn some<F: Future>(all: &mut FuturesUnordered<F>) -> F::Output {
    match all.next().await {
        Some(done) => done,
        None => pending().await,
    }
}

/// Waits until this time. Never returns without one.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

/// A directory that a master follows, or the node of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CrewDir {
    Workers,
    Todo,
    Assigned,
    Done,
    Switch,
}

/// A change that is reported to a master.
#[derive(Debug)]
pub(super) enum CrewChange {
    /// A node exists, perhaps in place of an earlier one at its path.
    Set(CrewDir, Node),
    /// A node is gone.
    Removed(CrewDir, Node),
    /// All nodes of a directory are reported anew.
    Reset(CrewDir),
    /// All existing nodes were reported.
    Complete,
}

/// An upper limit of the size of the date of an end.
const MAX_DATE: usize = 64;

type Changes = Pin<Box<dyn Stream<Item = (CrewDir, CacheEvent)> + Send>>;

/// The changes of all directories, from empty ones on.
pub(super) struct CrewFeeds {
    changes: SelectAll<Changes>,
    /// The directories that were not reported completely yet.
    incomplete: Vec<CrewDir>,
    /// The error of the first directory that can no longer be followed.
    failure: Pin<Box<dyn Future<Output = Error> + Send>>,
}

impl CrewFeeds {
    /// Starts to follow the directories. Their existing nodes are reported first.
    pub(super) async fn open(client: &Client, paths: &CrewPaths) -> Result<Self> {
        // The store checks the conditions of each step, so the known state may temporarily be out
        // of date.
        let dirs = [
            (CrewDir::Workers, Extent::children(paths.workers())),
            (CrewDir::Todo, Extent::children(paths.all_todo()).deletions_as_reported()),
            (CrewDir::Assigned, Extent::subtree(paths.all_assigned()).deletions_as_reported()),
            (
                CrewDir::Done,
                Extent::children(paths.all_done())
                    .data_up_to(MAX_DATE)
                    .deletions_as_reported()
                    .known_by_name(|_name| true),
            ),
            (CrewDir::Switch, Extent::node(paths.switch())),
        ];
        let mirrors = dirs.map(|(dir, extent)| (dir, Mirror::start(client, extent, "crew")));
        for (_, mirror) in &mirrors {
            // Fails if the store rejects the read for good.
            mirror.complete().await?;
        }
        let changes = mirrors.each_ref().map(|(dir, mirror)| changes(*dir, mirror));
        let incomplete = mirrors.iter().map(|(dir, _)| *dir).collect();
        let failures = mirrors.map(|(_, mirror)| Box::pin(async move { mirror.failure().await }));
        let failure = Box::pin(async move { future::select_all(failures).await.0 });
        Ok(Self { changes: select_all(changes), incomplete, failure })
    }

    /// Returns true if all nodes that existed at some time after the start were reported.
    pub(super) fn are_complete(&self) -> bool {
        self.incomplete.is_empty()
    }

    /// Waits for the next change.
    ///
    /// # Errors
    ///
    /// The error with which the store rejects the read of a directory for good, and
    /// [`ErrorKind::SessionLost`](synod_core::error::ErrorKind::SessionLost) once the client is
    /// closed.
    pub(super) async fn next(&mut self) -> Result<CrewChange> {
        loop {
            let next = async {
                match self.changes.next().await {
                    Some(event) => event,
                    // The client is closed: `failure` reports that.
                    None => pending().await,
                }
            };
            let (dir, event) = match select(pin!(next), &mut self.failure).await {
                Either::Left((event, _)) => event,
                Either::Right((failure, _)) => return Err(failure),
            };
            match event {
                CacheEvent::Created(node) | CacheEvent::Updated { node, .. } => {
                    return Ok(CrewChange::Set(dir, node));
                }
                CacheEvent::Deleted(node) => return Ok(CrewChange::Removed(dir, node)),
                CacheEvent::Reset => {
                    self.incomplete.push(dir);
                    return Ok(CrewChange::Reset(dir));
                }
                CacheEvent::Complete(_) => {
                    self.incomplete.retain(|it| *it != dir);
                    if self.incomplete.is_empty() {
                        return Ok(CrewChange::Complete);
                    }
                }
                // The store checks the conditions of each step.
                CacheEvent::Stale => {}
            }
        }
    }
}

fn changes(dir: CrewDir, mirror: &Mirror) -> Changes {
    Box::pin(unfold(mirror.reader(), move |mut reader| async move {
        let event = reader.next().await?;
        Some(((dir, event), reader))
    }))
}
