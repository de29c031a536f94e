//! [`Hunt`]: runs one world under many seeds, on several threads, and reports the result.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::cluster::{Fault, Personality, Rates, Site};

use crate::bad_case::BadCase;
use crate::case::Case;
use crate::failure::{self, Failure};
use crate::progress::ProgressLines;
use crate::report::Report;
use crate::setup::Sim;
use crate::workload::{self, Workload};

/// Seeds that one thread takes at a time.
const CHUNK: u64 = 16;

/// A mark should be reached in at least one of this number of histories.
const SELDOM: u64 = 1_000;

/// The environment variables for the number of seeds, and for a single seed.
const SEEDS: &str = "SYNOD_SIM_SEEDS";
const SEED: &str = "SYNOD_SIM_SEED";

/// Adds the processes and the checks to a simulation.
type Prepare = Arc<dyn Fn(Sim) -> Sim + Send + Sync>;

/// Many seeds of one world.
///
/// ```
/// use synod_sim::{Hunt, Process};
///
/// async fn idle(me: Process) {
///     let Ok(client) = me.client().await else { return };
///     me.sometimes("there was a session", client.session().await.is_ok());
/// }
///
/// let found = Hunt::new("idlers", |sim| sim.processes(2, idle)).seeds(0..50).run();
/// found.expect_clean();
/// assert!(found.tally.marks["there was a session"] > 0);
/// ```
#[derive(Clone)]
#[must_use = "nothing runs before `run`"]
pub struct Hunt {
    name: String,
    prepare: Prepare,
    personalities: Vec<Personality>,
    seeds: Range<u64>,
    jobs: usize,
    mutant: Option<String>,
    without: Vec<u8>,
    goes_on: bool,
    marks: Vec<&'static str>,
    unreached: BTreeSet<Site>,
}

/// The result of a hunt.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[must_use = "a failure must be looked at"]
pub struct Found {
    /// Statistics of all histories.
    pub tally: Tally,
    /// The first history that failed, if there was one.
    pub failure: Option<Failure>,
}

/// Statistics of some histories.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Tally {
    /// The number of histories.
    pub histories: u64,
    /// The total virtual time.
    pub lasted: Duration,
    /// The total number of task turns: a measure of cost that does not depend on the machine.
    pub turns: u64,
    /// Number of times that each kind of fault happened.
    pub fired: BTreeMap<Site, u64>,
    /// Number of times that each mark was reached.
    pub marks: BTreeMap<&'static str, u64>,
    /// The histories that failed, each with the law that it broke.
    pub failures: Vec<Case>,
}

