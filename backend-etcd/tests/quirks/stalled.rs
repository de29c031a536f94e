//! A leader whose disk stalls, while its process and its connections work.

use std::os::unix::fs::MetadataExt as _;
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

use etcd_client::Client;
use synod_core::store::{Backend as _, Expect, Lifetime, Query, SessionOptions, Txn};
use synod_etcd::{EtcdBackend, EtcdOptions};
use synod_testkit::limit::waits_for;
use synod_testkit::server::child::Child;
use synod_testkit::server::etcd::Flavour;
use tokio::time::{Instant, timeout};

use crate::world::{World, create, eventually, next, path};

/// The reason that no disk can be stalled here; `None` if it can.
pub(crate) fn missing() -> Option<&'static str> {
    let works = Command::new("strace").args(["-o", "/dev/null", "true"]).status();
    if !works.is_ok_and(|status| status.success()) {
        return Some("strace is not installed, or not permitted");
    }
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let attaches = is_root || matches!(scope.trim(), "" | "0");
    (!attaches).then_some("strace is not permitted to attach to a process")
}

/// Delays what a member writes to its disk, until this is dropped.
async fn stall(world: &World, member: usize) -> io::Result<Child> {
    let mut strace = Command::new("strace");
    let process = world.cluster.process(member)?.to_string();
    strace.args(["-f", "-p", &process, "-o", "/dev/null", "-e", "trace=fdatasync"]);
    strace.args(["-e", "inject=fdatasync:delay_enter=120s"]);
    let log = world.cluster.home(member).join("strace");
    let child = Child::start(&strace, &log)?;
    let attached = async || fs::read_to_string(&log).is_ok_and(|said| said.contains("attached"));
    eventually("strace is attached", attached).await;
    Ok(child)
}

/// Members before 3.4.31 and 3.5.13 answer keep-alives from memory, also while another leader expires
/// the leases.
pub(crate) async fn no_session_is_certain_of_what_the_next_leader_has_ended() {
    const TTL: Duration = Duration::from_secs(3);
    let mut flavour = Flavour::default();
    flavour.fsync = true;
    let world = World::new(3, &flavour);
    let leader = world.cluster.leader().expect("one leads");
    let mut others = world.hosts();
    let first = others.remove(leader);
    let session = async |hosts: Vec<String>| {
        let backend = EtcdBackend::new(EtcdOptions::new(hosts)).expect("valid");
        backend.open(&SessionOptions::new(TTL)).await.expect("a session is opened")
    };
    let (ann, bob) = (session(vec![first.clone()]).await, session(others).await);
    create(&*ann, "/n", Lifetime::Persistent).await;
    create(&*ann, "/e", Lifetime::Session).await;
    let waiting = bob.watch(Query::until_gone(path("/e"))).await;
    let (_view, mut watch) = waiting.expect("answered");

    // Nothing is left to be written to the database, which would keep reads waiting as well.
    let client = Client::connect([first], None).await.expect("valid");
    client.maintenance_client().hash().await.expect("answered");
    let _stalled = stall(&world, leader).await.expect("it runs");
    // The leader stalls when it has something to write.
    let stalling = ann.commit(Txn::new().set(path("/n"), "y", Expect::Any));
    let _none = timeout(TTL / 10, stalling).await;
    waits_for("the end of the session at the next leader");
    let began = Instant::now();
    next(&mut watch).await;

    let status = *ann.status().borrow();
    assert!(!status.is_certain(), "{status:?}, {:?} after the stall", began.elapsed());
}
