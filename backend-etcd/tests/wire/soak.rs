//! Random programs under random disturbance, each from a seed.
//!
//! `SYNOD_SEED=0x..` repeats one of them, and `SYNOD_SEEDS=100000` tries more.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use synod_conformance::harness::Link;
use synod_core::random::{Random, mix};
use synod_core::store::Status;
use tokio::runtime::{Builder, Handle};
use tokio::time::{sleep, timeout};

use crate::client::Client;
use crate::judge::Judge;
use crate::locker;
use crate::peer::Peer;
use crate::peer::network::Network;
use crate::peer::random::Storm;
use crate::peer::script::Kind;
use crate::peer::shared::{Member, Shared};

/// The default number of seeds.
const SEEDS: u64 = 500;
/// The limit for a program.
const LONG: Duration = Duration::from_secs(3_600);

/// The events that a sweep must have seen; otherwise it proves little.
const MUST_SEE: [&str; 10] = [
    "a write that was done",
    "a write that was rejected",
    "a write that failed for certain",
    "a write in doubt",
    "a local read",
    "a watch",
    "a resync",
    "a session that was lost",
    "a session that was closed",
    "a lock that was held",
];

#[test]
fn no_disturbance_makes_the_backend_break_a_law() {
    let said = |name: &str| std::env::var(name).ok();
    if let Some(seed) = said("SYNOD_SEED") {
        let digits = seed.trim_start_matches("0x");
        let seed = u64::from_str_radix(digits, 16).expect("SYNOD_SEED is in hexadecimal");
        let _passed = run(seed);
        return;
    }
    let seeds = said("SYNOD_SEEDS").and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    let mut seen = BTreeMap::new();
    std::thread::scope(|scope| {
        let sweep = |odd: u64| {
            (odd..seeds).step_by(2).map(|number| run(mix(number)).counts).fold(BTreeMap::new(), add)
        };
        let other = scope.spawn(move || sweep(1));
        seen = add(sweep(0), other.join().expect("the other half went well"));
    });
    for what in MUST_SEE {
        assert!(seen.contains_key(what) || seeds < SEEDS, "{what}: never seen, but {seen:?}");
    }
}

type Counts = BTreeMap<&'static str, usize>;

fn add(mut all: Counts, more: Counts) -> Counts {
    for (what, count) in more {
        *all.entry(what).or_default() += count;
    }
    all
}

/// The result of a program.
struct Ran {
    counts: Counts,
    breaches: Vec<String>,
    /// The requests to the cluster, and its last revision.
    trace: String,
}

/// Runs one program.
fn run(seed: u64) -> Ran {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime starts");
    let ran = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async { timeout(LONG, program(seed)).await.expect("it comes to its end") })
    }));
    let ran = ran.unwrap_or_else(|_said| panic!("{}", again(seed)));
    assert!(ran.breaches.is_empty(), "{}\n{}", ran.breaches.join("\n"), again(seed));
    ran
}

fn again(seed: u64) -> String {
    format!(
        "repeat it with SYNOD_SEED={seed:#x} cargo test -p synod-etcd --all-features --test wire soak"
    )
}

