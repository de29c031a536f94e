//! Three processes that are members of one group, with one client or two, and follow it.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cluster::Site;
use futures_util::StreamExt as _;
use futures_util::future::join;
use synod_core::client::Client;
use synod_core::clock;
use synod_core::path::Path;
use synod_core::task::{Task, spawn};
use synod_recipes::presence::{Group, GroupChange, Member};

use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;
use crate::workload::presence::nothing_is_left;

/// Three processes join a group under their names and without, follow how others join and leave,
/// and leave.
pub(super) struct Groups;

const ROUNDS: u64 = 3;

const BACK: &str = "a member was away and is back";
const CHANGED: &str = "a member has other data";
const REFUSED: &str = "a member of that name was there";
const COMPARED: &str = "a follower knows the members that there are";

impl Workload for Groups {
    fn name(&self) -> &'static str {
        "group"
    }

    fn about(&self) -> &'static str {
        "three processes join one group, follow its members, and leave"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-GM-1", "L-GM-3", "L-PE-4"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, BACK, CHANGED, REFUSED, COMPARED]
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::NearTheEnd, Site::BeatsCut, Site::WallClockSet]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        sim.processes(3, work)
            .must_end("L-OUT-5")
            .eventually("L-PE-4", |me| nothing_is_left(me, dir()))
    }
}

async fn work(me: Process) {
    let Ok(client) = me.impatient_client().await else { return };
    let listener = Listener::of(&me, &Group::new(&client, dir()));
    let member = Joiner { me, client, listener };
    // Only one round, so that a history does not become much longer.
    let first = join(member.round(&member.client, 0), member.join_beside());
    Box::pin(first).await;
    for round in 1..member.me.rounds(ROUNDS) {
        Box::pin(member.round(&member.client, round)).await;
    }
    member.compares().await;
}

struct Joiner {
    me: Process,
    client: Client,
    listener: Listener,
}

impl Joiner {
    /// Joins as another member in the same process, in the same session or in another one, and
    /// perhaps under the same name.
    async fn join_beside(&self) {
        let me = &self.me;
        match me.pick(4) {
            0 => self.round(&self.client, ROUNDS).await,
            1 => {
                let Ok(client) = me.second_client().await else { return };
                self.round(&client, ROUNDS).await;
            }
            _ => {}
        }
    }

    async fn round(&self, client: &Client, round: u64) {
        let me = &self.me;
        let group = Group::new(client, dir());
        let data = format!("{}.{}.{round}", me.name(), me.life());
        let joined = match me.pick(4) {
            0 => me.perhaps(group.join(data.clone())).await,
            1 => me.perhaps(group.take_over().join_as(me.name(), data.clone())).await,
            _ => me.perhaps(group.join_as(me.name(), data.clone())).await,
        };
        // The node of an earlier membership may still exist.
        me.sometimes(REFUSED, matches!(joined, Some(Err(_))));
        let Some(Ok(membership)) = joined else { return me.rest(me.ttl()).await };
        me.rest(me.ttl()).await;
        if me.pick(2) == 0 {
            drop(me.perhaps(membership.set(format!("{data}.new"))).await);
            me.rest(me.ttl() / 2).await;
        }
        if me.pick(4) == 0 {
            drop(membership);
        } else {
            drop(me.perhaps(membership.leave()).await);
        }
        me.rest(me.ttl() / 4).await;
    }

    /// L-GM-1: once everything is repaired, a follower knows the current members.
    async fn compares(&self) {
        const TIMES: u32 = 100;
        self.me.mended().await;
        let mut different = None;
        for _ in 0..TIMES {
            if let Ok(there) = Group::new(&self.client, dir()).members().await {
                let known = self.listener.members();
                if known == there {
                    return self.me.sometimes(COMPARED, true);
                }
                different = Some((known, there));
            }
            if self.client.is_closed() {
                return;
            }
            clock::sleep(self.me.ttl() / 4).await;
        }
        if let Some((known, there)) = different {
            self.me.wrong("L-GM-1", || format!("{there:?} are there, and known are {known:?}"));
        }
    }
}

/// A task that follows the group.
struct Listener {
    known: Arc<Mutex<BTreeMap<String, Member>>>,
    _task: Task,
}

impl Listener {
    /// L-GM-3: joins and leaves of each name alternate, by incarnations.
    fn of(me: &Process, group: &Group) -> Self {
        let known = Arc::<Mutex<BTreeMap<String, Member>>>::default();
        let (me, changes, all) = (me.clone(), group.changes(), known.clone());
        let task = spawn(async move {
            let mut changes = pin!(changes);
            let mut away = BTreeMap::new();
            while let Some(change) = changes.next().await {
                let in_turn = {
                    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                    match &change {
                        GroupChange::Joined(it) => {
                            let last = away.remove(&it.name);
                            me.sometimes(BACK, last.is_some());
                            let rises = last.is_none_or(|last| last < it.since);
                            all.insert(it.name.clone(), it.clone()).is_none() && rises
                        }
                        GroupChange::Changed(it) => {
                            me.sometimes(CHANGED, true);
                            let last = all.insert(it.name.clone(), it.clone());
                            last.is_some_and(|last| last.since == it.since)
                        }
                        GroupChange::Left(it) => {
                            away.insert(it.name.clone(), it.since);
                            all.remove(&it.name).is_some_and(|last| last.since == it.since)
                        }
                        _ => true,
                    }
                };
                if !in_turn {
                    me.wrong("L-GM-3", || format!("{change:?} is out of turn"));
                }
                me.dawdle().await;
            }
        });
        Self { known, _task: task }
    }

    fn members(&self) -> Vec<Member> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

fn dir() -> Path {
    Path::new("/group").expect("it is one")
}
