//! Three processes that split items among them.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cluster::{By, Site};
use futures_util::StreamExt as _;
use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::clock;
use synod_core::path::Path;
use synod_core::store::{Change, Kind, SessionId};
use synod_recipes::partition::{Partition, Share, ShareChange};

use crate::findings::Truth;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;
use crate::workload::presence::nothing_is_left;

/// Three processes join a partition, work on the items that they have, stop on request, and leave.
pub(super) struct Partitions;

const ROUNDS: u64 = 3;

const ITEMS: [&str; 4] = ["a", "b", "c", "d"];

const GIVEN: &str = "a member gave an item away";
const LOST: &str = "a member lost an item";
const UNCERTAIN: &str = "a member did not hold an item that it worked on";
const COMPARED: &str = "every item had a member";

/// An action of a process, or its claim to hold an item, with the number of commits at that time.
#[derive(Clone, Debug)]
struct Noted {
    process: u64,
    item: String,
    at: usize,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// The process held the item.
    Held,
    /// The process has stopped its work on the item.
    Stopped,
}

/// The actions of all processes and the items that they held. Clones share them.
#[derive(Clone, Debug, Default)]
struct Book(Arc<Mutex<Vec<Noted>>>);

impl Workload for Partitions {
    fn name(&self) -> &'static str {
        "partition"
    }

    fn about(&self) -> &'static str {
        "three processes split items among them, give some away, and leave"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-SP-1", "L-SP-2", "L-SP-3", "L-SP-7"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, GIVEN, LOST, UNCERTAIN, COMPARED]
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::NearTheEnd, Site::BeatsCut, Site::WallClockSet]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let book = Book::default();
        let [held, given] = [(); 2].map(|()| book.clone());
        sim.processes(3, move |me| Box::pin(work(me, book.clone())))
            .must_end("L-SP-2")
            .eventually("L-SP-7", |me| nothing_is_left(me, dir("members")))
            .eventually("L-SP-7", |me| nothing_is_left(me, dir("claims")))
            .check("L-SP-1", move |truth| held.check_holds(truth))
            .check("L-SP-3", move |truth| given.check_gifts(truth))
    }
}

async fn work(me: Process, book: Book) {
    let Ok(client) = me.impatient_client().await else { return };
    let parts = Partition::new(&client, root(), ITEMS).weight(1);
    let member = Member { me, client, parts, book };
    let rounds = member.me.rounds(ROUNDS);
    for round in 0..rounds {
        Box::pin(member.round(round + 1 == rounds)).await;
    }
}

struct Member {
    me: Process,
    client: Client,
    parts: Partition,
    book: Book,
}

/// The items that a process works on. It stops when this is dropped.
struct Working<'a> {
    member: &'a Member,
    items: Mutex<BTreeSet<String>>,
}

impl Member {
    async fn round(&self, is_last: bool) {
        let Some(Ok(share)) = self.me.perhaps(self.parts.join(self.me.name())).await else {
            return self.me.rest(self.me.ttl()).await;
        };
        // The work is stopped before the share is dropped.
        let working = Working { member: self, items: Mutex::default() };
        let ends = async {
            self.me.rest(self.me.ttl() * 2).await;
            working.looks(&share);
            if is_last {
                self.compares(&share).await;
            }
        };
        match select(pin!(ends), pin!(working.follows(&share))).await {
            Either::Left(((), _)) => {}
            Either::Right(((), ends)) => ends.await,
        }
        drop(working);
        if self.me.pick(4) == 0 {
            drop(share);
        } else {
            drop(self.me.perhaps(share.leave()).await);
        }
        self.me.rest(self.me.ttl() / 4).await;
    }

    /// L-SP-2: once everything is repaired, every item has a member, and each member has the items
    /// that the store assigns to it.
    async fn compares(&self, share: &Share) {
        const TIMES: u32 = 100;
        self.me.mended().await;
        let mut different = None;
        for _ in 0..TIMES {
            if let Ok(holders) = self.parts.holders().await {
                let own = holders.iter().filter(|(_, member)| *member == self.me.name());
                let own: BTreeSet<_> = own.map(|(item, _)| item.clone()).collect();
                let held = share.items();
                if holders.len() == ITEMS.len() && own == held {
                    return self.me.sometimes(COMPARED, true);
                }
                different = Some((holders, held));
            }
            if self.client.is_closed() {
                return;
            }
            clock::sleep(self.me.ttl() / 4).await;
        }
        if let Some((holders, held)) = different {
            self.me.wrong("L-SP-2", || format!("there is {holders:?}, and held are {held:?}"));
        }
    }

    fn note(&self, item: &str, what: What) {
        let (process, at) = (self.me.number(), self.me.committed());
        self.book.lock().push(Noted { process, item: item.to_owned(), at, what });
    }
}

