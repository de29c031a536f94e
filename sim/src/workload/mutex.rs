//! A lock that three processes want, each for several reasons at once.
//!
//! It is what a workload of a recipe looks like: what its users do, in [`Worker`]; what they believe and when,
//! in [`Beliefs`], judged at the moment of believing; and what the store's log says of it in the end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as Cell, PoisonError};

use futures_util::future::join;
use synod_core::client::Client;
use synod_core::clock;
use synod_core::path::Path;
use synod_core::recipe::Token;
use synod_core::recipe::mutex::{Mutex, MutexGuard};
use synod_core::store::{Expect, Kind, Query, Revision};
use synod_mem::cluster::{By, Site};

use crate::findings::Truth;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;

/// Three processes, one of them with two tasks, lock, believe, write under the lock, and give it back.
pub(super) struct Mutexes;

const ROUNDS: u64 = 3;
const DIR: &str = "/lock";
const DATA: &str = "/data";

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
            "L-MX-11", "L-MX-12", "L-MX-15",
        ]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[
            DROPPED,
            "a lock was lost while it was held",
            "a lock was waited for",
            "a wait was dropped",
            "reply lost while drawing, and the ticket found again",
            "a guarded write came too late",
            "a holder was silent for longer than its session lives",
        ]
    }

    fn unreached(&self) -> Vec<Site> {
        // Who waits takes one event of a watch.
        vec![Site::SlowReader, Site::EventsJoined]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let beliefs = Beliefs::default();
        sim.given(data(), "0")
            .aged(dir())
            .processes(3, move |me| work(me, beliefs.clone()))
            .must_end("L-MX-7")
            .check("L-MX-5", guarded_writes_rise)
            .check("L-MX-11", nobody_removes_another)
    }
}

async fn work(me: Process, beliefs: Beliefs) {
    // Some have no patience: what their reads say is that nothing can be said.
    let patience = if me.pick(3) == 0 { me.ttl() / 5 } else { me.options().deadline };
    let options = me.options().deadline(patience);
    let Ok(client) = Client::open(me.backend(), options).await else { return };
    let worker = Worker { me, client, beliefs };
    if worker.me.number() == 1 {
        // Two tasks of one process are two who want it.
        Box::pin(join(worker.rounds(), worker.rounds())).await;
    } else {
        worker.rounds().await;
    }
    worker.nothing_is_left().await;
}

struct Worker {
    me: Process,
    client: Client,
    beliefs: Beliefs,
}

impl Worker {
    async fn rounds(&self) {
        for _ in 0..self.me.rounds(ROUNDS) {
            let mutex = Mutex::new(&self.client, dir());
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
                    self.entered(&guard);
                    self.hold(guard).await;
                }
                Some(Err(_)) => {}
                None => self.me.sometimes("a wait was dropped", true),
            }
            self.me.rest(self.me.ttl() / 8).await;
        }
    }

    /// L-MX-2, L-MX-3, L-MX-8: what must be so of whoever enters.
    fn entered(&self, guard: &MutexGuard) {
        if !guard.is_held() {
            self.me
                .wrong("L-MX-2", || format!("{} entered, and is not certain of it", guard.path()));
        }
        self.beliefs.entered(&self.me, guard);
    }

    /// Holds it for a while, and asks all the time whether that is so.
    async fn hold(&self, guard: MutexGuard) {
        let (me, ttl) = (&self.me, self.me.ttl());
        let (token, step) = (guard.token(), ttl / 200);
        // At the edge of what a session survives, or shortly.
        let silent = me.falls_silent(ttl * 2);
        let steps = if silent { 400 } else { me.pick(12) };
        let drawn = me.born(guard.path()).map(|(drawn, _)| drawn);
        let belief = me.during(format!("has the lock, token {token}"));
        let mut lost = false;
        for _ in 0..steps {
            if !self.beliefs.holds(me, &guard, drawn) {
                lost = true;
                break;
            }
            clock::sleep(step).await;
        }
        me.sometimes("a lock was lost while it was held", lost);
        me.sometimes("a holder was silent for longer than its session lives", silent && lost);
        drop(belief);
        let write = guard.txn().set(data(), token.to_string(), Expect::Any);
        let written = me.perhaps(self.client.transaction(write)).await;
        let refused = matches!(&written, Some(Ok(outcome)) if outcome.rejected().is_some());
        me.sometimes("a guarded write came too late", refused);
        match me.pick(3) {
            0 => drop(guard),
            _ => drop(me.perhaps(guard.release()).await),
        }
    }

    /// L-MX-9, L-MX-15: whoever is done leaves nothing in the line, though his session lives on.
    async fn nothing_is_left(&self) {
        self.me.mended().await;
        clock::sleep(self.me.ttl() * 12).await;
        let Ok(session) = self.client.session().await else { return };
        let own = session.info().id;
        let Ok(view) = session.read(Query::children(dir())).await else { return };
        let left = view.nodes.iter().find(|node| node.stat.and_then(|it| it.owner) == Some(own));
        if let Some(node) = left {
            self.me.wrong("L-MX-9", || {
                format!("{} is done, and {} is left", self.me.name(), node.path)
            });
        }
    }
}

