//! Random clients under random disturbance, by seed. The results and events of each client are
//! compared with the history of the peer, by the same checks as for runs on real servers.
//!
//! Clients are separate processes, with one thread each. The seed determines their choices and
//! those of the peer; the timing of messages depends on the machine, so a seed repeats the choices
//! of a run and not always its failure.

#![expect(clippy::print_stdout, reason = "a soak that was asked for says how it goes")]

use std::path::Path as File;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use synod_conformance::harness::Link;
use synod_core::random::Random;
use synod_servers::check::record::Record;
use synod_servers::clients::book::Book;
use synod_servers::clients::client::{Client, End};
use synod_servers::clients::entry::{Entry, Fact, Installed, Kind, Op, Seen, What, now};
use synod_servers::clients::holding::Room;
use synod_servers::clients::worker;
use synod_zk::{Access, ZkBackend, ZkOptions};
use tokio::time::{Instant, sleep, timeout};

use crate::peer::{Peer, TICK};
use crate::scene::PATIENCE;
use crate::tree::{Life, Write};

/// The argument that starts this program as a client.
pub(crate) const WORKER: &str = "--worker";

/// The number of client processes.
const CLIENTS: usize = 3;
/// The number of calls of each client in a round.
const CALLS: u64 = 40;
const TTL: u64 = 2_000;
/// One round out of this number has disturbed requests: about one request in thirty.
const ENOUGH: usize = 4;
/// The default duration of the run.
const USUAL: Duration = Duration::from_secs(10);

/// One process, and the values that it writes.
struct Actor {
    client: Client,
    book: Book,
    values: Random,
    number: u64,
}

/// Runs this program as a client; its number and its servers are the arguments.
pub(crate) fn work() -> ExitCode {
    let mut arguments = std::env::args().skip_while(|argument| argument != WORKER).skip(1);
    let number = arguments.next().and_then(|text| text.parse().ok());
    let options = ZkOptions::new(arguments).access(Access::Open).tick(TICK);
    let backend = ZkBackend::new(options);
    let ran = number
        .zip(backend.ok())
        .map(|(number, backend)| worker::run(number, Arc::new(backend), None));
    if matches!(ran, Some(Ok(()))) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Rounds by one seed after another, for some seconds, or for as many minutes as `SYNOD_SOAK` says.
pub(crate) async fn whatever_happens_the_laws_are_kept() {
    let variable = |name| std::env::var(name).ok();
    let minutes: Option<u64> = variable("SYNOD_SOAK").and_then(|text| text.parse().ok());
    let lasts = minutes.map_or(USUAL, |minutes| Duration::from_secs(60 * minutes));
    let given = variable("SYNOD_SEED")
        .and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok());
    let mut seed = given.unwrap_or_else(|| Random::from_system().number());
    let end = Instant::now() + lasts;
    let (mut rounds, mut played) = (0, 0);
    // The first round is played even on a slow machine.
    while rounds == 0 || Instant::now() < end {
        let servers = if rounds % 2 == 0 { 1 } else { 3 };
        played += round(seed, servers).await;
        rounds += 1;
        seed = synod_core::random::mix(seed);
    }
    println!("{rounds} rounds, {played} requests disturbed");
    assert!(played > 0 || rounds < ENOUGH, "nothing went wrong");
}

/// Returns how many requests were disturbed.
async fn round(seed: u64, servers: usize) -> usize {
    let random = Random::seeded(seed);
    let peer = Peer::start(servers).expect("there are ports");
    let file = File::new(env!("CARGO_TARGET_TMPDIR")).join(format!("wire/{seed:016x}.jsonl"));
    let book = Book::open(&file).expect("there is room for the record");
    let actors: Vec<_> =
        (1..=CLIENTS).map(|number| Actor::start(number, &peer, &book, &random)).collect();
    join_all(actors.iter().map(Actor::open)).await;
    let holder = Actor::start(CLIENTS + 1, &peer, &book, &random);
    let waiter = Actor::start(CLIENTS + 2, &peer, &book, &random);
    prepare(&actors[0]).await;
    for actor in [&holder, &waiter] {
        actor.stand(Room::ALL[usize::try_from(random.below(2)).unwrap_or(0)]).await;
    }
    peer.change(|world| world.script.disturb(random.fork(1), 30));
    let over = std::cell::Cell::new(false);
    let working = async {
        join_all(actors.iter().map(|actor| actor.work(&random))).await;
        over.set(true);
    };
    let happening = async {
        while !over.get() {
            happens(&peer, &book, &random).await;
        }
    };
    join(working, happening).await;
    let played = peer.world().script.played_to_all();
    peer.change(|world| world.script.calm());
    heal(&peer);
    join_all([&holder, &waiter].map(|actor| actor.call(Op::Close))).await;
    judge(&peer, &book, &actors[0], seed, servers).await;
    played
}

