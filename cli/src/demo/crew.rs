//! The last part: a crew whose master is disconnected and which loses a worker.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::try_join;
use synod::Path;
use synod::crew::{Crew, CrewSnapshot, CrewWorker, ShownWorker, TaskEnd, TaskStatus};
use synod::lock::inspect;
use tokio::time::sleep;

use crate::command::delete;
use crate::demo::board::Board;
use crate::demo::program::Program;
use crate::failure::Failure;

const INTRODUCTION: &str = "\
A crew. Each copy does tasks, two at a time, and stands for master; the master assigns the tasks. A
   fourth program, dan, submits sixty. The master is cut off, and later a machine fails: no task is lost.";

const TASKS: usize = 60;

/// Duration of a task.
const WORK: Duration = Duration::from_millis(350);

const LOOK: Duration = Duration::from_millis(150);

/// Time after which the tasks count as failed: a store may keep the sessions of lost programs for
/// long.
const LIMIT: Duration = Duration::from_secs(120);

/// The events of the demo, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    /// No fault happens until this master is cut off.
    Calm,
    MasterCut(usize),
    /// Another program leads, until a worker is lost.
    Replaced,
    WorkerLost(usize),
    Last,
}

struct Show<'a> {
    programs: &'a [Program; 3],
    dan: &'a Program,
    crew: Crew,
    path: &'a Path,
    board: Board,
    scene: Scene,
    /// The results that were read. Each must not change.
    results: BTreeMap<String, Vec<u8>>,
}

/// All three programs are workers and candidates until the end. `dan` submits the tasks and watches
/// them.
pub(crate) async fn run(
    number: &str,
    programs: [Program; 3],
    dan: &Program,
    path: &Path,
    board: Board,
) -> Result<(), Failure> {
    dan.teller.chapter(&format!("{number}{INTRODUCTION}")).await?;
    let begun = Arc::new(AtomicUsize::new(0));
    for program in &programs {
        works(program, path, &begun);
    }
    let crew = Crew::new(&dan.client, path);
    for number in 1..=TASKS {
        crew.submit(&format!("task-{number:02}"), number.to_string()).await?;
    }
    dan.tell(&format!("has submitted {TASKS} tasks"))?;
    let (scene, results) = (Scene::Calm, BTreeMap::new());
    let mut show = Show { programs: &programs, dan, crew, path, board, scene, results };
    tokio::time::timeout(LIMIT, show.play()).await.map_err(|_late| {
        Failure::plain(
            "the tasks take too long; does the store answer, and how long do its sessions live?",
        )
    })??;
    let attempts = begun.load(Ordering::Relaxed);
    dan.tell(&format!("sees that all {TASKS} tasks are done: each has one result"))?;
    dan.tell(&format!("counts {attempts} attempts: some tasks were begun again"))?;
    // Another master would create its nodes again.
    for program in programs {
        program.end().await?;
    }
    delete::remove(&dan.client, path).await.map(drop)
}

/// Runs a worker that is also a candidate for master, until the program ends.
fn works(program: &Program, path: &Path, begun: &Arc<AtomicUsize>) {
    let (crew, begun, name) = (Crew::new(&program.client, path), begun.clone(), program.name);
    program.runs(async move {
        let worker = CrewWorker::new().capacity(2.try_into().expect("not zero"));
        let works = crew.work(worker.property("name", name), |task| {
            begun.fetch_add(1, Ordering::Relaxed);
            async move {
                sleep(WORK).await;
                Ok::<_, Infallible>(format!("{name} did {}", String::from_utf8_lossy(&task.data)))
            }
        });
        // Both end with the client of this program.
        let _ended = try_join(works, crew.lead()).await.is_err();
    });
}

