//! Permits that several processes want at once, with a limit that changes.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cluster::Site;
use futures_util::future::join;
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::{ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::Revision;
use synod_recipes::Held;
use synod_recipes::lock::{Permit, Semaphore};

use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;
use crate::workload::belief::{Among, Judge, is_exception};
use crate::workload::grant::{Grants, Wants};
use crate::workload::holding::{self, Holding};

/// Three processes, one of them with two tasks, take one permit or two, of three or of a number
/// that changes.
pub(super) struct Semaphores;

const ROUNDS: u64 = 3;
/// The fixed limit that all processes know.
const ALL: u32 = 3;
/// The largest limit, if it changes.
const MOST: u32 = 4;

const CHANGED: &str = "the number of permits was changed";
const BESIDE: &str = "two processes held permits at the same time";
const WAITED: &str = "permits were waited for";
const RESTORED: &str = "the number of permits was gone, and set again";

impl Workload for Semaphores {
    fn name(&self) -> &'static str {
        "semaphore"
    }

    fn about(&self) -> &'static str {
        "three processes take some of a few permits, and change how many there are"
    }

    fn laws(&self) -> &'static [&'static str] {
        &[
            "L-SEM-1", "L-SEM-2", "L-SEM-3", "L-SEM-4", "L-SEM-5", "L-SEM-6", "L-SEM-7", "L-MX-2",
            "L-MX-11", "L-MX-15",
        ]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, holding::LOST, holding::LATE, holding::SILENT, CHANGED, BESIDE, WAITED, RESTORED]
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::SlowReader]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let shared = sim.seed.is_multiple_of(2);
        let permits = (!shared).then_some(ALL);
        let (pool, grants) =
            (Pool::of(permits.unwrap_or(MOST)), Grants::of_permits(dir(), permits));
        let granted = grants.clone();
        let limit = dir().join("limit").expect("it is one");
        let posted = dir().join(&format!("limit-{ALL}")).expect("it is one");
        let sim = if shared { sim.given(limit, ALL.to_string()).given(posted, "") } else { sim };
        let sim = sim
            .given(holding::data(), "0")
            .aged(dir())
            .processes(3, move |me| work(me, shared, pool.clone(), granted.clone()))
            .must_end("L-SEM-5")
            .check("L-MX-11", holding::only_owners_remove_tickets);
        grants.watch(sim)
    }
}

async fn work(me: Process, shared: bool, pool: Pool, grants: Grants) {
    let Ok(client) = me.client().await else { return };
    let semaphore = if shared {
        Semaphore::shared(&client, dir())
    } else {
        Semaphore::new(&client, dir(), number(ALL))
    };
    let worker = Worker { me, client, semaphore, shared, pool, grants };
    if worker.me.number() == 1 {
        Box::pin(join(worker.rounds(), worker.rounds())).await;
    } else {
        worker.rounds().await;
    }
    holding::leaves_nothing(&worker.me, &worker.client, &worker.grants, "L-SEM-4").await;
}

struct Worker {
    me: Process,
    client: Client,
    semaphore: Semaphore,
    shared: bool,
    pool: Pool,
    grants: Grants,
}

impl Worker {
    async fn rounds(&self) {
        for _ in 0..self.me.rounds(ROUNDS) {
            if self.me.pick(4) == 0 {
                self.change().await;
            }
            let permits = number(1 + u32::from(self.me.pick(3) == 0));
            let began = self.me.age();
            if let Some(Ok(permit)) = self.me.perhaps(self.acquire(permits)).await {
                self.me.sometimes(WAITED, self.me.age() > began + self.me.ttl() / 10);
                self.hold(permit).await;
            }
            self.me.rest(self.me.ttl() / 8).await;
        }
    }

