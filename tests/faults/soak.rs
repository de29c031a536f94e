//! Random faults during every kind of work: registers, tickets, directories, locks, permits and
//! elections.

#![expect(clippy::print_stdout, reason = "a long run reports its progress")]

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use synod_conformance::harness::Link;
use synod_core::random::Random;
use synod_servers::clients::entry::Installed;
use synod_servers::clients::holding::Room;
use synod_servers::pipe::Lost;
use tokio::time::{Instant, sleep};

use crate::holders::Company;
use crate::outages::{CALLS, clients, prepare, work};
use crate::scene::{Actor, Scene, TTL};
use crate::servers::SIZE;

/// The number of times that the clients start again in a new directory: the search for an order
/// cannot handle registers with many calls.
const ROUNDS: usize = 3;

/// The length of the run, if it was requested.
pub(crate) fn minutes() -> Option<u64> {
    std::env::var("SYNOD_SOAK").ok()?.parse().ok()
}

/// Returns the seed of the choices of a run.
pub(crate) fn seed() -> Result<u64, String> {
    match std::env::var("SYNOD_SEED") {
        Ok(text) => u64::from_str_radix(text.trim_start_matches("0x"), 16)
            .map_err(|error| format!("SYNOD_SEED is not a number in hexadecimal: {error}")),
        Err(_) => Ok(Random::from_system().number()),
    }
}

/// Plays repeatedly for this time, each time with another seed and on new servers.
pub(crate) fn repeat(minutes: u64, play: impl Fn(u64) -> Result<(), String>) -> Result<(), String> {
    let end = Instant::now() + Duration::from_secs(60 * minutes);
    let mut seed = seed()?;
    let mut played = 0;
    while Instant::now() < end {
        println!("[seed {seed:#x}]");
        play(seed)?;
        played += 1;
        seed = Random::seeded(seed).number();
    }
    println!("{played} times");
    Ok(())
}

/// The scenario of a run with `SYNOD_SOAK`, which plays it repeatedly.
pub(crate) async fn anything(scene: &mut Scene) {
    rounds(scene, ROUNDS, CALLS).await;
}

/// The part of it that every run of the tests plays.
pub(crate) async fn a_piece(scene: &mut Scene) {
    rounds(scene, 1, CALLS / 4).await;
}

async fn rounds(scene: &mut Scene, rounds: usize, calls: usize) {
    let clients = clients(scene).await;
    let company = Company::gather(scene).await;
    let everybody: Vec<_> = clients.iter().chain(company.holders()).cloned().collect();
    let random = scene.random.clone();
    for round in 0..rounds {
        let dir = format!("s{round}");
        prepare(&clients, &dir).await;
        let over = Cell::new(false);
        let working = async {
            join_all(clients.iter().map(|ann| work(&random, ann, &dir, calls, 200))).await;
            over.set(true);
        };
        let happening = async {
            outlasts_a_holder(scene, &company).await;
            while !over.get() {
                happens(scene, &everybody).await;
                sleep(Duration::from_millis(scene.random.below(1_000))).await;
            }
        };
        join(working, happening).await;
        scene.heal().await;
        company.all_go_on(scene).await;
    }
    company.leave().await;
}

/// A process that holds something is paused or cut off for longer than its session lives. Random
/// faults alone seldom do this.
async fn outlasts_a_holder(scene: &Scene, company: &Company) {
    let random = &scene.random;
    let room = if random.below(2) == 0 { Room::Mutex } else { Room::Latch };
    let lasts = TTL * 3 / 2 + Duration::from_millis(random.below(3_000));
    let link = [None, Some(Link::Cut), Some(Link::Deaf)][index(random, 3)];
    let begin = |ann: &Actor| match link {
        Some(link) => ann.pipe.set(link),
        None => ann.client.stop().expect("it runs"),
    };
    let end = |ann: &Actor| match link {
        Some(_) => ann.pipe.set(Link::Open),
        None => ann.client.go_on().expect("it stands still"),
    };
    let ann = company.catch(scene, room, begin, end).await;
    note(scene, &ann, &link.map_or_else(|| "stop".to_owned(), |link| format!("{link:?}")));
    sleep(lasts).await;
    end(&ann);
    note(scene, &ann, "go on");
}

/// One fault after another, some of them while others last.
async fn happens(scene: &mut Scene, clients: &[Arc<Actor>]) {
    let random = scene.random.clone();
    let (server, ann) = (index(&random, SIZE), &clients[index(&random, clients.len())]);
    let lasts = Duration::from_millis(match random.below(3) {
        0 => random.below(200),
        1 => random.below(1_500),
        _ => random.below(6_000),
    });
    match random.below(10) {
        0 => {
            scene.kill(server);
            sleep(lasts).await;
            scene.restart(server);
        }
        1 => {
            scene.pause(server);
            sleep(lasts).await;
            scene.resume(server).await;
        }
        2 => {
            let leader = scene.leader().await;
            scene.part(leader);
            sleep(lasts).await;
            scene.join(leader);
        }
        3 => {
            scene.part(server);
            sleep(lasts).await;
            scene.join(server);
        }
        4 => {
            ann.client.stop().expect("it runs");
            sleep(lasts).await;
            ann.client.go_on().expect("it stands still");
        }
        5 | 6 => links(scene, ann, lasts).await,
        7 => {
            let lost = if random.below(2) == 0 { Lost::Reply } else { Lost::Request };
            ann.pipe.lose(lost, "");
            note(scene, ann, &format!("lose a {lost:?}"));
        }
        8 => {
            ann.pipe.only(Some(server));
            note(scene, ann, &format!("move to server {server}"));
            sleep(lasts).await;
            ann.pipe.only(None);
            note(scene, ann, "let in everywhere");
        }
        _ => {
            if let Some(session) = ann.session()
                && ann.believes().as_deref() == Some("live")
            {
                scene.try_expire(session).await;
            }
        }
    }
}

fn index(random: &Random, below: usize) -> usize {
    usize::try_from(random.below(below as u64)).unwrap_or_default()
}

async fn links(scene: &Scene, ann: &Actor, lasts: Duration) {
    let late = |most: u64| Duration::from_millis(scene.random.below(most));
    let link = match scene.random.below(3) {
        0 => Link::Cut,
        1 => Link::Deaf,
        _ => Link::Slow { there: late(300), back: late(300) },
    };
    ann.pipe.set(link);
    note(scene, ann, &format!("{link:?}"));
    sleep(lasts).await;
    ann.pipe.set(Link::Open);
    note(scene, ann, "open");
}

fn note(scene: &Scene, ann: &Actor, what: &str) {
    scene.book.nemesis(format!("{what}, client {}", ann.client.number()), Installed::Installed);
}
