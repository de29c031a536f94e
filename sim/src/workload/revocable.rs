//! A lock whose release other processes request.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex as Cell, PoisonError};
use std::time::Duration;

use crate::cluster::Site;
use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_recipes::Token;
use synod_recipes::lock::{Mutex, MutexGuard, inspect, request_release};

use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;
use crate::workload::belief::{Among, Beliefs, Judge as _, LOCK};
use crate::workload::grant::{Grants, Wants};
use crate::workload::holding::{self, Holding};

/// Three processes wait for one lock, request its release, and release it on request.
pub(super) struct Revocables;

const ROUNDS: u64 = 2;

/// The law, which has no number.
const HEARD: &str = "a holder that is asked back is notified";

const ASKED: &str = "a holder was asked back, and heard of it";

/// The time of the first release request for each ticket. Clones share it.
type Asked = Arc<Cell<BTreeMap<(Path, Token), Duration>>>;

impl Workload for Revocables {
    fn name(&self) -> &'static str {
        "revocable"
    }

    fn about(&self) -> &'static str {
        "three processes want one lock, and ask its holder to give it back"
    }

    fn laws(&self) -> &'static [&'static str] {
        &[HEARD, "L-MX-1", "L-MX-2", "L-MX-3", "L-MX-5", "L-MX-7", "L-MX-8", "L-MX-9", "L-MX-11"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, holding::LOST, holding::LATE, holding::SILENT, ASKED]
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::SlowReader]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let (beliefs, grants, asked) = (Beliefs::new(LOCK), Grants::of(dir()), Asked::default());
        let granted = grants.clone();
        let sim = sim
            // A stranger that overwrites the request cancels it.
            .rates(|rates| rates.set(Site::Meddled, 0))
            .given(holding::data(), "0")
            .aged(dir())
            .processes(3, move |me| work(me, beliefs.clone(), granted.clone(), asked.clone()))
            .must_end("L-MX-7")
            .check("L-MX-5", holding::guarded_writes_rise)
            .check("L-MX-11", holding::only_owners_remove_tickets);
        grants.watch(sim)
    }
}

async fn work(me: Process, beliefs: Beliefs, grants: Grants, asked: Asked) {
    let Ok(client) = me.client().await else { return };
    let worker = Worker { me, client, beliefs, grants, asked };
    Box::pin(worker.rounds()).await;
    holding::leaves_nothing(&worker.me, &worker.client, &worker.grants, "L-MX-9").await;
}

struct Worker {
    me: Process,
    client: Client,
    beliefs: Beliefs,
    grants: Grants,
    asked: Asked,
}

impl Worker {
    async fn rounds(&self) {
        for _ in 0..self.me.rounds(ROUNDS) {
            if let Some(Ok(guard)) = self.me.perhaps(self.lock()).await {
                self.hold(guard).await;
            }
            self.me.rest(self.me.ttl() / 8).await;
        }
    }

    /// Waits for the lock, and repeatedly requests its release.
    async fn lock(&self) -> Result<MutexGuard> {
        let mutex = Mutex::new(&self.client, dir());
        let mut locked = pin!(mutex.lock());
        loop {
            let wait = pin!(clock::sleep(self.me.ttl() / 4));
            match select(locked.as_mut(), wait).await {
                Either::Left((locked, _)) => return locked,
                Either::Right(_) => self.ask().await,
            }
        }
    }

    async fn ask(&self) {
        let Ok(line) = inspect(&self.client, &dir()).await else { return };
        let Some(first) = line.first() else { return };
        if matches!(request_release(&self.client, &first.path).await, Ok(true)) {
            let now = self.me.age();
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.entry((first.path.clone(), first.token)).or_insert(now);
        }
    }

    async fn hold(&self, guard: MutexGuard) {
        let Self { me, client, beliefs, grants, .. } = self;
        beliefs.entered(me, &guard, Among::Nobody);
        grants.note(me, &guard, Wants::All);
        Holding { me, client, judge: beliefs, among: Among::Nobody }.pass(&guard).await;
        if me.pick(2) == 0 {
            self.listen(&guard).await;
        }
        grants.returns(&guard);
        drop(me.perhaps(guard.release()).await);
    }

    /// Holds the lock until its release is requested, or for longer than a request takes.
    async fn listen(&self, guard: &MutexGuard) {
        let me = &self.me;
        let harmed = me.harmed();
        let drawn = me.born(guard).map(|(drawn, _)| drawn);
        let heard = clock::timeout(me.ttl() * 6, guard.release_requested()).await;
        me.sometimes(ASKED, matches!(heard, Ok(Ok(()))));
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        // An earlier ticket may have had this path.
        let ticket = (guard.path().clone(), guard.token());
        let long_ago = asked.get(&ticket).is_some_and(|at| *at + me.ttl() * 4 < me.age());
        drop(asked);
        let holds = guard.is_held();
        if holds {
            self.beliefs.believes(me, guard, Among::Nobody, drawn);
        }
        if heard.is_err() && holds && long_ago && me.harmed() == harmed {
            me.wrong(HEARD, || format!("{} was asked back, and was not notified", guard.path()));
        }
    }
}

fn dir() -> Path {
    Path::new("/lock").expect("it is one")
}
