//! Faults on real servers: what clients were told meanwhile is taken down and checked against what
//! the servers kept.
//!
//! `SYNOD_SOAK=10` does random things to servers and clients for so many minutes instead, and
//! `SYNOD_SEED` repeats the choices of a run. `SYNOD_MISTAKE` has every client make a known mistake,
//! to see that it is found.

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use synod::Config;
use synod::store::Backend;
use synod_conformance::fault::worker;
use synod_conformance::server::required;
use synod_conformance::wrong::{Mistake, Wrong};

use crate::scene::Scene;
use crate::servers::{Etcd, Servers, ZooKeeper};

mod lives;
mod moves;
mod outages;
mod scene;
mod servers;
mod soak;
mod writes;

/// How many scenarios run at a time, if the arguments do not say. They wait more than they work.
const AT_ONCE: usize = 4;

/// The argument that makes a client of this program.
const WORKER: &str = "--worker";

type Start = fn() -> Result<Box<dyn Servers>, String>;
type Act = for<'a> fn(&'a mut Scene) -> std::pin::Pin<Box<dyn Future<Output = ()> + 'a>>;

/// What happens to either kind of servers.
const BOTH: &[(&str, Act)] = &[
    ("a_write_whose_answer_is_lost_is_not_lost_itself", |s| Box::pin(writes::lost_answers(s))),
    ("a_request_that_is_lost_is_not_done_twice", |s| Box::pin(writes::lost_requests(s))),
    ("a_close_whose_answer_is_lost_leaves_nothing", |s| Box::pin(writes::lost_close(s))),
    ("a_server_that_is_killed_and_comes_back_lost_nothing", |s| Box::pin(outages::restart(s))),
    ("a_leader_that_is_killed_lost_nothing", |s| Box::pin(outages::killed_leader(s))),
    ("a_leader_that_stands_still_answers_nothing_old", |s| Box::pin(outages::paused_leader(s))),
    ("a_leader_that_is_cut_off_answers_nothing_old", |s| Box::pin(outages::parted_leader(s))),
    ("a_link_that_is_held_ends_the_session_in_time", |s| Box::pin(lives::held_link(s))),
    ("a_process_that_stood_still_knows_that_its_session_is_over", |s| Box::pin(lives::stopped(s))),
    ("a_process_that_is_killed_leaves_nothing", |s| Box::pin(lives::killed(s))),
    ("a_session_that_the_server_ends_is_over", |s| Box::pin(lives::expired(s))),
    ("who_moves_to_a_server_that_lags_is_shown_nothing_older", |s| Box::pin(moves::lagging(s))),
    ("a_watch_that_moves_from_server_to_server_misses_nothing", |s| Box::pin(moves::watching(s))),
];

/// What happens to etcd only.
const ETCD: &[(&str, Act)] =
    &[("what_is_compacted_under_a_watch_is_a_resync", |s| Box::pin(moves::compacted(s)))];

const SOAK: &[(&str, Act)] =
    &[("whatever_happens_no_law_is_broken", |s| Box::pin(soak::anything(s)))];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if let [_, first, number, url] = &words[..]
        && first == WORKER
    {
        return work(number, url);
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(AT_ONCE));
    let soaks = soak::minutes().is_some();
    let (both, etcd) = if soaks { (SOAK, [].as_slice()) } else { (BOTH, ETCD) };
    let zookeeper: Start = || Ok(Box::new(ZooKeeper::start()?));
    let on_etcd: Start = || Ok(Box::new(Etcd::start()?));
    let mut trials = Vec::new();
    for (servers, start, missing) in
        [("zookeeper", zookeeper, ZooKeeper::missing()), ("etcd", on_etcd, Etcd::missing())]
    {
        let more = if servers == "etcd" { etcd } else { &[] };
        for (name, act) in both.iter().chain(more) {
            trials.push(trial(format!("{servers}::{name}"), start, *act, missing.clone()));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(name: String, start: Start, act: Act, missing: Option<String>) -> Trial {
    let title = name.clone();
    let trial = Trial::test(name, move || match soak::minutes() {
        Some(minutes) => soak::repeat(minutes, |seed| play(&title, start, act, seed)),
        None => play(&title, start, act, soak::seed()?),
    });
    match missing {
        Some(why) => {
            assert!(!required(), "{why}");
            trial.with_ignored_flag(true).with_kind(format!("cannot run: {why}"))
        }
        None => trial,
    }
}

/// Plays a scenario to its end, and judges what was taken down.
fn play(name: &str, start: Start, act: Act, seed: u64) -> Result<(), Failed> {
    // The servers are started and waited for on a thread that their proxies do not run on.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let played = runtime.block_on(async {
        let mut scene = Scene::open(name, start()?, seed)?;
        act(&mut scene).await;
        scene.judge().await
    });
    runtime.shutdown_background();
    played.map_err(Failed::from)
}

/// Is a client: does what its input says.
fn work(number: &str, url: &str) -> ExitCode {
    let mistake = std::env::var("SYNOD_MISTAKE")
        .ok()
        .and_then(|name| Mistake::ALL.iter().copied().find(|mistake| mistake.to_string() == name));
    let backend = Config::new(url).and_then(|config| config.backend()).expect("the URL is valid");
    let backend: Arc<dyn Backend> = match mistake {
        Some(mistake) => Arc::new(Wrong::new(backend, mistake)),
        None => backend,
    };
    match worker::run(number.parse().expect("a number"), backend) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
