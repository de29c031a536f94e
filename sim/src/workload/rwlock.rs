//! A lock that some processes want for reading and some for writing; some writers downgrade.

use crate::cluster::Site;
use futures_util::future::join;
use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_core::path::Path;
use synod_recipes::lock::{ReadGuard, RwLock, WriteGuard};

use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;
use crate::workload::belief::{Among, Beliefs, LOCK, Laws};
use crate::workload::grant::{Grants, Wants};
use crate::workload::holding::{self, Holding};

/// Three processes, one of them with two tasks, read and write.
pub(super) struct RwLocks;

const ROUNDS: u64 = 3;

const LAWS: Laws = Laws { overlap: "L-RW-1", tokens: "L-RW-8", ..LOCK };

/// The claims of downgraded readers: the same, under another law.
const GOING_ON: Laws = Laws { overlap: "L-RW-4", order: "L-RW-4", ..LAWS };

const TOGETHER: &str = "two readers read at the same time";
const WENT_ON: &str = "a writer went on reading";
const TRIED: &str = "a try found the lock free";

impl Workload for RwLocks {
    fn name(&self) -> &'static str {
        "rwlock"
    }

    fn about(&self) -> &'static str {
        "three processes read and write under one lock, and go on reading where they wrote"
    }

    fn laws(&self) -> &'static [&'static str] {
        &[
            "L-RW-1", "L-RW-2", "L-RW-3", "L-RW-4", "L-RW-5", "L-RW-6", "L-RW-8", "L-MX-2",
            "L-MX-5", "L-MX-6", "L-MX-7", "L-MX-9", "L-MX-11", "L-MX-15",
        ]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, holding::LOST, holding::LATE, holding::SILENT, TOGETHER, WENT_ON, TRIED]
    }

    fn unreached(&self) -> Vec<Site> {
        // A waiter takes one event of a watch.
        vec![Site::SlowReader, Site::EventsJoined]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let (beliefs, grants) = (Beliefs::new(LAWS), Grants::of(dir()));
        let granted = grants.clone();
        let sim = sim
            .given(holding::data(), "0")
            .aged(dir())
            .processes(3, move |me| work(me, beliefs.clone(), granted.clone()))
            .must_end("L-MX-7")
            .check("L-MX-5", holding::guarded_writes_rise)
            .check("L-MX-11", holding::only_owners_remove_tickets);
        grants.watch(sim)
    }
}

async fn work(me: Process, beliefs: Beliefs, grants: Grants) {
    let Ok(client) = me.client().await else { return };
    let lock = RwLock::new(&client, dir());
    let worker = Worker { me, client, lock, beliefs, grants };
    if worker.me.number() == 1 {
        Box::pin(join(worker.rounds(), worker.rounds())).await;
    } else {
        worker.rounds().await;
    }
    holding::leaves_nothing(&worker.me, &worker.client, &worker.grants, "L-MX-9").await;
}

struct Worker {
    me: Process,
    client: Client,
    lock: RwLock,
    beliefs: Beliefs,
    grants: Grants,
}

impl Worker {
    async fn rounds(&self) {
        for _ in 0..self.me.rounds(ROUNDS) {
            match self.me.pick(8) {
                0..3 => self.read().await,
                3..6 => self.write().await,
                6 => self.try_to_read().await,
                _ => self.try_to_write().await,
            }
            self.me.rest(self.me.ttl() / 8).await;
        }
    }

    async fn read(&self) {
        if let Some(Ok(guard)) = self.me.perhaps(self.lock.read()).await {
            self.reads(guard).await;
        }
    }

    async fn try_to_read(&self) {
        if let Some(Ok(Some(guard))) = self.me.perhaps(self.lock.try_read()).await {
            self.me.sometimes(TRIED, true);
            self.reads(guard).await;
        }
    }

    async fn write(&self) {
        if let Some(Ok(guard)) = self.me.perhaps(self.lock.write()).await {
            self.writes(guard).await;
        }
    }

    async fn try_to_write(&self) {
        if let Some(Ok(Some(guard))) = self.me.perhaps(self.lock.try_write()).await {
            self.me.sometimes(TRIED, true);
            self.writes(guard).await;
        }
    }

    async fn reads(&self, guard: ReadGuard) {
        self.beliefs.entered(&self.me, &guard, Among::Sharing);
        self.grants.note(&self.me, &guard, Wants::Share);
        self.stays_reading(guard, &self.beliefs).await;
    }

    async fn stays_reading(&self, guard: ReadGuard, beliefs: &Beliefs) {
        let Self { me, client, grants, .. } = self;
        let (_shares, beside) = beliefs.shares();
        me.sometimes(TOGETHER, beside);
        Holding { me, client, judge: beliefs, among: Among::Sharing }.pass(&guard).await;
        let refused = guard.upgrade().is_err_and(|error| error.kind() == ErrorKind::Refused);
        if !refused {
            me.wrong("L-RW-5", || "a reader may write".to_owned());
        }
        if me.pick(3) == 0 {
            drop(guard);
        } else {
            grants.returns(&guard);
            drop(me.perhaps(guard.release()).await);
        }
    }

    async fn writes(&self, guard: WriteGuard) {
        let Self { me, client, beliefs, grants, .. } = self;
        beliefs.entered(me, &guard, Among::Nobody);
        grants.note(me, &guard, Wants::All);
        Holding { me, client, judge: beliefs, among: Among::Nobody }.pass(&guard).await;
        match me.pick(4) {
            0 => drop(guard),
            1 => {
                grants.returns(&guard);
                drop(me.perhaps(guard.release()).await);
            }
            _ => {
                let reading = me.perhaps(guard.downgrade()).await;
                me.sometimes(WENT_ON, matches!(reading, Some(Ok(_))));
                if let Some(Ok(guard)) = reading {
                    self.stays_reading(guard, &beliefs.under(GOING_ON)).await;
                }
            }
        }
    }
}

fn dir() -> Path {
    Path::new("/rw").expect("it is one")
}