impl Working<'_> {
    /// Works on the acquired items, until each is requested or lost.
    async fn follows(&self, share: &Share) {
        let me = &self.member.me;
        let mut changes = pin!(share.changes());
        while let Some(change) = changes.next().await {
            match change {
                ShareChange::Acquired(items) => self.lock().extend(items),
                ShareChange::Release(items) => {
                    // It takes a while to stop.
                    me.rest(me.ttl() / 8).await;
                    self.looks(share);
                    me.sometimes(GIVEN, true);
                    self.stops(&items);
                    drop(me.perhaps(share.release(&items)).await);
                }
                ShareChange::Lost(items) => {
                    me.sometimes(LOST, true);
                    self.stops(&items);
                }
                _ => {}
            }
            self.looks(share);
            me.dawdle().await;
            self.looks(share);
        }
    }

    /// Records the items that the process holds.
    fn looks(&self, share: &Share) {
        for item in &*self.lock() {
            let is_held = share.is_held(item);
            self.member.me.sometimes(UNCERTAIN, !is_held);
            if is_held {
                self.member.note(item, What::Held);
            }
        }
    }

    fn stops(&self, items: &BTreeSet<String>) {
        for item in items {
            self.lock().remove(item);
            self.member.note(item, What::Stopped);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        // This includes items whose work was about to start.
        self.stops(&ITEMS.map(str::to_owned).into());
    }
}

/// A claim in the history, and its author.
#[derive(Clone, Copy, Debug)]
struct Claimed {
    by: By,
    owner: Option<SessionId>,
    at: usize,
}

/// The changes of all claims, each with the number of commits before it, its author, and the item.
fn steps(truth: &Truth) -> impl Iterator<Item = (usize, By, &str, &Change)> {
    truth.log.iter().enumerate().flat_map(|(at, entry)| {
        let claims = entry.changes.iter().filter(|change| change.path.is_below(&dir("claims")));
        claims.map(move |change| (at, entry.by, change.path.name(), change))
    })
}

impl Book {
    fn lock(&self) -> MutexGuard<'_, Vec<Noted>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// L-SP-1: whenever a process reported that it held an item, the claim belonged to it.
    /// Exceptions are a claim that a stranger removed, and a session that an operator ended: no
    /// process can know that before it is notified.
    fn check_holds(&self, truth: &Truth) -> Result<(), String> {
        let noted = self.lock();
        let forced: BTreeSet<SessionId> =
            truth.deaths.iter().filter(|death| !death.silent).map(|it| it.session).collect();
        for noted in noted.iter().filter(|noted| noted.what == What::Held) {
            let mut excused = false;
            let mut claimed: Option<Claimed> = None;
            for (at, by, item, change) in steps(truth) {
                if at >= noted.at {
                    break;
                }
                if item != noted.item {
                    continue;
                }
                let before = claimed.filter(|it| it.by == By::Process(noted.process));
                if change.kind == Kind::Deleted {
                    let forced =
                        before.and_then(|it| it.owner).is_some_and(|it| forced.contains(&it));
                    excused |=
                        before.is_some() && (by == By::Stranger || by == By::Store && forced);
                    claimed = None;
                } else if change.kind == Kind::Created {
                    let owner = change.node.as_ref().and_then(|node| node.stat?.owner);
                    claimed = Some(Claimed { by, owner, at });
                    excused &= by != By::Process(noted.process);
                }
            }
            if !excused && claimed.is_none_or(|it| it.by != By::Process(noted.process)) {
                return Err(format!("{noted:?}, and the claim was {claimed:?}"));
            }
        }
        Ok(())
    }

    /// L-SP-3: a process removes only its own claims, each after it has stopped its work on the
    /// item. L-SP-1 as well: no request of one process removes the claim of another.
    fn check_gifts(&self, truth: &Truth) -> Result<(), String> {
        let noted = self.lock();
        let mut claims: BTreeMap<&str, Claimed> = BTreeMap::new();
        for (at, by, item, change) in steps(truth) {
            if change.kind == Kind::Created {
                let owner = change.node.as_ref().and_then(|node| node.stat?.owner);
                claims.insert(item, Claimed { by, owner, at });
            }
            if change.kind != Kind::Deleted {
                continue;
            }
            let Some(claimed) = claims.remove(item) else { continue };
            let By::Process(process) = by else { continue };
            if claimed.by != by {
                return Err(format!("{by:?} removed {item} of {claimed:?} in commit {at}"));
            }
            let last = noted.iter().rfind(|it| {
                let is_it = it.item == item && it.process == process;
                is_it && it.at > claimed.at && it.at <= at
            });
            if last.is_some_and(|last| last.what == What::Held) {
                let what = format!("gave {item} away in commit {at}, and works on it");
                return Err(format!("{by:?} {what}: {last:?} of {claimed:?}"));
            }
        }
        Ok(())
    }
}

fn root() -> Path {
    Path::new("/partition").expect("it is one")
}

fn dir(name: &str) -> Path {
    root().join(name).expect("it is one")
}
