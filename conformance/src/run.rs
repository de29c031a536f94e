//! [`Suite`]: runs the cases against a backend, as tests or from a program.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use libtest_mimic::{Arguments, Failed, Trial};
use synod_core::random::{Random, mix};
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use crate::case::Case;
use crate::cases::cases;
use crate::harness::{Ability, Harness};
use crate::panics;
use crate::workers::{Ended, observed};
use crate::world::World;
use synod_testkit::limit::{last_step, limited};

mod watchdog;

/// All cases, and a function that makes a harness for each of them.
#[derive(Clone)]
pub struct Suite {
    build: Arc<Build>,
    paused: bool,
    workers: Option<usize>,
    seed: Option<u64>,
    hang: Duration,
    at_once: Option<usize>,
}

/// The time limit of a case that blocks its thread, for example in a deadlock. All other waits of a
/// case have shorter limits.
const BLOCKED: Duration = Duration::from_secs(30 * 60);

/// The time to wait for the threads of a case after its own watchdog's time limit.
const OVERTIME: Duration = Duration::from_secs(10);

type Build = dyn Fn(&[Ability]) -> Result<Arc<dyn Harness>, String> + Send + Sync;

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "what did not run is never shown as passed")]
pub enum Verdict {
    /// The store keeps the law.
    Passed,
    /// The store does not keep the law, or something panicked.
    Failed {
        /// The expected result, the actual result, and the seed.
        why: String,
    },
    /// The case was not run.
    Skipped {
        /// The ability that the harness lacks.
        why: String,
    },
}

/// The results of all cases.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Each case, run or not, in order, with its result.
    pub results: Vec<(&'static Case, Verdict)>,
}

impl Suite {
    /// Each case gets a harness from `build`, which is called within the case's own runtime.
    pub fn new<H: Harness>(build: impl Fn() -> H + Send + Sync + 'static) -> Self {
        Self::fallible(move || Ok(build()))
    }

    /// Like [`Suite::new`], where a harness may be missing: the error is the reason that no case
    /// can run.
    pub fn fallible<H: Harness>(
        build: impl Fn() -> Result<H, String> + Send + Sync + 'static,
    ) -> Self {
        Self::by_need(move |_needs| build())
    }

    /// Like [`Suite::fallible`], if not every harness has every ability: each case gets a harness
    /// with the abilities that it needs. All of them have the same profile.
    pub fn by_need<H: Harness>(
        build: impl Fn(&[Ability]) -> Result<H, String> + Send + Sync + 'static,
    ) -> Self {
        let build =
            move |needs: &_| build(needs).map(|harness| Arc::new(harness) as Arc<dyn Harness>);
        let hang = Duration::from_secs(120);
        let build = Arc::new(build);
        Self { build, paused: false, workers: None, seed: None, hang, at_once: None }
    }

    /// Runs on virtual time, which jumps ahead whenever all tasks wait. Only for a store that lives
    /// in the process.
    pub fn on_paused_time(mut self) -> Self {
        (self.paused, self.workers) = (true, None);
        self
    }

    /// Runs each case on a runtime with this many worker threads, in real time. By default a case
    /// has one thread for everything.
    ///
    /// A backend needs both: on one thread no task runs while another is between two awaits, so
    /// only several threads find locks that are taken twice, and answers that arrive before the
    /// caller waits.
    /// The case itself runs on a thread of its own, in addition to the workers. The seed of a
    /// failure does not repeat the timing of the threads.
    pub fn on_workers(mut self, workers: usize) -> Self {
        (self.paused, self.workers) = (false, Some(workers));
        self
    }

