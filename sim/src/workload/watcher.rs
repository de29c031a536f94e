//! Watches that follow the writes of other clients.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cluster::Site;
use futures_util::future::{Either, select};
use synod_core::client::{Client, ClientWatch};
use synod_core::clock;
use synod_core::path::Path;
use synod_core::store::{Change, Event, Expect, Kind, Lifetime, Query, Revision, View};

use crate::findings::Truth;
use crate::ledger::Ledger;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::user_mistake::UserMistake;
use crate::workload::Workload;

/// Two clients write and delete in a directory, and a third one keeps a copy from the events.
pub(super) struct Watchers;

const ROUNDS: u64 = 4;

impl Workload for Watchers {
    fn name(&self) -> &'static str {
        "watchers"
    }

    fn about(&self) -> &'static str {
        "two clients write in a directory, and a third keeps a copy of it from the events of a watch"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-WAT-1", "L-WAT-3", "L-WAT-4", "L-WAT-6", "L-WAT-8", "L-WAT-12", "L-KV-3", "L-KV-4"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, "a watch had to read again", "a copy of something was compared"]
    }

    fn unreached(&self) -> Vec<Site> {
        // No recipe creates tickets, whose names contain a date.
        vec![Site::NearTheEnd, Site::BeatsCut, Site::WallClockSet]
    }

    fn has_small_world(&self) -> bool {
        false
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let (ledger, told) = (Ledger::default(), Heard::default());
        let (books, ears) = (ledger.clone(), told.clone());
        let second = ledger.clone();
        sim.process("ann", move |me| write(me, ledger.clone()))
            .process("bob", move |me| write(me, second.clone()))
            .process("eve", move |me| follow(me, told.clone()))
            .ledger(&books)
            .check("L-WAT-8", move |truth| ears.happened(truth))
    }
}

async fn write(me: Process, ledger: Ledger) {
    let Ok(client) = me.client().await else { return };
    for round in 0..me.rounds(ROUNDS) {
        let (path, data) = (name(me.pick(3)), format!("{}.{}.{round}", me.name(), me.life()));
        let written = match me.pick(4) {
            0 | 1 => {
                let create = client.create(&path, data.clone(), Lifetime::Persistent);
                ledger.write(&me, &data, create).await
            }
            2 => ledger.write(&me, &data, client.set(&path, data.clone(), Expect::Any)).await,
            _ => {
                drop(me.perhaps(client.delete(&path, Expect::Any)).await);
                None
            }
        };
        let _answered = written.is_some();
        me.rest(Duration::from_millis(200)).await;
        // L-KV-3: the answers of a session never go back in time: each answer is checked.
        for query in [Query::node(path.clone()), Query::node(path).local()] {
            drop(client.read(query).await);
        }
    }
}

async fn follow(me: Process, heard: Heard) {
    let Ok(client) = me.client().await else { return };
    let Ok((view, watch)) = client.watch(Query::children(dir())).await else { return };
    let mut mirror =
        Mirror { me, client, watch, copy: BTreeMap::new(), last: BTreeMap::new(), heard };
    mirror.take_over(&view);
    mirror.run().await;
}

/// The mistake of a cache that has two reads in flight, and keeps the last answer.
async fn read_twice(me: &Process, client: &Client, path: &Path) {
    let Ok(session) = client.session().await else { return };
    let read = |after: Duration| {
        let read = session.read(Query::node(path.clone()).local());
        Box::pin(async move {
            clock::sleep(after).await;
            read.await
        })
    };
    let (first, second) = (read(Duration::ZERO), read(me.ttl() / 20));
    let (kept, last) = match select(first, second).await {
        Either::Left((first, second)) | Either::Right((first, second)) => (first, second.await),
    };
    if let (Ok(kept), Ok(last)) = (kept, last)
        && last.revision < kept.revision
    {
        let (kept, last) = (kept.revision, last.revision);
        me.wrong("L-KV-3", || format!("#{last} of {path} is kept in the place of #{kept}"));
    }
}

/// A copy of a directory.
struct Mirror {
    me: Process,
    client: Client,
    watch: ClientWatch,
    copy: BTreeMap<Path, Revision>,
    /// The last reported revision of each path since everything was read.
    last: BTreeMap<Path, Revision>,
    heard: Heard,
}