impl Hunt {
    /// Creates a hunt in the caller's own world.
    pub fn new(
        name: impl Into<String>,
        prepare: impl Fn(Sim) -> Sim + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            prepare: Arc::new(prepare),
            personalities: vec![Personality::Ideal, Personality::Zk, Personality::Etcd],
            seeds: 0..1_000,
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            mutant: None,
            without: Vec::new(),
            goes_on: false,
            marks: Vec::new(),
            unreached: BTreeSet::new(),
        }
    }

    /// A hunt in one of the workloads that come with the simulator.
    ///
    /// # Errors
    ///
    /// [`BadCase::NoWorkload`] if there is no workload of this name.
    pub fn workload(name: &str) -> Result<Self, BadCase> {
        let workload: &'static dyn Workload =
            workload::by_name(name).ok_or_else(|| BadCase::NoWorkload(name.to_owned()))?;
        let mut hunt = Self::new(name, move |sim| workload.prepare(sim));
        hunt.marks = workload.marks().to_vec();
        hunt.unreached = workload.unreached().into_iter().collect();
        Ok(hunt)
    }

    /// Sets the seeds. By default there are a thousand.
    pub fn seeds(mut self, seeds: Range<u64>) -> Self {
        self.seeds = seeds;
        self
    }

    /// Takes the seeds from the environment, if they are set there: `SYNOD_SIM_SEEDS=100000` for
    /// that number of seeds, `SYNOD_SIM_SEED=0x2f` for a single seed.
    ///
    /// # Panics
    ///
    /// If a variable is not a number.
    pub fn or_as_told(self) -> Self {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            Some(seed(&text).unwrap_or_else(|| panic!("{name}={text} is no number")))
        };
        match (number(SEED), number(SEEDS)) {
            (Some(seed), _) => self.seeds(seed..seed + 1),
            (None, Some(count)) => self.seeds(0..count),
            (None, None) => self,
        }
    }

    /// Sets the personalities of the store, which seeds use in turn. By default `ideal`, `zk` and
    /// `etcd`.
    ///
    /// # Panics
    ///
    /// If there are no personalities.
    pub fn personalities(mut self, personalities: impl Into<Vec<Personality>>) -> Self {
        self.personalities = personalities.into();
        assert!(!self.personalities.is_empty(), "a store has some habits");
        self
    }

    /// Sets the number of threads. By default one per processor.
    pub fn jobs(mut self, jobs: usize) -> Self {
        self.jobs = jobs.max(1);
        self
    }

    /// Makes a known mistake, by its name.
    pub fn mutant(mut self, name: impl Into<String>) -> Self {
        self.mutant = Some(name.into());
        self
    }

    /// Switches a fault off.
    pub fn without(mut self, fault: Fault) -> Self {
        self.without.push(fault.number());
        self
    }

    /// Continues after a history fails, and counts the failures.
    pub fn to_the_end(mut self) -> Self {
        self.goes_on = true;
        self
    }

    /// Runs the seeds, and reduces the first history that fails. If this takes more than a second,
    /// its state is written to the standard error, at most one line per second. The seed and the
    /// law of a failure are written before the reduction, which runs up to 600 histories.
    ///
    /// # Panics
    ///
    /// If the hunt names a mistake that does not exist.
    pub fn run(&self) -> Found {
        self.run_with(&ProgressLines::new(&self.name))
    }

    fn run_with(&self, progress: &ProgressLines) -> Found {
        let (done, of) = (AtomicU64::new(0), self.seeds.end.saturating_sub(self.seeds.start));
        let count = |more| {
            let done = done.fetch_add(more, Ordering::Relaxed) + more;
            progress.histories(done, of);
        };
        let tally = self.count(&count).unwrap_or_else(|error| panic!("{error}"));
        let failure = tally.failures.first().and_then(|case| self.explain_with(case, progress));
        Found { tally, failure }
    }

    /// Runs the seeds, and calls `done` with the number of further finished seeds.
    ///
    /// # Errors
    ///
    /// If the hunt names a mistake that does not exist.
    pub fn count(&self, done: &(dyn Fn(u64) + Sync)) -> Result<Tally, BadCase> {
        let (next, over) = (AtomicU64::new(self.seeds.start), AtomicBool::new(false));
        let all = Mutex::new(Ok(Tally::default()));
        let work = || {
            while !over.load(Ordering::Relaxed) {
                let from = next.fetch_add(CHUNK, Ordering::Relaxed);
                if from >= self.seeds.end {
                    break;
                }
                let chunk = self.chunk(from..(from + CHUNK).min(self.seeds.end), done);
                let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                match (&mut *all, chunk) {
                    (Ok(all), Ok(chunk)) => {
                        all.add(chunk);
                        let stops = !self.goes_on && !all.failures.is_empty();
                        over.fetch_or(stops, Ordering::Relaxed);
                    }
                    (all, Err(error)) => {
                        *all = Err(error);
                        over.store(true, Ordering::Relaxed);
                    }
                    (Err(_), _) => {}
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.jobs {
                scope.spawn(work);
            }
        });
        let tally = all.into_inner().unwrap_or_else(PoisonError::into_inner);
        tally.map(|mut tally| {
            tally.failures.sort_by_key(|case| case.seed);
            for mark in &self.marks {
                tally.marks.entry(mark).or_default();
            }
            tally
        })
    }

    fn chunk(&self, seeds: Range<u64>, done: &dyn Fn(u64)) -> Result<Tally, BadCase> {
        let mut tally = Tally::default();
        for seed in seeds {
            let mut case = self.case(seed);
            let report = case.run_in(&*self.prepare, false)?;
            tally.note(&report);
            done(1);
            if let Some(violation) = report.violation {
                case.law = Some(violation.law);
                tally.failures.push(case);
                if !self.goes_on {
                    break;
                }
            }
        }
        Ok(tally)
    }

    /// The case of a seed.
    pub fn case(&self, seed: u64) -> Case {
        let count = self.personalities.len() as u64;
        let place = usize::try_from(seed % count).unwrap_or(0);
        let mut case = Case::new(&self.name, self.personalities[place], seed);
        case.mutant.clone_from(&self.mutant);
        case.without.clone_from(&self.without);
        case
    }

    /// Reduces a case that failed, and explains it. Writes its state to the standard error, as
    /// [`Self::run`] does.
    pub fn explain(&self, case: &Case) -> Option<Failure> {
        self.explain_with(case, &ProgressLines::new(&self.name))
    }

    fn explain_with(&self, case: &Case, progress: &ProgressLines) -> Option<Failure> {
        let again = match workload::by_name(&self.name) {
            Some(_) => failure::command(case),
            None => format!("{SEED}={:#x}, and this program again", case.seed),
        };
        progress.failed(case, &again);
        let mut failure = Failure::of_prepared(case, &*self.prepare, &|runs, faults| {
            progress.reduced(runs, faults);
        });
        if let Ok(Some(failure)) = &mut failure {
            failure.again = again;
        }
        failure.ok().flatten()
    }

    /// The marks that were reached in fewer than one history of a thousand: their checks test less
    /// than they seem to.
    pub fn missed(&self, tally: &Tally) -> Vec<&'static str> {
        let seldom = |times: u64| times.saturating_mul(SELDOM) < tally.histories;
        let missed = tally.marks.iter().filter(|(_, times)| seldom(**times));
        missed.map(|(mark, _)| *mark).collect()
    }

    /// The faults that could happen in this world but never did.
    pub fn idle(&self, tally: &Tally) -> BTreeSet<Site> {
        let all = self.personalities.iter().flat_map(|personality| self.rates(*personality));
        let expected = all.filter(|site| !self.unreached.contains(site));
        expected.filter(|site| !tally.fired.contains_key(site)).collect()
    }

    /// The faults that can happen elsewhere, but not in this world.
    pub fn unreached(&self) -> &BTreeSet<Site> {
        &self.unreached
    }

    /// The faults that can happen in this world.
    fn rates(&self, personality: Personality) -> Vec<Site> {
        let sim = (self.prepare)(Sim::new(0).personality(personality));
        let rates: Rates = sim.rates;
        Site::all().filter(|site| rates.of(*site) > 0 && !personality.never(*site)).collect()
    }
}

