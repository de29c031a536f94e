//! Three processes that join a group, and have its ring.

use std::collections::BTreeMap;

use crate::cluster::Site;
use synod_core::client::{Client, ConnectionState};
use synod_core::clock;
use synod_core::path::Path;
use synod_recipes::partition::{HashRing, Ring, RingView};
use synod_recipes::presence::Group;

use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;
use crate::workload::presence::nothing_is_left;

/// Three processes join a group with a weight, and each has the ring of its members.
pub(super) struct Rings;

const ROUNDS: u64 = 3;

const STALE: &str = "a ring was not current";
const MOVED: &str = "a key had another member than before";
const COMPARED: &str = "a ring was compared with the members that there are";

impl Workload for Rings {
    fn name(&self) -> &'static str {
        "hash_ring"
    }

    fn about(&self) -> &'static str {
        "three processes join one group with a weight, and each has the ring of its members"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-HR-1", "L-HR-3", "L-PE-4"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, STALE, MOVED, COMPARED]
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::SlowReader, Site::NearTheEnd, Site::BeatsCut, Site::WallClockSet]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        sim.processes(3, |me| Box::pin(work(me)))
            .must_end("L-HR-1")
            .eventually("L-PE-4", |me| nothing_is_left(me, dir()))
    }
}

async fn work(me: Process) {
    let Ok(client) = me.impatient_client().await else { return };
    let Ok(ring) = HashRing::open_weighted(&client, dir(), weigh).await else { return };
    let mut follower = Follower { me, client, ring, last: None };
    for round in 0..follower.me.rounds(ROUNDS) {
        Box::pin(follower.round(round)).await;
    }
    follower.compares().await;
}

struct Follower {
    me: Process,
    client: Client,
    ring: HashRing,
    last: Option<RingView>,
}

impl Follower {
    async fn round(&mut self, round: u64) {
        let weight = self.me.pick(3) + 1;
        let group = Group::new(&self.client, dir());
        let group = group.take_over();
        let joined = group.join_as(self.me.name(), weight.to_string());
        let Some(Ok(member)) = self.me.perhaps(joined).await else {
            return self.me.rest(self.me.ttl()).await;
        };
        self.looks();
        self.me.rest(self.me.ttl()).await;
        if self.me.pick(2) == 0 {
            drop(self.me.perhaps(member.set((round + 1).to_string())).await);
        }
        self.looks();
        drop(self.me.perhaps(member.leave()).await);
        self.me.rest(self.me.ttl() / 4).await;
        self.looks();
    }

    /// L-HR-3: a ring without a session is not current. L-HR-1: its content never returns to an
    /// earlier state.
    fn looks(&mut self) {
        let view = self.ring.view();
        self.me.sometimes(STALE, !view.is_current());
        let connection = *self.client.state().borrow();
        let is_open = matches!(
            connection,
            ConnectionState::Connected | ConnectionState::Reconnected | ConnectionState::Suspended
        );
        if view.is_current() && !is_open {
            let what = || format!("it is current, and the client is {connection:?}");
            self.me.wrong("L-HR-3", what);
        }
        if let Some(last) = &self.last {
            self.me.sometimes(MOVED, last.ring.owner("key") != view.ring.owner("key"));
            if last.as_of > view.as_of {
                self.me.wrong("L-HR-1", || format!("{view:?} comes after {last:?}"));
            }
        }
        self.last = Some(view);
    }

    /// L-HR-1: once everything is repaired, the ring has the current members.
    async fn compares(&self) {
        const TIMES: u32 = 100;
        self.me.mended().await;
        let mut different = None;
        for _ in 0..TIMES {
            if let Ok(members) = Group::new(&self.client, dir()).members().await {
                let members: BTreeMap<_, _> =
                    members.into_iter().map(|it| (it.name, weigh(&it.data))).collect();
                let view = self.ring.view();
                if view.is_current() && *view.ring == Ring::new(members.clone()) {
                    return self.me.sometimes(COMPARED, true);
                }
                different = Some((members, view));
            }
            if self.client.is_closed() {
                return;
            }
            clock::sleep(self.me.ttl() / 4).await;
        }
        if let Some((members, RingView { ring, state, .. })) = different {
            let known: Vec<_> = ring.members().collect();
            self.me.wrong("L-HR-1", || format!("{members:?} are there, and {known:?}: {state:?}"));
        }
    }
}

fn weigh(data: &[u8]) -> u8 {
    str::from_utf8(data).ok().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn dir() -> Path {
    Path::new("/ring").expect("it is one")
}
