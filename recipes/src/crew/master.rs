//! [`MasterTerm`]: what a master does while it leads.

use std::collections::BTreeSet;
use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{Either, poll_immediate, select};
use futures_util::stream::FuturesUnordered;
use synod_core::client::Client;
use synod_core::clock::{self, Instant, sleep_until};
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::Node;

use crate::crew::crew_policy::CrewPolicy;
use crate::crew::deadlines::{Deadlines, date};
use crate::crew::feeds::{CrewDir, CrewFeeds, CrewNews};
use crate::crew::finished::Finished;
use crate::crew::layout::CrewPaths;
use crate::crew::roster::CrewRoster;
use crate::crew::step::{ASIDE, MasterStep, StepOutcome};
use crate::crew::steps::Steps;
use crate::line::hold::Leadership;
use crate::mutant::mistake;

/// How many steps may be on their way at the same time.
const AT_ONCE: usize = 64;

/// The shortest time for which a finished task is kept that a worker still has, or whose removal had no answer.
const LEAST: Duration = Duration::from_millis(100);

/// How many changes are taken note of before the next steps.
const NEWS_AT_ONCE: usize = 1_000;

/// One term of a master: what it knows.
pub(super) struct MasterTerm<'a> {
    paths: &'a CrewPaths,
    roster: CrewRoster,
    finished: Finished,
    deadlines: Deadlines,
    /// The tasks that are about to expire: until it is known whether they have, they are not removed.
    expiring: BTreeSet<String>,
    /// True if all that was there was reported: then what is reported has just happened.
    is_complete: bool,
}

/// What makes a master go on.
enum MasterCause {
    /// A change, or the error of a directory that is not reported any more.
    Heard(Result<CrewNews>),
    /// A step came to its end.
    Made(Result<(MasterStep, StepOutcome)>),
    /// A finished task is to be removed, or one that is not finished expires.
    Due,
}

impl<'a> MasterTerm<'a> {
    pub(super) fn new(paths: &'a CrewPaths, retention: Duration, policy: CrewPolicy) -> Self {
        let (roster, finished) = (CrewRoster::new(policy), Finished::new(retention));
        let (deadlines, expiring) = (Deadlines::default(), BTreeSet::new());
        Self { paths, roster, finished, deadlines, expiring, is_complete: false }
    }

    /// Leads until the store says that another master does. It is dropped when the lead is lost.
    pub(super) async fn lead(mut self, client: &Client, lead: Leadership) -> Result<()> {
        let steps = Steps::new(self.paths, lead);
        if !steps.begin().await? {
            return Ok(());
        }
        let mut feeds = CrewFeeds::open(client, self.paths).await?;
        let mut making = FuturesUnordered::new();
        loop {
            while feeds.are_complete()
                && making.len() < AT_ONCE
                && let Some(step) = self.next()
            {
                making.push(steps.make(step));
            }
            let due = if making.len() < AT_ONCE { self.next_due(&feeds) } else { None };
            let cause =
                match select(pin!(feeds.next()), select(pin!(some(&mut making)), pin!(until(due))))
                    .await
                {
                    Either::Left((news, _)) => MasterCause::Heard(news),
                    Either::Right((Either::Left((made, _)), _)) => MasterCause::Made(made),
                    Either::Right((Either::Right(_), _)) => MasterCause::Due,
                };
            match cause {
                MasterCause::Heard(news) => self.learn_all(news?, &mut feeds).await?,
                MasterCause::Made(made) => match made? {
                    (_, StepOutcome::Deposed) => return Ok(()),
                    (step, made) => self.came_to(step, made),
                },
                MasterCause::Due => {}
            }
        }
    }

    /// What to do next.
    fn next(&mut self) -> Option<MasterStep> {
        let now = clock::now();
        while let Some(task) = self.deadlines.reached(now) {
            let waits = self.roster.ends(&task);
            // A step that is on its way goes on until the task is over.
            if self.expiring.insert(task.clone()) {
                return Some(MasterStep::Expire { task, waits });
            }
        }
        self.roster.next(now).or_else(|| Some(MasterStep::Remove { task: self.next_removal()? }))
    }

    /// When time alone brings the next step.
    fn next_due(&self, feeds: &CrewFeeds) -> Option<Instant> {
        let due = [self.finished.next(), self.deadlines.next(), self.roster.next_due()];
        due.into_iter().flatten().min().filter(|_| feeds.are_complete())
    }

    /// Takes note of what came of a step.
    fn came_to(&mut self, step: MasterStep, made: StepOutcome) {
        let (now, task) = (clock::now(), step.task().to_owned());
        match &step {
            MasterStep::Expire { .. } => {
                self.expiring.remove(&task);
                if made == StepOutcome::SetAside {
                    self.deadlines.put_off(&task, now, ASIDE);
                }
            }
            MasterStep::Assign { queued, .. } => {
                let terms = queued.terms.clone();
                self.roster.came_to(step, made, now);
                // The end of its last assignment may have been reported meanwhile, when it was neither waiting nor assigned.
                self.deadlines.learn_terms(&task, &terms, now, date());
                self.settle(&task);
            }
            MasterStep::TakeBack { .. } => {
                self.roster.came_to(step, made, now);
                self.settle(&task);
            }
            MasterStep::Remove { .. } => self.puts_off_removal(&task),
        }
    }

