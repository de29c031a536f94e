//! Faults on real servers: the results and events of clients are recorded and compared with the
//! data that the servers kept.
//!
//! A directory has no servers. The faults of its processes are in `backend-file/tests/processes`.
//!
//! `SYNOD_SOAK=10` injects random faults into servers and clients for that many minutes instead,
//! and `SYNOD_SEED` repeats the choices of a run. `SYNOD_MISTAKES=1` plays each scenario with
//! clients that make the mistakes which it must find, one after the other, and fails if one is not
//! found.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use libtest_mimic::{Arguments, Failed, Trial};
use synod::Config;
use synod_conformance::wrong::Wrong;
use synod_core::mutant::Mutant;
use synod_core::random::Random;
use synod_core::store::Backend;
use synod_servers::check::defect::REVOKES_OF_A_DEPOSED_LEADER;
use synod_servers::clients::book::Book;
use synod_servers::clients::entry::What;
use synod_servers::clients::worker;
use synod_servers::required;
use synod_testkit::limit::limited;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use crate::scenarios::{
    BOTH, CREW_FOR_LONG, ETCD, FAMILIES_FOR_LONG, Fault, HOLDERS, MINORITY, PAUSED, PIECE,
    QUEUE_FOR_LONG, SOAK, STOCK, Scenario, TEAMS, ZOOKEEPER,
};
use crate::scene::Scene;
use crate::servers::{Etcd, SIZE, Servers, ZooKeeper};
use crate::stand::Pool;

mod crews;
mod families;
mod holders;
mod lives;
mod minority;
mod moves;
mod outages;
mod queues;
mod scenarios;
mod scene;
mod servers;
mod signs;
mod soak;
mod stand;
mod team;
mod writes;

/// The number of scenarios that run at a time, by default. They wait more than they compute.
const AT_ONCE: usize = 4;

/// The argument that starts this program as a client.
const WORKER: &str = "--worker";

/// The environment variable with which a client makes a mistake.
const MISTAKE: &str = "SYNOD_MISTAKE";

/// The prefix of the result of a run that proves nothing.
const NO_VERDICT: &str = "no verdict: ";

/// One kind of servers, and its scenarios.
#[derive(Clone, Copy)]
struct Stage {
    name: &'static str,
    start: fn(usize) -> Result<Box<dyn Servers>, String>,
    size: usize,
    missing: fn() -> Option<String>,
    scenarios: &'static [&'static [Scenario]],
    soak: &'static [Scenario],
}

const ZOOKEEPERS: Stage = Stage {
    name: "zookeeper",
    start: |size| Ok(Box::new(ZooKeeper::start(size)?)),
    size: SIZE,
    missing: ZooKeeper::missing,
    scenarios: &[BOTH, MINORITY, ZOOKEEPER, HOLDERS, TEAMS, &[PIECE]],
    soak: &[SOAK, QUEUE_FOR_LONG, CREW_FOR_LONG, FAMILIES_FOR_LONG],
};

const ETCDS: Stage = Stage {
    name: "etcd",
    start: |size| Ok(Box::new(Etcd::start(size)?)),
    size: SIZE,
    missing: Etcd::missing,
    scenarios: &[
        BOTH,
        MINORITY,
        ETCD,
        HOLDERS,
        TEAMS,
        &[PIECE.may_show(&[REVOKES_OF_A_DEPOSED_LEADER])],
    ],
    soak: &[
        SOAK.may_show(&[REVOKES_OF_A_DEPOSED_LEADER]),
        QUEUE_FOR_LONG.may_show(&[REVOKES_OF_A_DEPOSED_LEADER]),
        CREW_FOR_LONG.may_show(&[REVOKES_OF_A_DEPOSED_LEADER]),
        FAMILIES_FOR_LONG.may_show(&[REVOKES_OF_A_DEPOSED_LEADER]),
    ],
};

const STOCK_ZOOKEEPERS: Stage = Stage {
    name: "stock_zookeeper",
    start: |size| Ok(Box::new(ZooKeeper::start_stock(size)?)),
    scenarios: &[STOCK],
    soak: &[],
    ..ZOOKEEPERS
};

