//! A lock that three processes request, some with several tasks or clients.
//!
//! It is the pattern for a workload of a recipe: the actions of its users are here; their claims to
//! hold, with the time of each, in [`Beliefs`], which checks them immediately; the actions of
//! holders, in [`Holding`]; and the check of the store's log at the end.

use crate::cluster::Site;
use futures_util::future::join;
use synod_core::client::Client;
use synod_core::path::Path;
use synod_recipes::lock::{Mutex, MutexGuard};

use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;
use crate::workload::belief::{Among, Beliefs, LOCK};
use crate::workload::grant::{Grants, Wants};
use crate::workload::holding::{self, Holding};

/// Three processes, one of them with two tasks and one with two clients, lock, claim to hold, write
/// under the lock, and release it.
pub(super) struct Mutexes;

const ROUNDS: u64 = 3;
const DIR: &str = "/lock";

impl Workload for Mutexes {
    fn name(&self) -> &'static str {
        "mutex"
    }

    fn about(&self) -> &'static str {
        "three processes want one lock, ask whether they have it, and write under it"
    }

    fn laws(&self) -> &'static [&'static str] {
        &[
            "L-MX-1", "L-MX-2", "L-MX-3", "L-MX-5", "L-MX-6", "L-MX-7", "L-MX-8", "L-MX-9",
            "L-MX-11", "L-MX-12", "L-MX-14", "L-MX-15", "L-SES-15", "L-X-6",
        ]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[
            DROPPED,
            holding::LOST,
            "a lock was waited for",
            "a wait was dropped",
            "reply lost while drawing, and the ticket found again",
            holding::LATE,
            holding::SILENT,
        ]
    }

    fn unreached(&self) -> Vec<Site> {
        // A waiter takes one event of a watch.
        vec![Site::SlowReader, Site::EventsJoined]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let beliefs = Beliefs::new(LOCK);
        let grants = Grants::of(dir());
        let granted = grants.clone();
        let sim = sim
            .given(holding::data(), "0")
            .aged(dir())
            .processes(3, move |me| work(me, beliefs.clone(), granted.clone()))
            .must_end("L-MX-7")
            .check("L-MX-5", holding::guarded_writes_rise)
            .check("L-MX-11", holding::only_owners_remove_tickets)
            .check("L-MX-14", holding::few_are_woken);
        grants.watch(sim)
    }
}

async fn work(me: Process, beliefs: Beliefs, grants: Grants) {
    let Ok(client) = me.impatient_client().await else { return };
    // Two tasks of one process are two contenders, in one session or in two.
    let second = match me.number() {
        1 => Some(client.clone()),
        2 => me.second_client().await.ok(),
        _ => None,
    };
    let worker = Worker { me, client, beliefs, grants };
    let beside = async {
        if let Some(second) = &second {
            worker.rounds(second).await;
        }
    };
    Box::pin(join(worker.rounds(&worker.client), beside)).await;
    holding::leaves_nothing(&worker.me, &worker.client, &worker.grants, "L-MX-9").await;
}

struct Worker {
    me: Process,
    client: Client,
    beliefs: Beliefs,
    grants: Grants,
}

impl Worker {
    async fn rounds(&self, client: &Client) {
        for _ in 0..self.me.rounds(ROUNDS) {
            let mutex = Mutex::new(client, dir());
            let began = self.me.age();
            let lost_before = self.me.suffered(&[Site::ReplyLost]);
            match self.me.perhaps(mutex.lock()).await {
                Some(Ok(guard)) => {
                    let lost = self.me.suffered(&[Site::ReplyLost]) > lost_before;
                    self.me.sometimes("reply lost while drawing, and the ticket found again", lost);
                    self.me.sometimes(
                        "a lock was waited for",
                        self.me.age() > began + self.me.ttl() / 10,
                    );
                    self.hold(client, guard).await;
                }
                Some(Err(_)) => {}
                None => self.me.sometimes("a wait was dropped", true),
            }
            self.me.rest(self.me.ttl() / 8).await;
        }
    }

    async fn hold(&self, client: &Client, guard: MutexGuard) {
        let Self { me, beliefs, grants, .. } = self;
        beliefs.entered(me, &guard, Among::Nobody);
        grants.note(me, &guard, Wants::All);
        let stay = Holding { me, client, judge: beliefs, among: Among::Nobody };
        if guard.token().revision().get().is_multiple_of(2) {
            stay.pass(&guard).await;
        } else {
            // No request with the ticket's name can be delayed, so the next ticket may reuse the
            // name.
            stay.linger(&guard).await;
        }
        if me.pick(3) == 0 {
            drop(guard);
        } else {
            grants.returns(&guard);
            drop(me.perhaps(guard.release()).await);
        }
    }
}

fn dir() -> Path {
    Path::new(DIR).expect("it is one")
}
