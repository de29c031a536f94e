//! [`Race`]: the same work by several clients in turn, in many short rounds.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::spread::Spread;
use crate::table::{self, Row};

/// What is done, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "whoever races does all of it")]
pub enum Work {
    /// Reads a node as this session last heard of it.
    GetLocal,
    /// Reads a node as it is now.
    Get,
    /// Replaces the data of a node.
    Set,
    /// Creates a node that must not be there and goes with the session, then deletes it.
    CreateDelete,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::GetLocal => "get local",
            Self::Get => "get",
            Self::Set => "set",
            Self::CreateDelete => "create+delete",
        })
    }
}

/// One client that works.
#[async_trait]
pub trait Racer: Send + Sync + 'static {
    /// Does it so many times, one after the other, with the nodes that are this lane's.
    async fn run(&self, work: Work, lane: usize, laps: usize);
}

/// A racer and what the table calls it.
pub type Named = (&'static str, Arc<dyn Racer>);

/// How many are in flight at a time.
const FLIGHTS: [usize; 3] = [1, 16, 64];

/// How thoroughly it is raced.
#[derive(Clone, Copy, Debug)]
struct Pace {
    rounds: usize,
    /// How long one racer works in one round, about.
    round: Duration,
}

/// What is measured of a lap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    /// How long it takes.
    Time,
    /// How long the processor works for it in this thread, where Linux tells. The server's work is
    /// not in it, and what others do on the machine disturbs it less.
    Work,
}

const THOROUGH: Pace = Pace { rounds: 80, round: Duration::from_millis(40) };
const QUICK: Pace = Pace { rounds: 10, round: Duration::from_millis(20) };

/// All racers do the same work on one server, each in its turn.
pub struct Race {
    /// The first is who the others are compared with.
    racers: Vec<Named>,
    pace: Pace,
    measure: Measure,
}

impl Race {
    /// A race of `others` against `bare`.
    pub fn new(bare: Named, others: impl IntoIterator<Item = Named>) -> Self {
        let said = |word: &str| std::env::args().any(|argument| argument == word);
        let racers = std::iter::once(bare).chain(others).collect();
        let measure = if said("--cpu") { Measure::Work } else { Measure::Time };
        Self { racers, pace: if said("--quick") { QUICK } else { THOROUGH }, measure }
    }

    /// Races all of it, and prints the table.
    pub async fn all(&self, works: &[Work]) {
        let wanted = wanted();
        table::print_head(&self.names());
        for work in works {
            let name = work.to_string();
            if wanted.as_ref().is_some_and(|wanted| *wanted != name) {
                continue;
            }
            for flight in FLIGHTS {
                table::print(&self.run(*work, flight).await);
            }
        }
    }

    /// The names, in the order of a [`Row`].
    fn names(&self) -> Vec<&'static str> {
        self.racers.iter().map(|(name, _)| *name).collect()
    }

    /// Races with so many in flight at a time.
    ///
    /// Who begins changes from round to round, so that nobody always has the warm server. Ratios are
    /// those of one round, whose parts are some milliseconds apart: what disturbs the machine for
    /// longer disturbs all.
    async fn run(&self, work: Work, flight: usize) -> Row {
        let laps = self.warm_up(work, flight).await;
        let mut times = vec![Vec::new(); self.racers.len()];
        for round in 0..self.pace.rounds {
            for turn in 0..self.racers.len() {
                let place = (round + turn) % self.racers.len();
                let before = self.measure.now();
                lap(&self.racers[place].1, work, flight, laps).await;
                let took = self.measure.now().saturating_sub(before);
                times[place].push(took.as_secs_f64());
            }
        }
        let calls = f64::from(u32::try_from(laps * flight).unwrap_or(u32::MAX));
        let speeds = times.iter().map(|times| Spread::of(times.iter().map(|time| calls / time)));
        let ratios = times[1..]
            .iter()
            .map(|own| Spread::of(times[0].iter().zip(own).map(|(bare, own)| bare / own)));
        Row { work, flight, speeds: speeds.collect(), ratios: ratios.collect() }
    }

    /// Lets everybody work until what the slowest does takes its time. How many laps that are.
    async fn warm_up(&self, work: Work, flight: usize) -> usize {
        let mut laps = 1;
        loop {
            let mut slowest = Duration::ZERO;
            for (_, racer) in &self.racers {
                let started = Instant::now();
                lap(racer, work, flight, laps).await;
                slowest = slowest.max(started.elapsed());
            }
            if slowest >= self.pace.round {
                return laps;
            }
            laps *= 2;
        }
    }
}

/// The one kind of work that is asked for.
fn wanted() -> Option<String> {
    std::env::args().nth(1).filter(|argument| !argument.starts_with('-'))
}

/// Whether everything is to be measured, and not one kind of work.
pub fn is_all() -> bool {
    wanted().is_none()
}

/// Runs races on one thread: what a client costs is then the same thread's time for everybody.
///
/// # Panics
///
/// If the operating system has no place for a runtime.
pub fn on_one_thread(races: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(races);
}

async fn lap(racer: &Arc<dyn Racer>, work: Work, flight: usize, laps: usize) {
    let mut lanes = JoinSet::new();
    for lane in 0..flight {
        let racer = racer.clone();
        lanes.spawn(async move { racer.run(work, lane, laps).await });
    }
    // What a lane could not do has to end the benchmark.
    lanes.join_all().await;
}

impl Measure {
    /// How far it has come.
    fn now(self) -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();

        match self {
            Self::Time => START.get_or_init(Instant::now).elapsed(),
            Self::Work => {
                let told = std::fs::read_to_string("/proc/thread-self/schedstat");
                let told = told.expect("only Linux tells how much a thread worked");
                let spent = told.split(' ').next().and_then(|spent| spent.parse().ok());
                Duration::from_nanos(spent.expect("the first number"))
            }
        }
    }
}

impl fmt::Debug for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Race")
            .field("racers", &self.names())
            .field("pace", &self.pace)
            .finish_non_exhaustive()
    }
}