    /// Changes the limit; if it is fixed, requests more than the limit.
    async fn change(&self) {
        if self.shared {
            // No process requests more than two.
            let number = MOST - u32::from(self.me.pick(3) < 2) - u32::from(self.me.pick(2) == 0);
            let changed = self.me.perhaps(self.semaphore.set_permits(number)).await;
            self.me.sometimes(CHANGED, matches!(changed, Some(Ok(()))));
            return;
        }
        let refused = self.semaphore.acquire_many(ALL + 1).await;
        if !refused.is_err_and(|error| error.kind() == ErrorKind::Invalid) {
            self.me.wrong("L-SEM-7", || "more permits than there are were not refused".to_owned());
        }
    }

    /// Waits for permits, and sets the limit again if a stranger removed it: until then no request
    /// is granted.
    async fn acquire(&self, permits: NonZeroU32) -> Result<Permit> {
        let mut acquired = pin!(self.semaphore.acquire_many(permits.get()));
        loop {
            if let Ok(acquired) = clock::timeout(self.me.ttl() * 4, acquired.as_mut()).await {
                return acquired;
            }
            if self.shared && matches!(self.semaphore.permits().await, Ok(0)) {
                let set = self.semaphore.set_permits(MOST).await;
                self.me.sometimes(RESTORED, set.is_ok());
            }
        }
    }

    async fn hold(&self, permit: Permit) {
        let Self { me, client, pool, grants, .. } = self;
        if !permit.is_held() {
            me.wrong("L-MX-2", || format!("{} entered, and is not certain of it", permit.path()));
        }
        grants.note(me, &permit, Wants::Permits(permit.permits().get()));
        let judge = Pools { pool, permits: permit.permits().get() };
        Holding { me, client, judge: &judge, among: Among::Sharing }.pass(&permit).await;
        if me.pick(3) == 0 {
            drop(permit);
        } else {
            grants.returns(&permit);
            drop(me.perhaps(permit.release()).await);
        }
    }
}

/// The permits that each process claimed to hold, without exceptions ([`is_exception`]). Clones
/// share them.
#[derive(Clone, Debug)]
struct Pool {
    all: u32,
    believers: Arc<Mutex<Vec<Believer>>>,
}

/// A claim of a process, and the earlier tickets that were claimed after it: all of them were held
/// at once.
#[derive(Debug)]
struct Believer {
    drawn: Revision,
    beside: BTreeSet<Revision>,
    taken: u32,
}

/// The check of claims to hold some permits.
struct Pools<'a> {
    pool: &'a Pool,
    permits: u32,
}

impl Pool {
    fn of(all: u32) -> Self {
        Self { all, believers: Arc::default() }
    }

    /// Records a claim. Returns the number of permits held at once if it exceeds the limit, and
    /// `true` if another process holds some.
    fn believe(&self, drawn: Revision, permits: u32) -> (Option<u32>, bool) {
        let mut believers = self.believers.lock().unwrap_or_else(PoisonError::into_inner);
        if believers.iter().all(|one| one.drawn != drawn) {
            let beside = BTreeSet::new();
            believers.push(Believer { drawn, beside, taken: permits });
        }
        let (mut most, mut beside) = (0, false);
        for later in believers.iter_mut().filter(|one| one.drawn > drawn) {
            beside = true;
            if later.beside.insert(drawn) {
                later.taken += permits;
            }
            most = most.max(later.taken);
        }
        (Some(most).filter(|most| *most > self.all), beside)
    }
}

impl Judge for Pools<'_> {
    /// L-SEM-1: earlier tickets that are still held, and all that were held before now, have no
    /// more permits than the limit.
    fn believes(&self, me: &Process, held: &dyn Held, _among: Among, drawn: Option<Revision>) {
        let Some(drawn) = drawn.filter(|drawn| !is_exception(me, held, *drawn)) else {
            return;
        };
        let (too_many, beside) = self.pool.believe(drawn, self.permits);
        me.sometimes(BESIDE, beside);
        if let Some(many) = too_many {
            let all = self.pool.all;
            me.wrong("L-SEM-1", || format!("{many} permits of {all} are held"));
        }
    }
}

fn number(permits: u32) -> NonZeroU32 {
    NonZeroU32::new(permits).expect("not zero")
}

fn dir() -> Path {
    Path::new("/pool").expect("it is one")
}