impl Show<'_> {
    /// Reads the crew repeatedly, until all tasks are done.
    async fn play(&mut self) -> Result<(), Failure> {
        loop {
            let snapshot = self.crew.snapshot().await?;
            let master = self.master().await?;
            let done = self.check(&snapshot)?;
            self.directs(done, master, &snapshot).await?;
            self.board.draw(&self.table(done, master, &snapshot))?;
            if done == TASKS && self.scene == Scene::Last {
                self.board.clear()?;
                return Ok(());
            }
            sleep(LOOK).await;
        }
    }

    /// Returns the index of the program that leads.
    async fn master(&self) -> Result<Option<usize>, Failure> {
        let standing = inspect(&self.dan.client, self.path.join("master")?).await?;
        let leads = standing.iter().find(|it| it.holds == Some(true)).and_then(|it| it.owner);
        let is_its = |program: &Program| {
            let session = program.client.session().now_or_never().and_then(Result::ok);
            leads.is_some() && session.map(|session| session.info().id) == leads
        };
        Ok(self.programs.iter().position(is_its))
    }

    /// Counts the tasks that are done, and checks that no result has changed.
    fn check(&mut self, snapshot: &CrewSnapshot) -> Result<usize, Failure> {
        for task in &snapshot.tasks {
            let TaskStatus::Over(end) = &task.status else { continue };
            let TaskEnd::Done(result) = end else {
                return Err(Failure::plain(format!("{} ended as {end:?}", task.id)));
            };
            let before = self.results.insert(task.id.clone(), result.to_vec());
            if before.is_some_and(|before| before != *result) {
                return Err(Failure::plain(format!("{} has a second result", task.id)));
            }
        }
        Ok(self.results.len())
    }

    /// Starts the next scene when it is due.
    async fn directs(
        &mut self,
        done: usize,
        master: Option<usize>,
        snapshot: &CrewSnapshot,
    ) -> Result<(), Failure> {
        let next = match (self.scene, master) {
            (Scene::Calm, Some(master)) if done >= TASKS / 5 => Scene::MasterCut(master),
            (Scene::MasterCut(cut), Some(master)) if master != cut => Scene::Replaced,
            (Scene::Replaced, Some(master)) if done >= TASKS / 2 => {
                let there = |at: &usize| *at != master && self.worker(*at, snapshot).is_some();
                let Some(lost) = (0..self.programs.len()).rev().find(there) else { return Ok(()) };
                Scene::WorkerLost(lost)
            }
            (Scene::WorkerLost(lost), _) if self.worker(lost, snapshot).is_none() => Scene::Last,
            _ => return Ok(()),
        };
        self.board.clear()?;
        match (self.scene, next) {
            (_, Scene::MasterCut(cut)) => {
                self.programs[cut].tell("is the master")?;
                self.programs[cut].lose_network("its tasks, and the lead, go to others").await?;
            }
            (_, Scene::Replaced) => {
                if let Some(master) = master {
                    self.programs[master].tell("is the next master")?;
                }
            }
            (_, Scene::WorkerLost(lost)) => {
                self.programs[lost].lose_power("its tasks wait for the end of its session").await?;
            }
            (Scene::WorkerLost(lost), _) => {
                let what = format!(
                    "{}'s session is over, and its tasks are assigned to others",
                    self.programs[lost].name
                );
                self.dan.teller.tell("store", &what, None)?;
            }
            _ => {}
        }
        self.scene = next;
        Ok(())
    }

    /// The worker of a program, if it exists.
    fn worker<'s>(&self, program: usize, snapshot: &'s CrewSnapshot) -> Option<&'s ShownWorker> {
        let name = self.programs[program].name;
        let has_name =
            |worker: &&ShownWorker| worker.offers.properties().values().any(|it| it == name);
        snapshot.workers.iter().find(has_name)
    }

    fn table(&self, done: usize, master: Option<usize>, snapshot: &CrewSnapshot) -> Vec<String> {
        let line = |(at, program): (usize, &Program)| {
            let role = if master == Some(at) { "master" } else { "" };
            let Some(worker) = self.worker(at, snapshot) else {
                return format!("        {:<6}{role:<8}not there", program.name);
            };
            let has =
                snapshot.tasks.iter().filter(|task| task.worker.as_ref() == Some(&worker.name));
            let tasks: Vec<_> = has.map(|task| task.id.as_str()).collect();
            format!("        {:<6}{role:<8}{}", program.name, tasks.join("  "))
        };
        let mut lines: Vec<_> = self.programs.iter().enumerate().map(line).collect();
        let bar = format!("{}{}", "#".repeat(done), ".".repeat(TASKS.saturating_sub(done)));
        lines.push(format!("        done  {bar} {done}"));
        lines
    }
}
