//! A process is killed at each call of the system by which it writes, locks or removes a file.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use synod_core::store::{Event, Kind, Query, Store, View};
use synod_servers::home::Home;

use crate::child::{Process, block_on, node, session};
use crate::history::{Answers, check_database, verify, verify_new};

/// The calls at which a process is killed. It is killed before the call has an effect.
const CALLS: &str = "write,pwrite64,fsync,fdatasync,ftruncate,fallocate,unlink,unlinkat,mkdir,\
                     mkdirat,mknodat,flock,fcntl";

/// The number of steps of a history: each thread that writes makes more calls than any before it.
const STEPS: u64 = 15;

/// The distance between two calls at which a process is killed, in the usual run.
const USUAL: usize = 4;

/// Returns `true` if each call is to be tried, and not only some.
pub(crate) fn is_thorough() -> bool {
    std::env::var_os("SYNOD_CUTS").is_some()
}

/// Kills a process at its call with this number, counted for each of its threads.
fn killed_at(directory: &Path, call: usize) -> (Answers, bool) {
    let inject = format!("inject={CALLS}:signal=KILL:when={call}");
    let trace = format!("trace={CALLS}");
    let tracer = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    let steps = STEPS.to_string();
    let mut process = Process::start_by(&tracer, directory, &["history", &steps]);
    let (mut answers, mut is_whole) = (Answers::default(), false);
    while let Some(line) = process.line() {
        answers.read(&line);
        is_whole = line == "ended";
    }
    (answers, is_whole)
}

/// Calls `run` with the number of each call, until it returns `true`: the process came to its end.
fn at_each_call(mut run: impl FnMut(usize) -> bool) {
    let step = if is_thorough() { 1 } else { USUAL };
    let ends = (1..).step_by(step).take_while(|call| !run(*call)).count();
    assert!(ends * step > 50, "a process was killed {ends} times only");
}

/// Nobody else has the store open: the next opener finds what is left.
pub(crate) fn alone() {
    at_each_call(|call| {
        let home = Home::in_memory("killed").expect("a directory can be created");
        let directory = home.path().join("store");
        let (answers, is_whole) = killed_at(&directory, call);
        block_on(async {
            let store = session(&directory, Duration::from_secs(60)).await;
            verify_new(&*store, answers.revision);
            verify(&*store, answers.steps, answers.steps + 1, answers.revision).await;
            store.close().await.expect("it ends");
        });
        check_database(&directory);
        is_whole
    });
}

/// Another process has the store open: it notices the end, and misses no change.
pub(crate) fn observed() {
    let home = Home::in_memory("killed").expect("a directory can be created");
    at_each_call(|call| {
        let directory = home.path().join(call.to_string());
        let is_whole = block_on(async {
            let store = session(&directory, Duration::from_secs(60)).await;
            let kept = Query::children(node("/kept"));
            let (_, mut changes) = store.watch(kept.clone()).await.expect("answered");
            let (answers, is_whole) = killed_at(&directory, call);
            no_held_nodes(&*store).await;
            verify(&*store, answers.steps, answers.steps + 1, answers.revision).await;
            // The events up to the revision of a view lead to that view.
            let view = store.read(kept).await.expect("answered");
            let mut seen = BTreeSet::new();
            while seen != names(&view) {
                match changes.next().await {
                    Some(Event::Changed(change)) if change.kind == Kind::Deleted => {
                        seen.remove(change.path.name());
                    }
                    Some(Event::Changed(change)) => {
                        seen.insert(change.path.name().to_owned());
                    }
                    other => panic!("{other:?}, with {seen:?} of {view:?}"),
                }
            }
            store.close().await.expect("it ends");
            is_whole
        });
        check_database(&directory);
        is_whole
    });
}

fn names(view: &View) -> BTreeSet<String> {
    view.nodes.iter().map(|node| node.path.name().to_owned()).collect()
}

/// Waits until the ephemeral nodes of the killed process are gone.
async fn no_held_nodes(store: &dyn Store) {
    let held = Query::children(node("/held")).names_only();
    let (mut view, mut changes) = store.watch(held.clone()).await.expect("answered");
    while !view.nodes.is_empty() {
        assert!(changes.next().await.is_some(), "the session is open");
        view = store.read(held.clone()).await.expect("answered");
    }
}