    /// A finished task is kept for another retention, unless it is reported that it is gone.
    fn puts_off_removal(&mut self, task: &str) {
        let pause = self.finished.retention().max(LEAST);
        self.finished.put_off(task, clock::now(), pause);
    }

    /// Forgets the deadline of a task that is over.
    fn settle(&mut self, task: &str) {
        if !self.roster.knows(task) {
            self.deadlines.forget(task);
        }
    }

    /// A finished task that is to be removed now.
    fn next_removal(&mut self) -> Option<String> {
        loop {
            let task = self.finished.reached(clock::now())?;
            // What a worker still has of one that was cancelled goes first.
            if self.roster.holder(&task).is_none() && !self.expiring.contains(&task) {
                return Some(task);
            }
            self.puts_off_removal(&task);
        }
    }

    /// Takes note of a change, and of others that are there already.
    async fn learn_all(&mut self, first: CrewNews, feeds: &mut CrewFeeds) -> Result<()> {
        self.learn(first);
        for _ in 0..NEWS_AT_ONCE {
            match poll_immediate(feeds.next()).await {
                Some(news) => self.learn(news?),
                None => break,
            }
        }
        Ok(())
    }

    fn learn(&mut self, news: CrewNews) {
        match news {
            CrewNews::There(dir, node) => self.learn_of(dir, node),
            CrewNews::Gone(dir, node) => self.forget(dir, &node),
            CrewNews::Reset(dir) => self.forget_all(dir),
            CrewNews::Complete => {
                self.is_complete = true;
                self.finished.confirm();
                self.roster.find_orphans();
                self.deadlines.retain(|task| self.roster.knows(task));
            }
        }
    }

    /// All nodes of a directory are reported anew.
    fn forget_all(&mut self, dir: CrewDir) {
        self.is_complete = false;
        match dir {
            CrewDir::Todo => self.roster.forget_queue(),
            CrewDir::Workers => self.roster.forget_workers(),
            CrewDir::Assigned => self.roster.forget_assigned(),
            CrewDir::Done => self.finished.begin_anew(),
            CrewDir::Switch => self.roster.forget_switch(),
        }
    }

    /// A node is there.
    fn learn_of(&mut self, dir: CrewDir, node: Node) {
        match dir {
            CrewDir::Todo => {
                let (now, date, is_new) = (clock::now(), date(), self.is_complete);
                self.deadlines.learn(&node, now, date);
                // A clock that differs from that of the worker matters only to a later master.
                let date = if is_new { Duration::ZERO } else { date };
                self.roster.waits(&node, |terms| terms.pause_left(date), now);
            }
            CrewDir::Workers => self.roster.is_there(&node),
            CrewDir::Assigned => {
                if let Some(worker) = self.worker_of(&node.path) {
                    self.deadlines.learn(&node, clock::now(), date());
                    mistake!(DeadlineEndsWithTheWait: self.deadlines.forget(node.path.name()));
                    self.roster.has(&worker, node.path.name(), node.data);
                }
            }
            CrewDir::Done => {
                self.roster.is_over(node.path.name());
                self.finished.add(&node, clock::now(), date());
                self.settle(node.path.name());
            }
            CrewDir::Switch => self.roster.is_switched(&node),
        }
    }

    /// A node is gone.
    fn forget(&mut self, dir: CrewDir, node: &Node) {
        match dir {
            CrewDir::Todo => {
                self.roster.waits_no_more(node);
                self.settle(node.path.name());
            }
            CrewDir::Workers => self.roster.is_gone(node.path.name()),
            CrewDir::Assigned => {
                if let Some(worker) = self.worker_of(&node.path) {
                    self.roster.gave_up(&worker, node.path.name());
                    self.settle(node.path.name());
                }
            }
            CrewDir::Done => self.finished.removed(node.path.name()),
            CrewDir::Switch => self.roster.forget_switch(),
        }
    }

    /// The worker whose assignment a node is, if it is one.
    fn worker_of(&self, path: &Path) -> Option<String> {
        let dir = path.parent()?;
        let is_of_worker = dir.parent_str() == Some(self.paths.all_assigned().as_str());
        is_of_worker.then(|| dir.name().to_owned())
    }
}

/// The next result, when there is one.
async fn some<F: Future>(all: &mut FuturesUnordered<F>) -> F::Output {
    match all.next().await {
        Some(done) => done,
        None => pending().await,
    }
}

/// Waits until this moment, if there is one.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}
