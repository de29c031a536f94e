//! A client does not use more memory over time.
//!
//! `SYNOD_ROUNDS=100000` makes that many rounds instead of a run of some seconds.

#![expect(clippy::print_stdout, reason = "it says what was measured")]

use std::alloc::System;
use std::process::ExitCode;
use std::time::Duration;

use cap::Cap;
use libtest_mimic::{Arguments, Failed, Trial};
use synod_core::client::{Client, ClientOptions};
use synod_core::path::Path;
use synod_core::store::{Event, Expect, Kind, Lifetime, Query, SessionOptions};
use synod_servers::required;
use synod_servers::zookeeper::{Ensemble, TICK};
use synod_testkit::limit::limited;
use synod_zk::{Access, ZkBackend, ZkOptions};
use tokio::time::timeout;

/// Counts the bytes in use.
#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// The number of rounds of the usual run.
const USUAL: usize = 1_000;
/// Rounds in which allocations are made once, or grow to their final size.
const WARM_UP: usize = 300;
/// The number of bytes that may be in use temporarily: buffers, and requests in flight.
const ROOM: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(20);

/// Creates, observes and deletes a node, and a ticket with a chosen name.
async fn round(client: &Client, number: usize) {
    let (dir, query) = (path("/memory"), |path: &Path| Query::node(path));
    let node = dir.join(&format!("node-{number}")).expect("valid");
    let (_view, mut watch) = client.watch(query(&node)).await.expect("answers");
    let _created = client.create(&node, "data", Lifetime::Session).await.expect("answers");
    let ticket = dir.join(&format!("ticket-{number}-")).expect("valid");
    let ticket = client.create_sequential(&ticket, "", Lifetime::Session).await.expect("answers");
    let ticket = ticket.ok().expect("nothing stands against it").path;
    let (view, _gone) = client.watch(Query::children(&dir)).await.expect("answers");
    assert!(view.nodes.len() >= 2, "both are there");
    // Each is a watch for one event. The first is dropped before its event.
    let (_view, unheard) = client.watch(Query::until_gone(&ticket)).await.expect("answers");
    drop(unheard);
    let (_view, mut events) = client.watch(Query::until_gone(&ticket)).await.expect("answers");
    for node in [&node, &ticket] {
        let _deleted = client.delete(node, Expect::Any).await.expect("answers");
    }
    let event = timeout(PATIENCE, events.next()).await.expect("in time").expect("it goes on");
    assert!(matches!(event, Event::Changed(change) if change.kind == Kind::Deleted));
    loop {
        match timeout(PATIENCE, watch.next()).await.expect("in time").expect("it goes on") {
            Event::Changed(change) if change.kind == Kind::Deleted => return,
            Event::Changed(_) | Event::Resync => {}
            Event::Ended(end) => panic!("{end:?}"),
        }
    }
}

async fn memory_stays_flat(servers: &Ensemble) {
    let rounds = std::env::var("SYNOD_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let rounds = rounds.unwrap_or(USUAL);
    let hosts = servers.addresses().into_iter().map(|host| host.to_string());
    let backend = ZkBackend::new(ZkOptions::new(hosts).access(Access::Open).tick(TICK));
    let options = ClientOptions::default().session(SessionOptions::new(Duration::from_secs(20)));
    let client = Client::open(backend.expect("valid"), options).await.expect("a server runs");
    for number in 0..WARM_UP {
        round(&client, number).await;
    }

    let before = MEMORY.allocated();
    for number in 0..rounds {
        round(&client, number).await;
    }
    let after = MEMORY.allocated();

    println!("{rounds} rounds: {before} bytes in use before, {after} after");
    assert!(after < before + ROOM, "{before} bytes in use before {rounds} rounds, {after} after");
    let session = client.session().await.expect("it lives").info().id;
    let end = tokio::time::Instant::now() + PATIENCE;
    while servers.watches(&[session]) > 0 {
        assert!(tokio::time::Instant::now() < end, "the server keeps watches that no client has");
        tokio::time::sleep(TICK).await;
    }
    client.close().await.expect("answers");
}

fn path(text: &str) -> Path {
    Path::new(text).expect("valid")
}

/// Far more than 100,000 rounds need on a slow machine.
const LIMIT: Duration = Duration::from_secs(4 * 3_600);

fn main() -> ExitCode {
    let servers = Ensemble::start(1);
    if let (true, Err(why)) = (required(), &servers) {
        panic!("{why}");
    }
    let name = "memory_stays_flat_however_much_is_done";
    let trial = match servers {
        Ok(servers) => Trial::test(name, move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            limited(LIMIT, move || runtime.block_on(memory_stays_flat(&servers)))
                .map_err(Failed::from)
        }),
        Err(why) => Trial::test(name, || Ok(()))
            .with_ignored_flag(true)
            .with_kind(format!("cannot run: {why}")),
    };
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}