/// Plays one random fault on the servers.
async fn happens(peer: &Peer, book: &Book, random: &Random) {
    let count = peer.addresses().len();
    let server = usize::try_from(random.below(count as u64)).unwrap_or(0);
    let lasts = Duration::from_millis(random.below(400));
    let what = random.below(8);
    book.nemesis(format!("{what} to {server} for {lasts:?}"), Installed::Installed);
    match what {
        0 => {
            peer.stop(server);
            sleep(lasts).await;
        }
        1 if count > 1 => {
            let leader = peer.world().leader;
            if server != leader {
                peer.change(|world| world.part(server));
                // The server closes its connections when it notices.
                sleep(lasts * 8).await;
                peer.change(|world| world.servers[server].close_all());
            }
        }
        2 if count > 1 => {
            peer.change(|world| world.servers[server].lags = true);
            sleep(lasts).await;
        }
        3 if count > 1 => peer.change(|world| world.lead(server)),
        4 => peer.change(|world| world.servers[server].close_all()),
        5 => {
            // A shorter time to live than the last one is not reported to the client: see
            // docs/zookeeper.md.
            let longest = TTL + random.below(3_000);
            peer.change(|world| {
                world.servers[server].longest = Duration::from_millis(longest);
                world.servers[server].close_all();
            });
        }
        6 => {
            let sessions: Vec<i64> = peer.world().sessions.keys().copied().collect();
            let index = usize::try_from(random.below(sessions.len().max(1) as u64)).unwrap_or(0);
            let Some(session) = sessions.get(index).copied() else { return };
            let link = match random.below(3) {
                0 => Link::Cut,
                1 => Link::Deaf,
                _ => Link::Slow { there: lasts / 4, back: lasts / 4 },
            };
            peer.change(|world| world.links.insert(session, link));
            sleep(lasts * 4).await;
            peer.change(|world| world.links.clear());
        }
        _ => {
            let sessions = peer.world().without_tickets("/line/");
            let index = usize::try_from(random.below(4 * sessions.len().max(1) as u64));
            if let Some(session) = sessions.get(index.unwrap_or(0)) {
                let what =
                    What::Nemesis { what: "expire".to_owned(), outcome: Installed::Installed };
                let s = Some(session.cast_unsigned());
                book.add(Entry { t: now(), p: 0, s, id: None, what });
                peer.change(|world| world.end(*session));
            }
        }
    }
    peer.change(|world| {
        world.servers[server].lags = false;
    });
    let (down, parted) = {
        let world = peer.world();
        (world.servers[server].down, world.servers[server].parted)
    };
    if down || parted {
        peer.resume(server);
    }
    sleep(Duration::from_millis(random.below(100))).await;
}

fn heal(peer: &Peer) {
    for server in 0..peer.addresses().len() {
        peer.resume(server);
    }
    peer.change(|world| world.links.clear());
}

/// Every change that the servers agreed on.
fn facts(peer: &Peer) -> Vec<Fact> {
    let world = peer.world();
    let mut owners: std::collections::BTreeMap<&str, Option<u64>> =
        std::collections::BTreeMap::new();
    let mut facts: Vec<Fact> = Vec::new();
    for entry in &world.log {
        let revision = entry.zxid.cast_unsigned();
        for write in &entry.writes {
            let (path, kind, data) = match write {
                Write::Create { path, life: Life::Container, .. } => {
                    owners.remove(path.as_str());
                    continue;
                }
                Write::Create { path, data, life, .. } => {
                    let owner = match life {
                        Life::Ephemeral(session) => Some(session.cast_unsigned()),
                        _ => None,
                    };
                    owners.insert(path, owner);
                    (path, Kind::Created, &data[..])
                }
                Write::Set { path, data, .. } => (path, Kind::Updated, &data[..]),
                Write::Delete { path } => (path, Kind::Deleted, &[][..]),
            };
            let known = match kind {
                Kind::Deleted => owners.remove(path.as_str()),
                _ => owners.get(path.as_str()).copied(),
            };
            let Some(owner) = known else { continue };
            let value = std::str::from_utf8(data).ok().and_then(|text| text.parse().ok());
            let made = facts.iter().rposition(|fact| {
                fact.revision == revision && fact.path == *path && fact.kind == Kind::Created
            });
            match (made, kind) {
                // A node that is created and written in one transaction counts as created; one that
                // is created and deleted in it does not count.
                (Some(made), Kind::Updated) => facts[made].value = value,
                (Some(made), Kind::Deleted) => drop(facts.remove(made)),
                _ => facts.push(Fact { revision, path: path.clone(), kind, value, owner }),
            }
        }
    }
    facts
}