    /// Derives every choice from this seed. By default each run has a new one, which failures
    /// report.
    pub fn seeded(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the real time for which one case may use a processor before it is abandoned. It affects
    /// no verdict about a store whose calls end.
    pub fn give_up_after(mut self, hang: Duration) -> Self {
        self.hang = hang;
        self
    }

    /// Sets the number of cases that run at a time, unless the arguments set it; by default the
    /// number of processors. For stores whose cases wait more than they work.
    pub fn at_once(mut self, cases: usize) -> Self {
        self.at_once = Some(cases);
        self
    }

    /// The main function of a test binary: lists or runs the cases, with the arguments of a usual
    /// Rust test.
    ///
    /// The environment variable `SYNOD_SEED` repeats the choices of a run that failed.
    pub fn main(self) -> ExitCode {
        Self::main_of(vec![("", self)])
    }

    /// [`Suite::main`] for several stores: the name of each case begins with that of its store.
    pub fn main_of(suites: Vec<(&str, Self)>) -> ExitCode {
        let mut arguments = Arguments::from_args();
        let mut trials = Vec::new();
        for (store, suite) in suites {
            let suite = match suite.seeded_by_environment() {
                Ok(suite) => suite,
                Err(why) => {
                    #[expect(clippy::print_stderr, reason = "it says why it does not run")]
                    {
                        eprintln!("{why}");
                    }
                    return ExitCode::FAILURE;
                }
            };
            arguments.test_threads = arguments.test_threads.or(suite.at_once);
            trials.extend(suite.trials(store));
        }
        libtest_mimic::run(&arguments, trials).exit_code()
    }

    fn seeded_by_environment(self) -> Result<Self, String> {
        let given = std::env::var("SYNOD_SEED").ok();
        let parsed = given.as_deref().map(|text| {
            let digits = text.strip_prefix("0x").unwrap_or(text);
            u64::from_str_radix(digits, 16)
        });
        match parsed {
            None => Ok(self),
            Some(Ok(seed)) => Ok(self.seeded(seed)),
            Some(Err(error)) => Err(format!("SYNOD_SEED is not a number in hexadecimal: {error}")),
        }
    }

    /// The cases as trials, for a test binary that also has others. The name of each begins with
    /// that of its store.
    pub fn trials(&self, store: &str) -> Vec<Trial> {
        let obstacle = self.obstacles();
        cases().map(|case| self.trial(store, case, obstacle(case))).collect()
    }

    fn trial(&self, store: &str, case: &'static Case, obstacle: Option<String>) -> Trial {
        let suite = self.clone();
        let name = [store, case.name()].join(if store.is_empty() { "" } else { "::" });
        let trial = Trial::test(name, move || match limited(BLOCKED, move || suite.run(case))? {
            Verdict::Passed => Ok(()),
            Verdict::Failed { why } => Err(Failed::from(why)),
            Verdict::Skipped { why } => Err(Failed::from(format!("cannot run: {why}"))),
        });
        match obstacle {
            Some(why) => trial.with_ignored_flag(true).with_kind(format!("cannot run: {why}")),
            None => trial,
        }
    }

    /// Runs every case that can run, and reports each at its end.
    pub fn run_all(&self, mut on_result: impl FnMut(&'static Case, &Verdict)) -> Report {
        let mut report = Report::default();
        for case in cases() {
            let verdict = self.run(case);
            on_result(case, &verdict);
            report.results.push((case, verdict));
        }
        report
    }

    /// Runs one case: on this thread, or on its own threads (see [`Suite::on_workers`]).
    ///
    /// A case that waits for ever ends with a description of the awaited event. A panic, the case's
    /// own or one in a task of the store, is caught and becomes the reason; nothing is printed.
    pub fn run(&self, case: &Case) -> Verdict {
        let seed = self.seed.unwrap_or_else(|| Random::from_system().number());
        let (ended, said) = match self.workers {
            None => panics::capture(|| self.run_here(case, seed)),
            Some(workers) => {
                let (suite, case) = (self.clone(), *case);
                // The inner watchdog reports first, unless its thread is blocked.
                observed(workers, self.hang + OVERTIME, move || suite.act(case, seed))
            }
        };
        match (ended, said.first()) {
            (Ended::With(Verdict::Skipped { why }), _) => Verdict::Skipped { why },
            (Ended::With(verdict), None) => with_seed(verdict, seed),
            (_, Some(first)) => {
                // The last message may summarize the others.
                let last = said.last().filter(|last| *last != first);
                let why = last.map_or_else(|| first.clone(), |last| format!("{first}; {last}"));
                with_seed(Verdict::Failed { why }, seed)
            }
            (Ended::ByPanic, None) => {
                with_seed(Verdict::Failed { why: "it panicked without a word".into() }, seed)
            }
            (Ended::Not, None) => {
                let why = format!("a thread is blocked: no end within {:?}", self.hang + OVERTIME);
                with_seed(Verdict::Failed { why }, seed)
            }
        }
    }

    fn run_here(&self, case: &Case, seed: u64) -> Ended<Verdict> {
        let runtime = self.runtime();
        let act = || runtime.block_on(self.clone().act(*case, seed));
        let returned = catch_unwind(AssertUnwindSafe(act));
        // Remaining tasks are dropped here; a thread that does not end is not awaited.
        runtime.shutdown_background();
        returned.map_or(Ended::ByPanic, Ended::With)
    }

    async fn act(self, case: Case, seed: u64) -> Verdict {
        let harness = match (self.build)(case.needs()) {
            Ok(harness) => harness,
            Err(why) => return Verdict::Skipped { why },
        };
        let profile = harness.profile();
        if let Some(why) = profile.obstacle(case.needs()) {
            return Verdict::Skipped { why };
        }
        // Every wait of a case is bounded, so only a case that loops takes this long.
        let limit = (profile.patience + profile.ttl) * 50;
        let random = Random::seeded(seed ^ hash(case.name()));
        let world = World::new(harness, random.fork(1), self.paused, case.needs());
        let act = watchdog::guard(self.hang, (case.act)(world));
        match select(pin!(act), pin!(sleep(limit))).await {
            Either::Left((Ok(()), _)) => Verdict::Passed,
            Either::Left((Err(watchdog::Hung), _)) => Verdict::Failed {
                why: format!("still busy after {:?} of real time{}", self.hang, waiting()),
            },
            Either::Right(_) => {
                Verdict::Failed { why: format!("no end within {limit:?}{}", waiting()) }
            }
        }
    }

    /// The reason that a case cannot run, computed once for all of them.
    fn obstacles(&self) -> impl Fn(&Case) -> Option<String> + use<> {
        let profile = self.runtime().block_on(async { Ok((self.build)(&[])?.profile()) });
        move |case| match &profile {
            Ok(profile) => profile.obstacle(case.needs()),
            Err(why) => Some(String::clone(why)),
        }
    }

    fn runtime(&self) -> Runtime {
        let runtime = Builder::new_current_thread().enable_all().start_paused(self.paused).build();
        runtime.expect("the operating system lets a runtime start")
    }
}

impl Report {
    /// Returns the number of cases that passed.
    pub fn passed(&self) -> usize {
        self.count(|verdict| *verdict == Verdict::Passed)
    }

    /// Returns the number of cases that failed.
    pub fn failed(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Failed { .. }))
    }

    /// Returns the number of cases that could not run.
    pub fn skipped(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Skipped { .. }))
    }

    fn count(&self, which: impl Fn(&Verdict) -> bool) -> usize {
        self.results.iter().filter(|(_, verdict)| which(verdict)).count()
    }
}

impl fmt::Debug for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suite")
            .field("paused", &self.paused)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

fn with_seed(verdict: Verdict, seed: u64) -> Verdict {
    match verdict {
        Verdict::Failed { why } => Verdict::Failed { why: format!("{why} [seed {seed:#x}]") },
        other => other,
    }
}

/// The last step that the case waited for, if that is known.
fn waiting() -> String {
    last_step().map_or_else(String::new, |step| format!(", waiting for {step}"))
}

/// Gives each case its own random numbers.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)))
}

#[cfg(test)]
mod tests;
