//! [`Holding`]: holds a lock, and checks all the time that it is still held; and the checks of the
//! log at the end.

use std::collections::BTreeMap;

use crate::cluster::{By, Entry};
use synod_core::client::Client;
use synod_core::clock;
use synod_core::path::Path;
use synod_core::store::{Change, Expect, Kind, Query};
use synod_recipes::Held;

use crate::findings::Truth;
use crate::process::Process;
use crate::workload::belief::{Among, Judge};
use crate::workload::grant::Grants;

/// The node in which the holder writes its token.
const DATA: &str = "/data";

/// The marks that holders reach.
pub(super) const LOST: &str = "a lock was lost while it was held";
pub(super) const SILENT: &str = "a holder was silent for longer than its session lives";
pub(super) const LATE: &str = "a guarded write came too late";

/// The work of a process while it holds a lock.
pub(super) struct Holding<'a> {
    pub(super) me: &'a Process,
    pub(super) client: &'a Client,
    pub(super) judge: &'a dyn Judge,
    pub(super) among: Among,
}

impl Holding<'_> {
    /// Holds for a while, checks continuously, and writes its token at the end.
    pub(super) async fn pass(&self, held: &dyn Held) {
        self.pass_while(held, &|| held.is_held()).await;
    }

    /// [`Holding::pass`], where another source than the guard reports whether the lock is held.
    pub(super) async fn pass_while(&self, held: &dyn Held, is_held: &(dyn Fn() -> bool + Sync)) {
        self.linger_while(held, is_held).await;
        self.write(held).await;
    }

    /// Holds for a while, and checks continuously.
    pub(super) async fn linger(&self, held: &dyn Held) {
        self.linger_while(held, &|| held.is_held()).await;
    }

    async fn linger_while(&self, held: &dyn Held, is_held: &(dyn Fn() -> bool + Sync)) {
        let (me, ttl) = (self.me, self.me.ttl());
        let step = ttl / 200;
        // Holds for nearly as long as a session survives, or for a short time.
        let silent = me.falls_silent(ttl * 2);
        let steps = if silent { 400 } else { me.pick(12) };
        let drawn = me.born(held).map(|(drawn, _)| drawn);
        let _belief = me.during(format!("is in, token {}", held.token()));
        let mut lost = false;
        for _ in 0..steps {
            if !is_held() {
                lost = true;
                break;
            }
            self.judge.believes(me, held, self.among, drawn);
            clock::sleep(step).await;
        }
        me.sometimes(LOST, lost);
        me.sometimes(SILENT, silent && lost);
    }

    /// L-MX-5: writes the token, if the lock is still held.
    pub(super) async fn write(&self, held: &dyn Held) {
        let sharing = if self.among == Among::Sharing { "shared " } else { "" };
        let token = format!("{sharing}{}", held.token());
        let write = held.txn().set(data(), token, Expect::Any);
        let written = self.me.perhaps(self.client.commit(write)).await;
        let refused = matches!(&written, Some(Ok(outcome)) if outcome.rejected().is_some());
        self.me.sometimes(LATE, refused);
    }
}

/// Checks that a finished process has no ticket in the lock queue, although its session is alive.
/// The law is L-MX-15 for a released ticket, otherwise `law`.
pub(super) async fn leaves_nothing(me: &Process, client: &Client, grants: &Grants, law: &str) {
    me.mended().await;
    clock::sleep(me.ttl() * 12).await;
    let Ok(session) = client.session().await else { return };
    let own = session.info().id;
    let Ok(view) = session.read(Query::children(grants.dir().clone())).await else { return };
    let left = view.nodes.iter().find(|node| node.stat.and_then(|it| it.owner) == Some(own));
    if let Some(node) = left {
        let law = if grants.was_returned(&node.path) { "L-MX-15" } else { law };
        me.wrong(law, || format!("{} is done, and {} is left", me.name(), node.path));
    }
}

/// L-MX-5: in the order of commits the tokens of guarded writes never decrease, except among
/// holders that share.
pub(super) fn guarded_writes_rise(truth: &Truth) -> Result<(), String> {
    writes_rise(truth, &data())
}

/// L-MX-5 for the writes of this node.
pub(super) fn writes_rise(truth: &Truth, data: &Path) -> Result<(), String> {
    let (mut alone, mut together) = ((0, 0), (0, 0));
    for entry in truth.log.iter().filter(|entry| matches!(entry.by, By::Process(_))) {
        let written = entry.changes.iter().filter(|change| change.path == *data);
        for node in written.filter_map(|change| change.node.as_ref()) {
            let text = std::str::from_utf8(&node.data).unwrap_or_default();
            let shares = text.strip_prefix("shared ");
            let token = token(shares.unwrap_or(text));
            let highest = if shares.is_some() { alone } else { alone.max(together) };
            if token < highest {
                return Err(format!("a write of token {token:?} follows one of {highest:?}"));
            }
            let own = if shares.is_some() { &mut together } else { &mut alone };
            *own = token.max(*own);
        }
    }
    Ok(())
}

/// A token, from its text.
fn token(text: &str) -> (u64, u32) {
    let (revision, turn) = text.split_once('.').unwrap_or((text, "0"));
    (revision.parse().unwrap_or(0), turn.parse().unwrap_or(0))
}

/// L-MX-11: a ticket is removed only by its owner.
pub(super) fn only_owners_remove_tickets(truth: &Truth) -> Result<(), String> {
    let mut drawn: BTreeMap<&Path, By> = BTreeMap::new();
    for entry in &truth.log {
        for change in &entry.changes {
            match change.kind {
                Kind::Created if is_ticket(change) => {
                    drawn.insert(&change.path, entry.by);
                }
                Kind::Deleted => {
                    let own = drawn.remove(&change.path).is_none_or(|by| by == entry.by);
                    if matches!(entry.by, By::Process(_)) && !own {
                        return Err(format!(
                            "{} was removed by a process that does not own it",
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

/// L-MX-14: a release wakes the next waiter, and the owner of the ticket if the owner watches it.
/// If a stranger removed a ticket, its waiter still waits for another one until it is notified.
pub(super) fn few_are_woken(truth: &Truth) -> Result<(), String> {
    let removes = |entry: &Entry| {
        matches!(entry.by, By::Stranger) && entry.changes.iter().any(|it| it.kind == Kind::Deleted)
    };
    match truth.woken.iter().find(|(_, many)| **many > 2) {
        Some(((path, _), many)) if !truth.log.iter().any(removes) => {
            Err(format!("{many} are woken as {path} goes"))
        }
        _ => Ok(()),
    }
}

/// Returns `true` if a node is deleted with the session of its creator.
fn is_ticket(change: &Change) -> bool {
    let stat = change.node.as_ref().and_then(|node| node.stat);
    stat.is_some_and(|stat| stat.owner.is_some())
}

pub(super) fn data() -> Path {
    Path::new(DATA).expect("it is one")
}