const STAGES: [Stage; 5] = [
    ZOOKEEPERS,
    ETCDS,
    STOCK_ZOOKEEPERS,
    Stage { name: "one_zookeeper", size: 1, scenarios: &[HOLDERS, &[PAUSED]], ..ZOOKEEPERS },
    Stage { name: "one_etcd", size: 1, scenarios: &[HOLDERS, &[PAUSED]], ..ETCDS },
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if let [_, first, number, url] = &words[..]
        && first == WORKER
    {
        return work(number, url);
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(AT_ONCE));
    let mut trials = Vec::new();
    for stage in STAGES {
        let scenarios: &[&[Scenario]] = match soak::minutes() {
            Some(_) if stage.size < SIZE => &[],
            Some(_) => &[stage.soak],
            None => stage.scenarios,
        };
        let scenarios = scenarios.iter().copied().flatten();
        let pool = Arc::default();
        trials.extend(scenarios.flat_map(|scenario| trials_of(stage, &pool, scenario)));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The scenario, or one trial for each mistake that it must find, if that is requested.
fn trials_of(stage: Stage, pool: &Arc<Pool>, scenario: &'static Scenario) -> Vec<Trial> {
    let name = format!("{}::{}", stage.name, scenario.name);
    if std::env::var_os("SYNOD_MISTAKES").is_some() {
        let of_stores = scenario.catches.iter().copied().map(Fault::Store);
        let shows = |fault: Fault| {
            let name = format!("{name}::shows_{fault}");
            trial(stage, scenario, name, move |name| shows(name, stage, scenario, fault))
        };
        return of_stores.chain(scenario.more.iter().copied()).map(shows).collect();
    }
    let pool = pool.clone();
    let play = move |name: &str| match soak::minutes() {
        Some(minutes) => {
            soak::repeat(minutes, |seed| play(name, &Pool::default(), stage, scenario, None, seed))
        }
        None => play(name, &pool, stage, scenario, None, soak::seed()?),
    };
    vec![trial(stage, scenario, name, play)]
}

/// The time limit of a scenario on any machine. One that hangs fails, and reports what it waits
/// for.
const LIMIT: Duration = Duration::from_secs(15 * 60);

fn trial(
    stage: Stage,
    scenario: &Scenario,
    name: String,
    play: impl FnOnce(&str) -> Result<(), String> + Send + 'static,
) -> Trial {
    let title = name.clone();
    let limit = LIMIT + Duration::from_secs(60 * soak::minutes().unwrap_or_default());
    let trial =
        Trial::test(name, move || limited(limit, move || play(&title))?.map_err(Failed::from));
    let missing = (stage.missing)();
    assert!(missing.is_none() || !required(), "{missing:?}");
    match missing.or_else(|| (scenario.obstacle)().map(str::to_owned)) {
        Some(why) => trial.with_ignored_flag(true).with_kind(format!("cannot run: {why}")),
        None => trial,
    }
}

/// Plays a scenario to its end, and checks the record. Servers on which nothing went wrong are used
/// again.
fn play(
    name: &str,
    pool: &Pool,
    stage: Stage,
    scenario: &Scenario,
    fault: Option<Fault>,
    seed: u64,
) -> Result<(), String> {
    let (stand, runtime) = (pool.take(stage)?, runtime()?);
    let played = runtime.block_on(async {
        let scene = Scene::open(name, stand, fault, seed)?;
        let mut scene = scene.may_show(scenario.defects);
        let book = scene.book.clone();
        let _to_go_wrong = fault.map(|_fault| Discard(book.clone()));
        let playing = async {
            (scenario.act)(&mut scene).await;
            scene.judge().await
        };
        match select(pin!(playing), pin!(panicked(&book))).await {
            Either::Left((verdict, _)) => verdict,
            Either::Right((why, _)) => Err(why),
        }
    });
    let played = played.map(|stand| runtime.block_on(pool.put(stand)));
    runtime.shutdown_background();
    played
}

/// A runtime for servers or for clients.
fn runtime() -> Result<Runtime, String> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|error| error.to_string())
}

/// Removes the record of a scenario that was to go wrong.
struct Discard(Book);

impl Drop for Discard {
    fn drop(&mut self) {
        let _gone = self.0.discard().is_ok();
    }
}

/// Waits until a task of a client panics, and returns the message. The process has ended, and the
/// event that the scenario waits for may never happen.
async fn panicked(book: &Book) -> String {
    loop {
        let found = book.last(|entry| match &entry.what {
            What::Panic { why } => Some(format!("client {}: {why}", entry.p)),
            _ => None,
        });
        if let Some(why) = found {
            return why;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// The number of plays of a scenario to find a mistake. In one play the faults may not meet it.
const PLAYS: usize = 4;

/// Checks that the scenario fails as it should when every client makes this mistake.
fn shows(name: &str, stage: Stage, scenario: &Scenario, fault: Fault) -> Result<(), String> {
    let mut seed = soak::seed()?;
    let mut shown = None;
    for _ in 0..PLAYS {
        let work = || play(name, &Pool::default(), stage, scenario, Some(fault), seed);
        shown = match catch_unwind(AssertUnwindSafe(work)) {
            Ok(played) => played.err(),
            Err(panic) => Some(signs::message(panic.as_ref())),
        };
        if shown.is_some() {
            break;
        }
        seed = Random::seeded(seed).number();
    }
    let Some(shown) = shown else {
        return Err(format!("not noticed in {PLAYS} plays: every client {}", fault.what()));
    };
    let signs = signs::of(fault);
    if signs.iter().any(|sign| shown.contains(sign)) {
        return Ok(());
    }
    Err(format!("every client {}, and none of {signs:?} is in: {shown}", fault.what()))
}

/// Runs as a client: executes the commands of its input.
fn work(number: &str, url: &str) -> ExitCode {
    let named = std::env::var(MISTAKE).ok();
    let is_named = |fault: &Fault| named.as_deref() == Some(&fault.to_string());
    let fault = Fault::all().find(is_named);
    let backend = Config::new(url).and_then(|config| config.backend()).expect("the URL is valid");
    let number = number.parse().expect("a number");
    let lapse = match fault {
        Some(Fault::Client(lapse)) => Some(lapse),
        _ => None,
    };
    let run = |backend: Arc<dyn Backend>| worker::run(number, backend, lapse);
    let done = match fault {
        Some(Fault::Store(mistake)) => run(Arc::new(Wrong::new(backend, mistake))),
        Some(Fault::Core(mutant)) => with(mutant, || run(backend)),
        Some(Fault::Client(_)) | None => run(backend),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Runs with a mistake of core, on this thread as clients do.
#[cfg(all(feature = "mutants", feature = "sim"))]
fn with<T>(mutant: Mutant, work: impl FnOnce() -> T) -> T {
    synod_core::mutant::with(mutant, work)
}

#[cfg(not(all(feature = "mutants", feature = "sim")))]
fn with<T>(mutant: Mutant, _work: impl FnOnce() -> T) -> T {
    panic!("{mutant} is not in this program: it needs the features mutants and sim")
}