impl Tally {
    fn note(&mut self, report: &Report) {
        self.histories += 1;
        self.lasted += report.lasted;
        self.turns += report.turns;
        for fired in &report.fired {
            *self.fired.entry(fired.spot.site).or_default() += 1;
        }
        for (mark, times) in &report.marks {
            *self.marks.entry(mark).or_default() += times;
        }
    }

    /// Adds other statistics.
    pub fn add(&mut self, other: Self) {
        self.histories += other.histories;
        self.lasted += other.lasted;
        self.turns += other.turns;
        self.failures.extend(other.failures);
        for (site, times) in other.fired {
            *self.fired.entry(site).or_default() += times;
        }
        for (mark, times) in other.marks {
            *self.marks.entry(mark).or_default() += times;
        }
    }
}

impl Found {
    /// Asserts that no history failed.
    ///
    /// # Panics
    ///
    /// If a history failed. The message has its full explanation.
    pub fn expect_clean(&self) {
        if let Some(failure) = &self.failure {
            panic!("after {} histories:\n\n{failure}", self.tally.histories);
        }
    }
}

/// A seed, decimal or hexadecimal.
fn seed(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

impl fmt::Debug for Hunt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hunt")
            .field("name", &self.name)
            .field("seeds", &self.seeds)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Process;
    use crate::progress::tests::Lines;

    async fn counts_to_three(me: Process) {
        for number in 0..3 {
            me.rest(Duration::from_millis(10)).await;
            me.always("it never counts to two", number < 2);
        }
    }

    #[test]
    fn the_seed_and_the_law_of_a_failure_come_before_its_reduction() {
        let lines = Lines::default();
        let hunt = Hunt::new("test", |sim| sim.processes(1, counts_to_three)).seeds(0x2f..0x30);
        let found = hunt.run_with(&lines.progress(Duration::ZERO));
        assert!(found.failure.is_some());
        let text = lines.text();
        let (before, after) = text.split_once("It is being reduced.").expect("it was reduced");
        assert!(before.contains("1 of 1 histories\n"), "{text}");
        assert!(before.contains("seed 0x2f on etcd breaks: it never counts to two"), "{text}");
        assert!(before.contains("again: SYNOD_SIM_SEED=0x2f"), "{text}");
        assert!(after.contains("reduced to 0 faults in"), "{text}");
    }
}
