//! Variants of the mutex: re-entrant locks, locks that are passed on within a process, and locks
//! without an order. Some request the same lock as a plain mutex.

use std::pin::pin;

use crate::cluster::Site;
use futures_util::future::{Either, join3, select};
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_recipes::Held;
use synod_recipes::lock::{CohortGuard, CohortMutex, Mutex, Owner, ReentrantMutex, UnfairLock};
use tokio::sync::Notify;

use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;
use crate::workload::belief::{Among, Beliefs, LOCK, Laws};
use crate::workload::grant::{Grants, Wants};
use crate::workload::holding::{self, Holding};

/// Three processes, one of them with three tasks, request one kind of lock.
pub(super) struct Kin {
    name: &'static str,
    about: &'static str,
    laws: &'static [&'static str],
    marks: &'static [&'static str],
    kind: Kind,
    twins: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Reentrant,
    Passing,
    Unfair,
}

const ROUNDS: u64 = 3;

const AGAIN: &str = "an owner entered again";
const REFUSED: &str = "an owner that had lost the lock was refused";
const PASSED: &str = "a lock was passed on";
const TRIED: &str = "a try found the lock free";

pub(super) const REENTRANT: Kin = Kin {
    name: "reentrant",
    about: "three processes want one lock, and lock it again while they have it",
    laws: &[
        "L-MX-13", "L-MX-1", "L-MX-2", "L-MX-3", "L-MX-5", "L-MX-7", "L-MX-8", "L-MX-9", "L-MX-11",
    ],
    marks: &[DROPPED, holding::LOST, holding::LATE, holding::SILENT, AGAIN, REFUSED],
    kind: Kind::Reentrant,
    twins: "L-MX-13",
};

pub(super) const PASSING: Kin = Kin {
    name: "passing",
    about: "the tasks of three processes want one lock, and pass it on among themselves",
    laws: &["L-MX-1", "L-MX-2", "L-MX-3", "L-MX-5", "L-MX-7", "L-MX-8", "L-MX-9", "L-MX-11"],
    marks: &[DROPPED, holding::LOST, holding::LATE, holding::SILENT, PASSED],
    kind: Kind::Passing,
    twins: "L-MX-3",
};

pub(super) const UNFAIR: Kin = Kin {
    name: "unfair",
    about: "three processes want one lock, and have no place in a line",
    laws: &["L-MX-1", "L-MX-2", "L-MX-3", "L-MX-5", "L-MX-7", "L-MX-9", "L-MX-11"],
    marks: &[DROPPED, holding::LOST, holding::LATE, holding::SILENT, TRIED],
    kind: Kind::Unfair,
    twins: "L-MX-12",
};

impl Workload for Kin {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn laws(&self) -> &'static [&'static str] {
        self.laws
    }

    fn marks(&self) -> &'static [&'static str] {
        self.marks
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::SlowReader, Site::EventsJoined]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let beliefs = Beliefs::new(Laws { twins: self.twins, ..LOCK });
        let grants = Grants::of(dir());
        let (kind, granted) = (self.kind, grants.clone());
        let sim = sim
            .given(holding::data(), "0")
            .aged(dir())
            .processes(3, move |me| work(me, kind, beliefs.clone(), granted.clone()))
            .must_end("L-MX-7")
            .check("L-MX-5", holding::guarded_writes_rise)
            .check("L-MX-11", holding::only_owners_remove_tickets);
        grants.watch(sim)
    }
}

async fn work(me: Process, kind: Kind, beliefs: Beliefs, grants: Grants) {
    let Ok(client) = me.client().await else { return };
    let locks = Locks {
        mutex: Mutex::new(&client, dir()),
        reentrant: ReentrantMutex::new(&client, dir()),
        passing: CohortMutex::new(&client, dir(), std::num::NonZeroU32::MIN.saturating_add(1)),
        unfair: UnfairLock::new(&client, dir()),
    };
    let worker = Worker { me, client, kind, locks, beliefs, grants, done: Notify::new() };
    if worker.me.number() == 1 {
        let [one, two, three] = [(); 3].map(|()| worker.rounds());
        Box::pin(join3(one, two, three)).await;
    } else {
        worker.rounds().await;
    }
    holding::leaves_nothing(&worker.me, &worker.client, &worker.grants, "L-MX-9").await;
}

