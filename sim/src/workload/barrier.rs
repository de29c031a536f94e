//! A barrier that three processes set, lift, and wait for.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::cluster::Site;
use futures_util::future::select;
use synod_core::clock;
use synod_core::path::Path;
use synod_core::store::Kind;
use synod_recipes::barrier::Barrier;

use crate::findings::Truth;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;

/// Three processes set a barrier, lift it and wait for it, in any order. At the end each of them
/// lifts it once more, and waits.
pub(super) struct Barriers;

const ROUNDS: u64 = 4;

const WAITED: &str = "a barrier was waited for";
const PASSED: &str = "a barrier was not set";

/// The result of a call: the barrier was set at some time during the call, or it was not.
#[derive(Clone, Copy, Debug)]
struct Seen {
    process: u64,
    what: &'static str,
    set: bool,
    /// The numbers of commits when it was called, and when it returned.
    called: usize,
    returned: usize,
}

/// The results of all calls. Clones share them.
#[derive(Clone, Debug, Default)]
struct Book(Arc<Mutex<Vec<Seen>>>);

impl Workload for Barriers {
    fn name(&self) -> &'static str {
        "barrier"
    }

    fn about(&self) -> &'static str {
        "three processes set one barrier, lift it and wait for it"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-BAR-1", "L-BAR-2"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, WAITED, PASSED]
    }

    fn unreached(&self) -> Vec<Site> {
        vec![
            Site::SlowReader,
            Site::EventsJoined,
            Site::NearTheEnd,
            Site::BeatsCut,
            Site::WallClockSet,
        ]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let book = Book::default();
        let written = book.clone();
        // Strangers would set it after the last lift.
        sim.without_strangers()
            .processes(3, move |me| work(me, written.clone()))
            .must_end("L-BAR-2")
            .check("L-BAR-1", move |truth| book.check(truth))
    }
}

async fn work(me: Process, book: Book) {
    let Ok(client) = me.client().await else { return };
    let worker = Worker { barrier: Barrier::new(&client, path()), me, book };
    for _ in 0..worker.me.rounds(ROUNDS) {
        worker.round().await;
        worker.me.rest(worker.me.ttl() / 8).await;
    }
    // L-BAR-2: this wait begins under faults, and ends after the last of all lifts.
    select(pin!(worker.waits()), pin!(worker.lifts_at_last())).await;
}

struct Worker {
    me: Process,
    barrier: Barrier,
    book: Book,
}

impl Worker {
    async fn round(&self) {
        let (me, called) = (&self.me, self.me.committed());
        match me.pick(4) {
            0 | 1 => {
                if let Some(Ok(_)) = me.perhaps(self.barrier.set()).await {
                    self.note("set", true, called);
                }
            }
            2 => {
                if let Some(Ok(_)) = me.perhaps(self.barrier.lift()).await {
                    self.note("lifted", false, called);
                }
            }
            _ => drop(me.perhaps(clock::timeout(me.ttl() * 2, self.waits())).await),
        }
    }

    async fn waits(&self) {
        let (called, since) = (self.me.committed(), self.me.age());
        if self.barrier.wait().await.is_ok() {
            let waited = self.me.age() > since + Duration::from_millis(100);
            self.me.sometimes(WAITED, waited);
            self.me.sometimes(PASSED, !waited);
            self.note("passed", false, called);
        }
    }

    /// Lifts it repeatedly during the wait: a set whose answer was lost may be applied after the
    /// first lift.
    async fn lifts_at_last(&self) {
        self.me.mended().await;
        loop {
            let _may_fail = self.barrier.lift().await.is_ok();
            clock::sleep(self.me.ttl() / 4).await;
        }
    }

    fn note(&self, what: &'static str, set: bool, called: usize) {
        let (process, returned) = (self.me.number(), self.me.committed());
        let mut book = self.book.0.lock().unwrap_or_else(PoisonError::into_inner);
        book.push(Seen { process, what, set, called, returned });
    }
}

impl Book {
    /// L-BAR-1: the result of a call was true at some time during the call.
    fn check(&self, truth: &Truth) -> Result<(), String> {
        let mut set = vec![false];
        for entry in &truth.log {
            let last = entry.changes.iter().rfind(|change| change.path == path());
            let now = last.map_or(set[set.len() - 1], |change| change.kind != Kind::Deleted);
            set.push(now);
        }
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wrong = seen.iter().find(|seen| !set[seen.called..=seen.returned].contains(&seen.set));
        wrong.map_or(Ok(()), |wrong| {
            let Seen { process, what, called, returned, .. } = wrong;
            Err(format!("{process} {what} from commit {called} to {returned}, and it was never so"))
        })
    }
}

fn path() -> Path {
    Path::new("/barrier").expect("it is one")
}