async fn program(seed: u64) -> Ran {
    let random = Random::seeded(seed);
    let peer = Peer::new(1 + usize::try_from(random.below(3)).unwrap_or(0));
    peer.shared.state().leases.rate = 981;
    let judge = Judge::new(peer.shared.clone());
    let tasks = alive();
    let networks: Vec<Network> = (0..4).map(|_| peer.network()).collect();
    let backend = |place: usize| {
        let random = random.fork(u64::try_from(place).unwrap_or_default());
        networks[place].backend(peer.options(), random).expect("valid")
    };
    let mut clients: Vec<Client> = (0..2)
        .map(|name| {
            let part = 10 + u64::try_from(name).unwrap_or_default();
            Client::new(name, random.fork(part), judge.clone(), backend(name))
        })
        .collect();
    let lockers = locker::two(&random.fork(20), &judge, [backend(2), backend(3)]);

    peer.shared.script().storm = Some(Storm::new(&random.fork(30), 4, 3 + random.below(20)));
    let weather = weather(&peer, &networks, random.fork(31));
    let acting = join_all(clients.iter_mut().map(|client| client.act(10)));
    join(join(acting, weather), lockers).await;

    heal(&peer, &networks);
    join_all(clients.into_iter().map(Client::end)).await;
    drop(networks);
    // The remaining tasks end when nothing needs them.
    let mut patience = 0;
    while alive() > tasks && patience < 300 {
        sleep(Duration::from_millis(100)).await;
        patience += 1;
    }
    if alive() > tasks {
        judge.breach(format!("{} tasks are left", alive() - tasks));
    }
    let watches = Shared::count(&peer.shared.watches);
    if watches > 0 {
        judge.breach(format!("{watches} watches are left"));
    }
    let script = peer.shared.script();
    // The order in which the HTTP/2 crate serves its streams does not depend on the seed; so
    // whether one more lease is renewed does not either.
    let met: Vec<_> = script.met.iter().filter(|(kind, _)| *kind != Kind::KeepAlive).collect();
    let trace = format!("{met:?} {}", peer.shared.state().keys.revision);
    drop(script);
    Ran { counts: judge.counts(), breaches: judge.verdict(), trace }
}

fn alive() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Changes links and members, and makes the cluster compact.
async fn weather(peer: &Peer, networks: &[Network], random: Random) {
    let pick = |of: usize| {
        usize::try_from(random.below(u64::try_from(of).unwrap_or(1))).unwrap_or_default()
    };
    for _ in 0..6 {
        sleep(Duration::from_millis(random.below(4_000))).await;
        let late = || Duration::from_millis(random.below(400));
        match random.below(8) {
            0 => networks[pick(networks.len())].set(Link::Cut),
            1 => networks[pick(networks.len())].set(Link::Deaf),
            2 => networks[pick(networks.len())].set(Link::Slow { there: late(), back: late() }),
            3 => {
                let now = peer.shared.state().keys.revision;
                peer.shared.state().keys.compact(now);
            }
            4 => {
                let now = peer.shared.state().keys.revision;
                let member = pick(peer.hosts().len());
                peer.shared.set_member(member, |member| member.behind = Some(now));
            }
            5 => peer.shared.set_member(pick(peer.hosts().len()), |member| member.down = true),
            6 => {
                let member = pick(peer.hosts().len());
                peer.shared.set_member(member, |member| member.leaderless = true);
                peer.shared.state().leases.renew_all();
            }
            _ => mend(peer, networks),
        }
    }
    heal(peer, networks);
}

fn mend(peer: &Peer, networks: &[Network]) {
    for network in networks {
        network.set(Link::Open);
    }
    for member in 0..peer.hosts().len() {
        peer.shared.set_member(member, |member| *member = Member::default());
    }
}

fn heal(peer: &Peer, networks: &[Network]) {
    mend(peer, networks);
    peer.shared.script().clear();
}

#[test]
fn a_seed_repeats_its_run() {
    for seed in 0..12 {
        let (once, twice) = (run(mix(seed)), run(mix(seed)));
        assert_eq!(once.trace, twice.trace, "{}", again(mix(seed)));
    }
}

#[test]
fn a_judge_sees_what_is_wrong() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime starts").block_on(async {
        let peer = Peer::new(1);
        let judge = Judge::new(peer.shared.clone());
        let error = synod_core::error::Error::new(synod_core::error::ErrorKind::Backend, "commit");
        let mut state = peer.shared.state();
        let mut batch = state.keys.write();
        batch.put(b"/d//a", "0.1".into(), 0);
        batch.commit();
        drop(state);
        judge.wrote("0.1", &Err(error));
        assert_eq!(judge.verdict().len(), 1, "it happened");
        let (_tell, status) = tokio::sync::watch::channel(Status::Live {
            until: tokio::time::Instant::now() + Duration::from_secs(1),
        });
        judge.session(7, status);
        peer.shared.state().leases.grant(7, 1).expect("free");
        peer.shared.state().leases.rate = 1_000;
        let ended = Arc::clone(&peer.shared);
        if let Some(ended) = &*ended.ended.lock().expect("not poisoned") {
            ended(7);
        }
        assert_eq!(judge.verdict().len(), 2, "and it was certain");
    });
}
