//! Processes that end, or are stopped, and what the others notice.

use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use synod_core::error::{Effect, ErrorKind};
use synod_core::store::{Event, Lifetime, Query, Status, Store, Txn};
use synod_servers::home::Home;

use crate::child::{Process, block_on, node, put, read_number, session};

/// Longer than a test waits.
const LONG: Duration = Duration::from_secs(3_600);

fn home() -> Home {
    Home::in_memory("processes").expect("a directory can be created")
}

/// Waits until a node is gone.
pub(crate) async fn gone(store: &dyn Store, path: &str) {
    let (view, mut watch) = store.watch(Query::until_gone(node(path))).await.expect("answered");
    if view.node().is_none() {
        // The end was noticed before the watch began.
        return;
    }
    match watch.next().await {
        Some(Event::Changed(_)) => {}
        other => panic!("{path}: {other:?}"),
    }
    let view = store.read(Query::node(node(path))).await.expect("answered");
    assert!(view.node().is_none(), "the event says that it is gone");
}

/// The session would live for an hour: only the end of the process can be the reason.
pub(crate) fn a_killed_process() {
    let home = home();
    let directory = home.path().join("store");
    let mut holder = Process::start(&directory, &["hold", "/lock", "3600000"]);
    assert_eq!(holder.line().as_deref(), Some("held"));
    block_on(async {
        let store = session(&directory, LONG).await;
        holder.signal(Signal::KILL);
        gone(&*store, "/lock").await;
        store.close().await.expect("it ends");
    });
}

/// Returns the number of seats of a directory.
fn seats(directory: &Path) -> usize {
    let files = std::fs::read_dir(directory.join("seats")).expect("it is there");
    let names = files.map(|file| file.expect("readable").file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".lock")).count()
}

pub(crate) fn a_lingering_session() {
    let home = home();
    let directory = home.path().join("store");
    let mut long = Process::start(&directory, &["linger", "/long", "3600000"]);
    assert_eq!(long.line().as_deref(), Some("held"));
    let mut short = Process::start(&directory, &["linger", "/short", "2000"]);
    assert_eq!(short.line().as_deref(), Some("held"));
    block_on(async {
        let store = session(&directory, LONG).await;
        long.signal(Signal::KILL);
        short.signal(Signal::KILL);
        gone(&*store, "/short").await;
        assert_eq!(seats(&directory), 1, "the deaths were noticed");
        // Its time to live has not passed.
        let view = store.read(Query::node(node("/long"))).await.expect("answered");
        assert!(view.node().is_some(), "a session of an hour lingers for an hour");
    });
}

pub(crate) fn a_stopped_process() {
    let home = home();
    let directory = home.path().join("store");
    let mut stopped = Process::start(&directory, &["hold", "/stopped", "1000"]);
    assert_eq!(stopped.line().as_deref(), Some("held"));
    let mut patient = Process::start(&directory, &["hold", "/patient", "3600000"]);
    assert_eq!(patient.line().as_deref(), Some("held"));
    block_on(async {
        let store = session(&directory, LONG).await;
        stopped.signal(Signal::STOP);
        patient.signal(Signal::STOP);
        gone(&*store, "/stopped").await;
        // Its time to live has not passed, and its process has not ended.
        let view = store.read(Query::node(node("/patient"))).await.expect("answered");
        assert!(view.node().is_some(), "a session of an hour lives for an hour");
        stopped.signal(Signal::CONT);
        patient.signal(Signal::CONT);
        let last = stopped.line().expect("it goes on");
        assert!(last.starts_with("lost"), "{last}");
        let again = Txn::new().create(node("/stopped"), "", Lifetime::Session);
        assert!(store.commit(again).await.expect("answered").is_committed());
    });
}

/// An observer has the lock of the heartbeats while it ends sessions: until then their owner does
/// not believe in any of them.
pub(crate) fn a_judged_process() {
    let home = home();
    let directory = home.path().join("store");
    block_on(async {
        let store = session(&directory, Duration::from_secs(1)).await;
        let seats = std::fs::read_dir(directory.join("seats")).expect("it is there");
        let mut files = seats.map(|file| file.expect("readable").path());
        let beat = files.find(|path| path.extension().is_some_and(|part| part == "beat"));
        let beat = std::fs::File::open(beat.expect("this seat")).expect("it is there");
        flock(&beat, FlockOperation::LockExclusive).expect("between two heartbeats");
        let mut status = store.status();
        status.wait_for(Status::is_lost).await.expect("no heartbeat was sent");
    });
}

/// The number of writes of each of two processes that answer each other.
const ANSWERS: u64 = 40;

/// Ticks find a change within a second. So many of them would take far longer than the limit. The
/// disk delays each commit: a wake before it would be in vain.
pub(crate) fn a_wake() {
    let home = Home::new("wakes").expect("a directory can be created");
    let directory = home.path().join("store");
    let _other = Process::start(&directory, &["answer", "/call", "/answer"]);
    block_on(async {
        let store = session(&directory, LONG).await;
        let (_, mut answers) = store.watch(Query::node(node("/answer"))).await.expect("answered");
        for number in 1..=ANSWERS {
            put(&*store, "/call", number).await;
            while read_number(&*store, "/answer").await < number {
                assert!(answers.next().await.is_some(), "the session is open");
            }
        }
    });
}

/// The turn is a lock of a file, which this test takes as a stopped process would keep it.
pub(crate) fn a_taken_turn() {
    let home = home();
    let directory = home.path().join("store");
    block_on(async {
        let store = session(&directory, Duration::from_secs(2)).await;
        let turn = std::fs::File::open(directory.join("turn")).expect("it is there");
        flock(&turn, FlockOperation::LockExclusive).expect("nobody writes");
        let create = || Txn::new().create(node("/late"), "", Lifetime::Session);
        let error = store.commit(create()).await.expect_err("nobody else may write");
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert_eq!(error.effect(), Effect::None, "{error}");
        let holder = format!("process {} has the turn", std::process::id());
        assert!(error.to_string().contains(&holder), "{error}");
        // No heartbeat needs the turn, and no read does.
        assert!(!store.status().borrow().is_lost());
        let view = store.read(Query::node(node("/late"))).await.expect("answered");
        assert!(view.node().is_none());
        drop(turn);
        assert!(store.commit(create()).await.expect("answered").is_committed());
    });
}
