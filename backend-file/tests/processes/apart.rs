//! Processes that share less than usual: they are in other namespaces, or were started by one that
//! has ended.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use rustix::process::Signal;
use synod_core::store::{Query, Store};
use synod_servers::home::Home;

use crate::child::{Process, block_on, node, session};
use crate::ends::gone;

/// Longer than a test waits, in milliseconds too.
const LONG: Duration = Duration::from_secs(3_600);
const LONG_MS: &str = "3600000";

/// Another user, other process ids, and a clock that is days ahead. The process ends with
/// `unshare`.
const APART: [&str; 9] = [
    "unshare",
    "--user",
    "--map-root-user",
    "--pid",
    "--time",
    "--boottime=1000000",
    "--fork",
    "--kill-child",
    "--",
];

/// The reason that no process can be in another namespace here, if there is one.
pub(crate) fn missing() -> Option<String> {
    static MISSING: LazyLock<Option<String>> =
        LazyLock::new(|| match Command::new(APART[0]).args(&APART[1..]).arg("true").output() {
            Ok(output) if output.status.success() => None,
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr);
                Some(format!("this process may create no namespaces: {}", why.trim()))
            }
            Err(error) => Some(format!("unshare cannot be started: {error}")),
        });
    MISSING.clone()
}

async fn is_there(store: &dyn Store, path: &str) -> bool {
    store.read(Query::node(node(path))).await.expect("answered").node().is_some()
}

/// All three have the process id 1. One is killed, one lingers, and one lives.
pub(crate) fn in_namespaces() {
    let home = Home::in_memory("apart").expect("a directory can be created");
    let directory = home.path().join("store");
    let held = |how, path, ttl| {
        let mut process = Process::start_by(&APART, &directory, &[how, path, ttl]);
        assert_eq!(process.line().as_deref(), Some("held"));
        process
    };
    let killed = held("hold", "/killed", LONG_MS);
    let lingers = held("linger", "/lingers", "2000");
    let _lives = held("hold", "/lives", LONG_MS);
    block_on(async {
        let store = session(&directory, LONG).await;
        killed.signal(Signal::KILL);
        gone(&*store, "/killed").await;
        assert!(is_there(&*store, "/lingers").await, "its process lives");
        lingers.signal(Signal::KILL);
        gone(&*store, "/lingers").await;
        assert!(is_there(&*store, "/lives").await, "its process lives, in another namespace");
    });
}

/// The time to live of a node, by a clock that only its writer reads.
pub(crate) fn by_another_clock() {
    let home = Home::in_memory("apart").expect("a directory can be created");
    let directory = home.path().join("store");
    let mut writer = Process::start_by(&APART, &directory, &["ttl", "/short", "1000"]);
    assert_eq!(writer.line().as_deref(), Some("created"));
    let mut other = Process::start_by(&APART, &directory, &["ttl", "/long", LONG_MS]);
    assert_eq!(other.line().as_deref(), Some("created"));
    // Both have ended: who observes the nodes now has another clock.
    assert_eq!((writer.line(), other.line()), (None, None));
    block_on(async {
        let store = session(&directory, LONG).await;
        gone(&*store, "/short").await;
        assert!(is_there(&*store, "/long").await, "its time has not passed");
    });
}

/// A program that a process has started outlives it, and keeps nothing of it.
pub(crate) fn a_program_of_a_dead_process() {
    let home = Home::in_memory("apart").expect("a directory can be created");
    let directory = home.path().join("store");
    let mut holder = Process::start(&directory, &["start", "/lock", LONG_MS]);
    assert_eq!(holder.line().as_deref(), Some("held"));
    let id = holder.line().expect("it reports its child");
    block_on(async {
        let store = session(&directory, LONG).await;
        holder.signal(Signal::KILL);
        gone(&*store, "/lock").await;
        let files = open_files(&format!("/proc/{id}/fd"));
        assert!(!files.is_empty(), "the program runs");
        let kept: Vec<_> = files.iter().filter(|file| file.starts_with(home.path())).collect();
        assert!(kept.is_empty(), "a program inherits none of our files: {kept:?}");
    });
}

fn open_files(descriptors: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(Path::new(descriptors)).expect("the process runs");
    entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()).collect()
}