async fn judge(peer: &Peer, book: &Book, eve: &Actor, seed: u64, servers: usize) {
    let end = Instant::now() + PATIENCE;
    loop {
        let fact = |fact| Entry { t: now(), p: 0, s: None, id: None, what: What::Truth { fact } };
        let mut entries = book.entries();
        entries.extend(facts(peer).into_iter().map(fact));
        let found = Record::of(&entries).breaches();
        // A watch may still report the missing events.
        let waits = found.iter().all(|breach| breach.law == "L-WAT-6");
        if found.is_empty() {
            break;
        }
        if !waits || Instant::now() > end {
            book.truth(facts(peer));
            let found: Vec<_> = found.iter().take(10).map(ToString::to_string).collect();
            panic!(
                "on {servers} servers: {}\ntaken down in {}\nrepeat its choices with \
                 SYNOD_SEED={seed:#x} cargo test -p synod-zk --all-features --test wire soak",
                found.join("\n"),
                book.path().display()
            );
        }
        let _listed = eve.call(Op::List { path: "/soak".to_owned(), local: false }).await;
        sleep(Duration::from_millis(100)).await;
    }
    book.discard().expect("it was kept");
}

async fn prepare(actor: &Actor) {
    // One node stays among the tickets, because a directory that is removed starts to count again.
    let registers = (0..3).map(|register| format!("/soak/r{register}"));
    for path in registers.chain(["/soak/t/stays".to_owned()]) {
        let op = Op::Create { path, value: actor.value(), ephemeral: false };
        let made = actor.call(op).await;
        assert!(matches!(made, End::Ok(_)), "{made:?}");
    }
}

impl Actor {
    fn start(number: usize, peer: &Peer, book: &Book, random: &Random) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this is a program"));
        command.args([WORKER, &number.to_string()]);
        command.args(peer.addresses().iter().map(ToString::to_string));
        let client = Client::start(number, &mut command, book).expect("it can be started");
        let values = random.fork(100 + number as u64);
        Self { client, book: book.clone(), values, number: number as u64 }
    }

    /// A value that no other write contains, always of the same length.
    fn value(&self) -> u64 {
        (1 << 60) + (self.number << 50) + self.values.below(1 << 50)
    }

    async fn open(&self) {
        // The opening may be disturbed.
        while !matches!(self.call(Op::Open { ttl: TTL }).await, End::Ok(_)) {}
    }

    async fn stand(&self, room: Room) {
        let (path, data) = (format!("/line/{room:?}"), "/line/data".to_owned());
        let _stands = self.call(Op::Stand { room, path, data, ttl: TTL }).await;
    }

    async fn call(&self, op: Op) -> End {
        let limit = PATIENCE * 2;
        let ended = timeout(limit, self.client.call(op.clone())).await;
        ended.unwrap_or_else(|_| {
            panic!("client {}: {op:?} has no end within {limit:?}", self.number)
        })
    }

    async fn work(&self, random: &Random) {
        let random = random.fork(200 + self.number);
        let mut seen: Option<Seen> = None;
        let observed = Op::Observe { path: "/soak".to_owned() };
        let _watched = self.call(observed).await;
        for _ in 0..CALLS {
            let register = format!("/soak/r{}", random.below(3));
            let own = format!("/soak/c{}-{}", self.number, random.below(4));
            let value = self.value();
            let op = match random.below(10) {
                0 | 1 => Op::Set { path: register, value },
                2 | 3 => match seen.take() {
                    Some(Seen { path, value: Some(from), version, .. }) => {
                        Op::Cas { path, from, version, value }
                    }
                    _ => Op::Read { path: register, local: false },
                },
                4 => Op::Read { path: register, local: false },
                5 => Op::Read { path: register, local: true },
                6 => Op::Create { path: own, value, ephemeral: random.below(2) == 0 },
                7 => Op::Delete { path: own },
                8 => Op::Ticket {
                    path: format!("/soak/t/{}-", self.values.id()),
                    value,
                    ephemeral: true,
                },
                _ => Op::List { path: "/soak".to_owned(), local: random.below(2) == 0 },
            };
            let reads = matches!(op, Op::Read { local: false, .. });
            match self.call(op).await {
                End::Ok(answer) if reads => seen = answer.nodes.into_iter().next(),
                _ => {}
            }
            if self.believes_lost() {
                self.open().await;
                let _watched = self.call(Op::Observe { path: "/soak".to_owned() }).await;
            }
        }
    }

    fn believes_lost(&self) -> bool {
        let number = self.client.number();
        let last = self.book.last(|entry| match &entry.what {
            What::Belief { status, .. } if entry.p == number => Some(status.clone()),
            _ => None,
        });
        last.as_deref() == Some("lost")
    }
}
