//! [`Sim`]: one history, before it runs.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use synod_core::choice::{Choice, Spot};
use synod_core::path::Path;
use synod_core::store::Backend;
use synod_mem::cluster::{Flaw, Personality, Rates, Site};

use crate::findings::Truth;
use crate::ledger::Ledger;
use crate::process::Process;
use crate::report::Report;
use crate::run::run;
use crate::slip::Slip;

/// The function of a process.
pub(crate) type Body =
    Arc<dyn Fn(Process) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// What stands between a process and the store.
pub type Way = Arc<dyn Fn(Arc<dyn Backend>) -> Arc<dyn Backend>>;

pub(crate) type Around = Box<dyn FnOnce(Arc<dyn Backend>) -> Way>;

/// What is looked at in the end. The law that is broken, and how.
pub(crate) type Check = Box<dyn FnOnce(&Truth) -> Result<(), (String, String)>>;

/// What must become true once everything is mended.
pub(crate) type Hope =
    Box<dyn FnOnce(Process) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>>>;

/// One history, before it runs.
#[must_use = "nothing runs before `run`"]
pub struct Sim {
    pub(crate) seed: u64,
    pub(crate) personality: Personality,
    pub(crate) rates: Rates,
    pub(crate) swarms: bool,
    pub(crate) choice: Choice<Site>,
    /// What is picked; all that is if nothing is said.
    pub(crate) picks: Option<Vec<Site>>,
    pub(crate) keep_trace: bool,
    pub(crate) ttl: Duration,
    pub(crate) limit: Duration,
    pub(crate) mending: Option<Mending>,
    pub(crate) around: Option<Around>,
    pub(crate) flaw: Option<Flaw>,
    pub(crate) slip: Option<Slip>,
    pub(crate) absent: BTreeSet<u64>,
    pub(crate) rounds: u64,
    pub(crate) late: String,
    pub(crate) given: Vec<(Path, Bytes)>,
    pub(crate) aged: Vec<Path>,
    pub(crate) bodies: Vec<(String, Body)>,
    pub(crate) checks: Vec<Check>,
    pub(crate) hopes: Vec<(String, Hope)>,
}

/// What is mended at the end of the safety phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mending {
    /// Everything.
    All,
    /// Two of the servers and some of the processes. The rest is frozen for ever.
    Core,
}

