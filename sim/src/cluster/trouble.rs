//! Faults that happen while clients work: cuts, outages, new leaders, strangers.

use std::time::Duration;

use bytes::Bytes;
use synod_core::clock::Instant;
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, Op, Txn};

use crate::cluster::By;
use crate::cluster::flaw::Flaw;
use crate::cluster::link::{Ask, LinkId, Request};
use crate::cluster::site::Site;
use crate::cluster::state::{COUNT, Event, State};
use crate::cluster::trace::What;

impl State {
    /// Faults between a client and the servers at the moment when it sends a request.
    pub(super) fn trouble_on_the_way(&mut self, id: LinkId, server: usize, now: Instant) {
        let actor = self.links[id.0].actor;
        if let Some(lasting) = self.decisions.lasting(Site::CutFromOne, actor, self.ttl * 2) {
            self.fault(actor, Site::CutFromOne, 0, now);
            self.cut(actor, [server].into(), now + lasting, now);
            if self.flaw == Some(Flaw::CutMeansGone) {
                self.plan(now + self.ttl, Event::TakenForGone(id, server));
            }
        }
        if self.decisions.fires(Site::CutFromAll, actor, 1).is_some() {
            self.fault(actor, Site::CutFromAll, 0, now);
            let lasting = self.edge(actor);
            self.cut(actor, (0..COUNT).collect(), now + lasting, now);
        }
    }

    /// A duration near the longest outage that a session survives.
    fn edge(&mut self, actor: u64) -> Duration {
        let milli = Duration::from_millis(1);
        let edges = [
            self.ttl / 2,
            self.ttl.saturating_sub(milli),
            self.ttl,
            self.ttl + milli,
            self.ttl * 3,
        ];
        let way = self.decisions.pick(Site::Way, actor, edges.len() as u64);
        edges[usize::try_from(way).unwrap_or(0)]
    }

    fn cut(&mut self, actor: u64, servers: Vec<usize>, until: Instant, now: Instant) {
        let way = self.decisions.pick(Site::Way, actor, 3);
        let cuts = self.cuts_of(actor);
        for server in servers {
            if way != 1 {
                cuts.there[server] = Some(until.max(cuts.there[server].unwrap_or(now)));
            }
            if way != 2 {
                cuts.back[server] = Some(until.max(cuts.back[server].unwrap_or(now)));
            }
        }
    }

    /// A planted mistake: a server that ends a session without the leader.
    pub(super) fn take_for_gone(&mut self, id: LinkId, server: usize, now: Instant) {
        let link = &self.links[id.0];
        let elsewhere = link.server.is_some_and(|other| other != server);
        if let Some(session) = link.session.filter(|_| elsewhere && link.is_up) {
            self.world.end(session, now);
            self.record(now, By::Store);
            self.note_deaths(now, true);
        }
    }

    /// Faults of the store at the moment when a request arrives.
    pub(super) fn trouble_at_arrival(&mut self, request: &Request, now: Instant) {
        let (actor, link) = (request.actor, &self.links[request.link.0]);
        let session = link.session;
        if let Some(session) = session
            && self.leaderless.is_none()
            && self.decisions.fires(Site::Killed, actor, 1).is_some()
        {
            self.fault(actor, Site::Killed, session.get(), now);
            self.end_session(session, now);
        }
        if !matches!(request.ask, Ask::Commit(_)) || self.leaderless.is_some() {
            return;
        }
        if self.decisions.fires(Site::Outage, 0, 1).is_some() {
            self.fault(0, Site::Outage, 0, now);
            let lasting = self.ttl * 10;
            for actor in self.links.iter().map(|link| link.actor).collect::<Vec<_>>() {
                let cuts = self.cuts_of(actor);
                (cuts.there, cuts.back) =
                    ([Some(now + lasting); COUNT], [Some(now + lasting); COUNT]);
            }
            self.lose_leader(lasting, now);
        } else if let Some(lasting) = self.decisions.lasting(Site::NewLeader, 0, self.ttl) {
            self.fault(0, Site::NewLeader, 0, now);
            self.lose_leader(lasting, now);
        }
    }

    /// The writes of strangers, concurrent with the processes.
    pub(super) fn trouble_after_commit(&mut self, actor: u64, path: &Path, now: Instant) {
        let Some(dir) = path.parent() else { return };
        if self.decisions.fires(Site::Emptied, actor, 1).is_some() {
            self.fault(actor, Site::Emptied, 0, now);
            let children: Vec<Path> = self.world.tree().children(&dir).cloned().collect();
            for child in children {
                self.meddle(Op::Delete { path: child, expect: Expect::Any }, now);
            }
        }
        if self.decisions.fires(Site::Meddled, actor, 1).is_some() {
            self.fault(actor, Site::Meddled, 0, now);
            let op = match self.decisions.pick(Site::Way, actor, 3) {
                0 => Op::Delete { path: path.clone(), expect: Expect::Any },
                1 => Op::Set { path: path.clone(), data: "foreign".into(), expect: Expect::Any },
                _ => {
                    let Ok(path) = dir.join("foreign-0000000000") else { return };
                    let (data, lifetime) = ("foreign".into(), Lifetime::Persistent);
                    Op::Create { path, data, lifetime, sequential: false }
                }
            };
            self.meddle(op, now);
        }
    }

    pub(super) fn give(&mut self, path: Path, data: Bytes, now: Instant) {
        let lifetime = Lifetime::Persistent;
        self.meddle(Op::Create { path, data, lifetime, sequential: false }, now);
        for server in 0..COUNT {
            self.catch_up(server, now);
        }
    }

    fn meddle(&mut self, op: Op, now: Instant) {
        self.on_behalf(By::Stranger, now, |world| {
            // A stranger also needs a session, only for this operation.
            let stranger = world.open(Duration::from_secs(1), now);
            let _refused = world.commit(stranger, Txn::new().op(op), now).is_err();
            world.end(stranger, now);
        });
    }

    /// Repairs all faults, and allows no more of them.
    pub(super) fn heal(&mut self, now: Instant) {
        let age = self.age(now);
        self.trace.tell((age, 0), What::Phase, 0, || "everything is mended".to_owned());
        self.decisions.calm();
        self.cuts.clear();
        self.hurry(now + Duration::from_millis(10));
        if self.leaderless.is_some() {
            self.leaderless = Some(now);
            self.plan(now, Event::Elected);
        }
        for server in 0..COUNT {
            self.catch_up(server, now);
        }
    }
}