/// Who believed what, of those who are no exception. Clones are the same.
///
/// An exception is whose ticket a stranger removed, or whose session was ended by force: nobody can know of
/// that before he is told.
#[derive(Clone, Debug, Default)]
struct Beliefs(Arc<Cell<Believed>>);

#[derive(Debug, Default)]
struct Believed {
    /// Who entered last: when his ticket was drawn, and his token.
    entered: Option<(Revision, Token)>,
    /// The last ticket that anybody believed to have the lock with, and whose it is.
    latest: Option<(Revision, String)>,
}

impl Beliefs {
    fn entered(&self, me: &Process, guard: &MutexGuard) {
        let Some((drawn, _)) = me.born(guard.path()) else { return };
        if is_exception(me, guard.path()) {
            return;
        }
        let last = self.lock().entered.replace((drawn, guard.token()));
        let Some((before, token)) = last else { return };
        if before >= drawn {
            me.wrong("L-MX-8", || {
                format!("the ticket of #{drawn} enters after that of #{before}, which came later")
            });
        } else if token >= guard.token() {
            me.wrong("L-MX-3", || format!("token {} is given out after {token}", guard.token()));
        }
    }

    /// L-MX-1: whether it is believed to be held; once a later ticket was, no earlier one is.
    fn holds(&self, me: &Process, guard: &MutexGuard, drawn: Option<Revision>) -> bool {
        if !guard.is_held() {
            return false;
        }
        let Some(drawn) = drawn else { return true };
        let mut believed = self.lock();
        match &believed.latest {
            Some((later, who)) if *later > drawn => {
                if !is_exception(me, guard.path()) {
                    let who = who.clone();
                    drop(believed);
                    me.wrong("L-MX-1", || {
                        format!("{} believes to have the lock, and {who} had it since", me.name())
                    });
                }
            }
            _ => believed.latest = Some((drawn, me.name().to_owned())),
        }
        true
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Believed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether nobody could know that a ticket is gone.
fn is_exception(me: &Process, ticket: &Path) -> bool {
    let ended = me.born(ticket).and_then(|(_, owner)| owner);
    me.removed_by(ticket) == Some(By::Stranger) || ended.is_some_and(|id| me.ended_by_force(id))
}

/// L-MX-5: in the order of commits the tokens of guarded writes never fall.
fn guarded_writes_rise(truth: &Truth) -> Result<(), String> {
    let mut highest = 0;
    for entry in truth.log.iter().filter(|entry| matches!(entry.by, By::Process(_))) {
        let written = entry.changes.iter().filter(|change| change.path == data());
        for node in written.filter_map(|change| change.node.as_ref()) {
            let token: u64 =
                std::str::from_utf8(&node.data).ok().and_then(|it| it.parse().ok()).unwrap_or(0);
            if token < highest {
                return Err(format!("a write of token {token} follows one of token {highest}"));
            }
            highest = token;
        }
    }
    Ok(())
}

/// L-MX-11: who removes a ticket is who drew it.
fn nobody_removes_another(truth: &Truth) -> Result<(), String> {
    let mut drawn: BTreeMap<&Path, By> = BTreeMap::new();
    for entry in &truth.log {
        for change in &entry.changes {
            match change.kind {
                Kind::Created => drop(drawn.insert(&change.path, entry.by)),
                Kind::Deleted => {
                    let own = drawn.remove(&change.path).is_none_or(|by| by == entry.by);
                    if matches!(entry.by, By::Process(_)) && !own {
                        return Err(format!(
                            "somebody removed {}, which is another's",
                            change.path
                        ));
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn dir() -> Path {
    Path::new(DIR).expect("it is one")
}

fn data() -> Path {
    Path::new(DATA).expect("it is one")
}
