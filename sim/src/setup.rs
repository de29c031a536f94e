//! [`Sim`]: one history, before it runs.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{Flaw, Personality, Rates, Site};
use bytes::Bytes;
use synod_core::path::Path;
use synod_core::store::Backend;
use synod_testkit::choice::{Choice, Spot};

use crate::findings::Truth;
use crate::ledger::Ledger;
use crate::process::Process;
use crate::user_mistake::UserMistake;

/// The function of a process.
pub(crate) type Body =
    Arc<dyn Fn(Process) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// A wrapper around the connection of a process to the store.
pub type Way = Arc<dyn Fn(Arc<dyn Backend>) -> Arc<dyn Backend>>;

pub(crate) type Around = Box<dyn FnOnce(Arc<dyn Backend>) -> Way>;

/// A check at the end. Returns the law that is broken, and a description.
pub(crate) type Check = Box<dyn FnOnce(&Truth) -> Result<(), (String, String)>>;

/// A condition that must eventually hold once everything is repaired.
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
    /// The sites at which picks are explored; all if `None`.
    pub(crate) picks: Option<Vec<Site>>,
    pub(crate) keep_trace: bool,
    pub(crate) ttl: Duration,
    pub(crate) limit: Duration,
    pub(crate) mending: Option<Mending>,
    pub(crate) around: Option<Around>,
    pub(crate) flaw: Option<Flaw>,
    pub(crate) user_mistake: Option<UserMistake>,
    pub(crate) absent: BTreeSet<u64>,
    pub(crate) rounds: u64,
    pub(crate) late: String,
    pub(crate) given: Vec<(Path, Bytes)>,
    pub(crate) aged: Vec<Path>,
    pub(crate) bodies: Vec<(String, Body)>,
    pub(crate) checks: Vec<Check>,
    pub(crate) hopes: Vec<(String, Hope)>,
}

/// The repairs at the end of the safety phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mending {
    /// Everything.
    All,
    /// Two of the servers and some of the processes. The rest is frozen for ever.
    Core,
}

impl Sim {
    /// A history with this seed, in which every fault can happen.
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
            user_mistake: None,
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

    /// Sets the personality of the store.
    pub fn personality(mut self, personality: Personality) -> Self {
        self.personality = personality;
        self
    }

    /// Changes the rates of the faults, before the swarm is applied.
    pub fn rates(mut self, change: impl FnOnce(Rates) -> Rates) -> Self {
        self.rates = change(self.rates);
        self
    }

    /// Runs without strangers, which write and remove nodes of others: for workloads whose
    /// guarantees do not cover such clients.
    pub fn without_strangers(self) -> Self {
        let strangers = [Site::Meddled, Site::Emptied].into_iter().filter_map(Site::fault);
        self.rates(|rates| strangers.fold(rates, Rates::without))
    }

    /// Runs every fault at its rate, without a swarm that switches some of them off.
    pub fn steady(mut self) -> Self {
        self.swarms = false;
        self
    }

    /// Switches off the faults that fired at these spots, without changing any other decision.
    pub fn without(mut self, spots: impl IntoIterator<Item = Spot<Site>>) -> Self {
        self.choice = self.choice.without(spots);
        self
    }

    /// Sets the source of the decisions, instead of the seed.
    pub fn choice(mut self, choice: Choice<Site>) -> Self {
        self.choice = choice;
        self
    }

    /// Explores picks only at these sites, and takes the first option at all others; tasks run in
    /// the order in which they were started. For exhaustive runs of small worlds.
    pub fn picking(mut self, sites: impl IntoIterator<Item = Site>) -> Self {
        self.picks = Some(sites.into_iter().collect());
        self
    }

    /// Keeps every line of the trace.
    pub fn traced(mut self) -> Self {
        self.keep_trace = true;
        self
    }

    /// Sets the time to live of all sessions. The default is one second.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets the maximum length of the safety phase, in virtual time. The default is one minute.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sets the repairs after the safety phase. By default the seed decides.
    pub fn mending(mut self, mending: Mending) -> Self {
        self.mending = Some(mending);
        self
    }

    /// Puts a wrapper between the processes and the store. `layer` gets a connection to the store
    /// that belongs to no process, and returns the wrapper for each process's own connection.
    pub fn around(mut self, layer: impl FnOnce(Arc<dyn Backend>) -> Way + 'static) -> Self {
        self.around = Some(Box::new(layer));
        self
    }

    /// Gives the servers a planted defect, to test the tests.
    pub fn flawed(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    /// Plants a mistake into the processes of a workload, or into their connection to the store, to
    /// test the tests.
    pub fn with_user_mistake(mut self, user_mistake: UserMistake) -> Self {
        self.user_mistake = Some(user_mistake);
        self
    }

    /// Leaves some processes out, by their numbers, without changing any other decision.
    pub fn absent(mut self, numbers: impl IntoIterator<Item = u64>) -> Self {
        self.absent.extend(numbers);
        self
    }

    /// Sets the maximum number of rounds of a process: the limit of [`Process::rounds`].
    pub fn rounds(mut self, most: u64) -> Self {
        self.rounds = most;
        self
    }

    /// Takes the first option at these sites: at [`Site::Delay`] nothing takes time, at
    /// [`Site::Turn`] tasks run in the order in which they were started.
    pub fn still(mut self, sites: impl IntoIterator<Item = Site>) -> Self {
        self.choice = self.choice.still(sites);
        self
    }

    /// Creates a node at the beginning. Nodes are created in the order of the calls, at the
    /// revisions from 1.
    pub fn given(mut self, path: Path, data: impl Into<Bytes>) -> Self {
        self.given.push((path, data.into()));
        self
    }

    /// Creates a directory at the beginning. Its sequences may be near their end, if the fault
    /// fires.
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

    /// Adds several processes with the same function.
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

    /// Sets the law that is broken if a process does not end once everything works. The default is
    /// L-OUT-5.
    pub fn must_end(mut self, law: impl Into<String>) -> Self {
        self.late = law.into();
        self
    }

    /// Adds a check of the whole history at the end. `law` is an id or a sentence.
    pub fn check(
        mut self,
        law: impl Into<String>,
        check: impl FnOnce(&Truth) -> Result<(), String> + 'static,
    ) -> Self {
        let law = law.into();
        self.checks.push(Box::new(move |truth| check(truth).map_err(|what| (law, what))));
        self
    }

    /// Checks the results of the writes of a ledger: L-OUT-1 to L-OUT-3.
    pub fn ledger(mut self, ledger: &Ledger) -> Self {
        let ledger = ledger.clone();
        let check = move |truth: &Truth| ledger.check(truth);
        self.checks.push(Box::new(move |truth| {
            check(truth).map_err(|(law, what)| (law.to_owned(), what))
        }));
        self
    }

    /// Adds a condition that must hold once everything is repaired, checked by a separate process.
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