/// One lock, in every kind.
struct Locks {
    mutex: Mutex,
    reentrant: ReentrantMutex,
    passing: CohortMutex,
    unfair: UnfairLock,
}

struct Worker {
    me: Process,
    client: Client,
    kind: Kind,
    locks: Locks,
    beliefs: Beliefs,
    grants: Grants,
    /// Notified when one task has finished with a lock that is passed on.
    done: Notify,
}

impl Worker {
    async fn rounds(&self) {
        let owner = Owner::new();
        for _ in 0..self.me.rounds(ROUNDS) {
            match self.kind {
                _ if self.me.pick(6) == 0 => self.plain().await,
                Kind::Reentrant => self.again_and_again(&owner).await,
                Kind::Passing => self.passed_on().await,
                Kind::Unfair => self.unfair().await,
            }
            self.me.rest(self.me.ttl() / 8).await;
        }
    }

    async fn plain(&self) {
        if let Some(Ok(guard)) = self.me.perhaps(self.locks.mutex.lock()).await {
            self.enters(&guard).await;
            self.grants.returns(&guard);
            drop(self.me.perhaps(guard.release()).await);
        }
    }

    /// L-MX-13: an owner may acquire again while it holds; the lock is released with the last of
    /// its guards.
    async fn again_and_again(&self, owner: &Owner) {
        let (me, lock) = (&self.me, &self.locks.reentrant);
        let Some(Ok(outer)) = me.perhaps(lock.lock(owner)).await else { return };
        self.enters(&outer).await;
        let Ok(inner) = lock.lock(owner).await else { return me.sometimes(REFUSED, true) };
        me.sometimes(AGAIN, true);
        if !inner.guard().is_held() || inner.guard().token() != outer.guard().token() {
            me.wrong("L-MX-13", || "an owner that had lost the lock acquired it again".to_owned());
        }
        drop(me.perhaps(outer.release()).await);
        let judge = &self.beliefs;
        Holding { me, client: &self.client, judge, among: Among::Nobody }.pass(&inner).await;
        if me.pick(2) == 0 {
            drop(inner);
        } else {
            self.grants.returns(inner.guard());
            drop(me.perhaps(inner.release()).await);
        }
    }

    async fn passed_on(&self) {
        let Some(Ok(guard)) = self.waits_to_be_passed_it().await else { return };
        let passed = guard.token().turn() > 0;
        self.me.sometimes(PASSED, passed);
        if passed || self.me.pick(3) == 0 {
            self.enters(&guard).await;
        } else {
            // Without a guarded transaction, after which the lock would not be passed on.
            self.is_in(&guard);
            self.stay().linger(&guard).await;
        }
        match self.me.pick(3) {
            0 => drop(guard),
            _ => drop(self.me.perhaps(guard.release()).await),
        }
        self.done.notify_waiters();
    }

    /// Some tasks stop waiting when another task of this process has finished, without checking
    /// whether the lock was passed on to them.
    async fn waits_to_be_passed_it(&self) -> Option<Result<CohortGuard>> {
        let lock = self.me.perhaps(self.locks.passing.lock());
        if self.me.pick(3) > 0 {
            return lock.await;
        }
        match select(pin!(self.done.notified()), pin!(lock)).await {
            Either::Left(_) => None,
            Either::Right((answer, _)) => answer,
        }
    }

    async fn unfair(&self) {
        let (me, lock) = (&self.me, &self.locks.unfair);
        let guard = if me.pick(4) == 0 {
            me.perhaps(lock.try_lock()).await.and_then(Result::ok).flatten().inspect(|_| {
                me.sometimes(TRIED, true);
            })
        } else {
            me.perhaps(lock.lock()).await.and_then(Result::ok)
        };
        if let Some(guard) = guard {
            self.enters(&guard).await;
            self.grants.returns(&guard);
            drop(me.perhaps(guard.release()).await);
        }
    }

    async fn enters(&self, guard: &dyn Held) {
        self.is_in(guard);
        self.stay().pass(guard).await;
    }

    fn is_in(&self, guard: &dyn Held) {
        self.beliefs.entered(&self.me, guard, Among::Nobody);
        self.grants.note(&self.me, guard, Wants::All);
    }

    fn stay(&self) -> Holding<'_> {
        let Self { me, client, beliefs, .. } = self;
        Holding { me, client, judge: beliefs, among: Among::Nobody }
    }
}

fn dir() -> Path {
    Path::new("/lock").expect("it is one")
}