impl Sim {
    /// A history by this seed, in which everything goes wrong that can.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            personality: Personality::Ideal,
            rates: Rates::usual(),
            swarms: true,
            choice: Choice::seeded(seed),
            picks: None,
            keep_trace: false,
            ttl: Duration::from_secs(1),
            limit: Duration::from_secs(60),
            mending: None,
            around: None,
            flaw: None,
            slip: None,
            absent: BTreeSet::new(),
            rounds: u64::MAX,
            late: "L-OUT-5".to_owned(),
            given: Vec::new(),
            aged: Vec::new(),
            bodies: Vec::new(),
            checks: Vec::new(),
            hopes: Vec::new(),
        }
    }

    /// Sets whose habits the store has.
    pub fn personality(mut self, personality: Personality) -> Self {
        self.personality = personality;
        self
    }

    /// Changes how often things go wrong, before the swarm has its say.
    pub fn rates(mut self, change: impl FnOnce(Rates) -> Rates) -> Self {
        self.rates = change(self.rates);
        self
    }

    /// Every fault at its rate: no swarm switches some of them off.
    pub fn steady(mut self) -> Self {
        self.swarms = false;
        self
    }

    /// Switches off what fired at these spots, and leaves all else where it was.
    pub fn without(mut self, spots: impl IntoIterator<Item = Spot<Site>>) -> Self {
        self.choice = self.choice.without(spots);
        self
    }

    /// Sets who decides, in place of the seed.
    pub fn choice(mut self, choice: Choice<Site>) -> Self {
        self.choice = choice;
        self
    }

    /// Picks only at these sites, and the first at all others; tasks run in the order in which they
    /// were started. For small worlds in which every way is gone.
    pub fn picking(mut self, sites: impl IntoIterator<Item = Site>) -> Self {
        self.picks = Some(sites.into_iter().collect());
        self
    }

    /// Keeps every line of the trace.
    pub fn traced(mut self) -> Self {
        self.keep_trace = true;
        self
    }

    /// Sets the time to live of all sessions. A second unless said otherwise.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets how long the safety phase lasts at most, in virtual time. A minute unless said otherwise.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sets what is mended after the safety phase. By the seed unless said otherwise.
    pub fn mending(mut self, mending: Mending) -> Self {
        self.mending = Some(mending);
        self
    }

    /// Puts something between the processes and the store. `layer` is given a way to the store that is
    /// nobody's, and returns what it puts around each process's own.
    pub fn around(mut self, layer: impl FnOnce(Arc<dyn Backend>) -> Way + 'static) -> Self {
        self.around = Some(Box::new(layer));
        self
    }

    /// Lets the servers make a mistake, for the tests of tests.
    pub fn flawed(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    /// Lets the processes of a workload, or their way to the store, make a mistake, for the tests of
    /// tests.
    pub fn slipping(mut self, slip: Slip) -> Self {
        self.slip = Some(slip);
        self
    }

    /// Leaves some processes out, by their numbers: all else stays as it was.
    pub fn absent(mut self, numbers: impl IntoIterator<Item = u64>) -> Self {
        self.absent.extend(numbers);
        self
    }

    /// Sets how many rounds a process makes at most: what [`Process::rounds`] is at most.
    pub fn rounds(mut self, most: u64) -> Self {
        self.rounds = most;
        self
    }

    /// Leaves nothing to chance at these sites: at [`Site::Delay`] nothing takes time, at [`Site::Turn`]
    /// tasks have their turns in the order of their birth.
    pub fn still(mut self, sites: impl IntoIterator<Item = Site>) -> Self {
        self.choice = self.choice.still(sites);
        self
    }

    /// Lets a node be there from the beginning. They are created in this order, at the revisions
    /// from 1.
    pub fn given(mut self, path: Path, data: impl Into<Bytes>) -> Self {
        self.given.push((path, data.into()));
        self
    }

    /// Lets a directory be there from the beginning. Its sequences may be near their end, if that is
    /// what goes wrong.
    pub fn aged(mut self, dir: Path) -> Self {
        self.aged.push(dir);
        self
    }

    /// Adds a process. When it crashes it is started again.
    pub fn process<F>(
        mut self,
        name: impl Into<String>,
        body: impl Fn(Process) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.bodies.push((name.into(), Arc::new(move |me| Box::pin(body(me)))));
        self
    }

    /// Adds some processes that do the same.
    pub fn processes<F>(
        mut self,
        count: usize,
        body: impl Fn(Process) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        const NAMES: [&str; 8] = ["ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal"];
        for number in 0..count {
            let name = NAMES.get(number).map_or_else(|| format!("p{number}"), ToString::to_string);
            self = self.process(name, body.clone());
        }
        self
    }

    /// The law that is broken if somebody does not come to his end once everything works. L-OUT-5 unless
    /// said otherwise.
    pub fn must_end(mut self, law: impl Into<String>) -> Self {
        self.late = law.into();
        self
    }

    /// What must be so of all that happened, looked at in the end. `law` is an id or a sentence.
    pub fn check(
        mut self,
        law: impl Into<String>,
        check: impl FnOnce(&Truth) -> Result<(), String> + 'static,
    ) -> Self {
        let law = law.into();
        self.checks.push(Box::new(move |truth| check(truth).map_err(|what| (law, what))));
        self
    }

    /// Checks what the writes of a ledger were told: L-OUT-1 to L-OUT-3.
    pub fn ledger(mut self, ledger: &Ledger) -> Self {
        let ledger = ledger.clone();
        let check = move |truth: &Truth| ledger.check(truth);
        self.checks.push(Box::new(move |truth| {
            check(truth).map_err(|(law, what)| (law.to_owned(), what))
        }));
        self
    }

    /// What must be so once everything is mended, found out by a process of its own.
    pub fn eventually<F>(
        mut self,
        law: impl Into<String>,
        hope: impl FnOnce(Process) -> F + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.hopes.push((law.into(), Box::new(move |me| Box::pin(hope(me)))));
        self
    }

    /// Runs it.
    ///
    /// # Panics
    ///
    /// Within another simulation, or where no runtime can be made.
    pub fn run(self) -> Report {
        run(self)
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim")
            .field("seed", &self.seed)
            .field("personality", &self.personality)
            .field("processes", &self.bodies.len())
            .finish_non_exhaustive()
    }
}