impl Mirror {
    async fn run(&mut self) {
        let (me, client) = (self.me.clone(), self.client.clone());
        let mut mended = Box::pin(async {
            me.mended().await;
            // A server may be down for ever, and the client may try it first.
            while client.exists(&dir()).await.is_err() && !client.is_closed() {
                clock::sleep(me.ttl() / 10).await;
            }
            clock::sleep(me.ttl() * 12).await;
        });
        loop {
            let event = match select(Box::pin(self.watch.next()), mended.as_mut()).await {
                Either::Left((event, _)) => event,
                Either::Right(_) => break,
            };
            let Some(event) = event else {
                return self.me.wrong("L-WAT-12", || "it ended without a word".to_owned());
            };
            if !self.hear(event).await {
                return;
            }
            self.me.dawdle().await;
        }
        self.compare().await;
    }

    /// Returns `true` if the watch continues.
    async fn hear(&mut self, event: Event) -> bool {
        match event {
            Event::Changed(change) => {
                self.change(&change);
                if self.me.makes(UserMistake::LastAnswerIsNewest) {
                    read_twice(&self.me, &self.client, &change.path).await;
                }
                // L-KV-3: not older than the events that it has received.
                if self.me.pick(2) == 0 {
                    drop(self.client.read(Query::node(change.path).local()).await);
                }
            }
            Event::Resync => {
                self.me.sometimes("a watch had to read again", true);
                self.last.clear();
                // If that fails the copy is wrong until the next event; so it is read until it
                // succeeds.
                while self.read_again().await.is_none() {
                    if self.client.session().await.is_err()
                        && *self.client.state().borrow() == CLOSED
                    {
                        return false;
                    }
                    clock::sleep(self.me.ttl() / 10).await;
                }
            }
            Event::Ended(_) => {
                if self.watch.next().await.is_some() {
                    self.me.wrong("L-WAT-12", || "an event arrived after the end".to_owned());
                }
                return false;
            }
        }
        true
    }

    async fn read_again(&mut self) -> Option<()> {
        let view = self.client.read(Query::children(dir())).await.ok()?;
        self.take_over(&view);
        Some(())
    }

    fn take_over(&mut self, view: &View) {
        let nodes = view.nodes.iter();
        self.copy =
            nodes.filter_map(|node| Some((node.path.clone(), node.stat?.modified))).collect();
    }

    fn change(&mut self, change: &Change) {
        let Some(at) = change.revision else { return };
        self.heard.note(change.clone());
        if let Some(last) = self.last.insert(change.path.clone(), at) {
            if last == at {
                self.me.wrong("L-WAT-4", || {
                    format!("{} of revision {at} is reported twice", change.path)
                });
            }
            if last > at {
                self.me
                    .wrong("L-WAT-3", || format!("{}: {at} is reported after {last}", change.path));
            }
        }
        let is_there = self.copy.contains_key(&change.path);
        if self.me.makes(UserMistake::KindTrusted) && (change.kind == Kind::Created) == is_there {
            return;
        }
        match change.kind {
            Kind::Deleted => drop(self.copy.remove(&change.path)),
            _ => drop(self.copy.insert(change.path.clone(), at)),
        }
    }

    /// L-WAT-6: at the end the copy equals the directory.
    async fn compare(&mut self) {
        let Ok(view) = self.client.read(Query::children(dir())).await else { return };
        let nodes = view.nodes.iter();
        let real: BTreeMap<Path, Revision> =
            nodes.filter_map(|node| Some((node.path.clone(), node.stat?.modified))).collect();
        self.me.sometimes("a copy of something was compared", !real.is_empty());
        if real != self.copy {
            let copy = &self.copy;
            self.me.wrong("L-WAT-6", || format!("there is {real:?}, and the copy is {copy:?}"));
        }
    }
}

const CLOSED: synod_core::client::ConnectionState = synod_core::client::ConnectionState::Closed;

/// The reported changes. Clones share them.
#[derive(Clone, Debug, Default)]
struct Heard(std::sync::Arc<std::sync::Mutex<Vec<Change>>>);

impl Heard {
    fn note(&self, change: Change) {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(change);
    }

    /// L-WAT-8: each reported change happened.
    fn happened(&self, truth: &Truth) -> Result<(), String> {
        let told = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for change in told.iter() {
            let is_it = |real: &&Change| {
                real.path == change.path
                    && real.revision == change.revision
                    && (real.kind == Kind::Deleted) == (change.kind == Kind::Deleted)
            };
            if !truth.log.iter().flat_map(|entry| &entry.changes).any(|real| is_it(&real)) {
                return Err(format!("{change:?} never happened"));
            }
        }
        Ok(())
    }
}

fn dir() -> Path {
    Path::new("/d").expect("it is one")
}

fn name(number: u64) -> Path {
    Path::new(&format!("/d/n{number}")).expect("it is one")
}
