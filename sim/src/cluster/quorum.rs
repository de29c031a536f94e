//! Servers without their leader, and the reports about sessions to the leader.
//!
//! A server that loses its leader continues to answer requests from its own memory if possible
//! (F25): reads, and any request whose answer a client may mistake for the answer to a heartbeat.
//! Requests to the leader wait. In ZooKeeper the server closes the connections of its clients after
//! `syncLimit` ticks; a member of etcd answers serializable reads as long as it runs.
//!
//! With the personality of ZooKeeper, a leader does not extend a session when it answers a request.
//! A server collects the sessions with heartbeats, and sends the list with its answer to the
//! leader's next ping, in order with the requests that it forwards: `LearnerHandler` and
//! `Learner.ping` in its source. The answer to a `sync` arrives after every ping that the leader
//! sent before it.

use std::collections::BTreeSet;
use std::time::Duration;

use synod_core::clock::Instant;
use synod_core::store::SessionId;

use crate::cluster::By;
use crate::cluster::answer::Answer;
use crate::cluster::learner::PINGS;
use crate::cluster::link::{Ask, LinkId, Request};
use crate::cluster::site::Site;
use crate::cluster::state::{COUNT, Event, State};
use crate::cluster::trace::What;

impl State {
    /// Cuts a server off from its leader, if this fault fires.
    pub(super) fn trouble_with_the_leader(&mut self, server: usize, now: Instant) {
        let actor = Self::server_actor(server);
        if self.leaderless.is_some() || self.servers.iter().any(|it| it.learner.is_alone) {
            return;
        }
        if let Some(lasting) = self.decisions.lasting(Site::CutOff, actor, self.ttl * 2) {
            self.fault(actor, Site::CutOff, 0, now);
            self.cut_off(server, lasting, now);
        }
    }

    fn cut_off(&mut self, server: usize, lasting: Duration, now: Instant) {
        let until = now + lasting;
        self.servers[server].learner.is_alone = true;
        self.plan(until, Event::Rejoin(server));
        // Its clients are on the same side of the partition, or can also reach the other servers.
        if self.decisions.pick(Site::Way, Self::server_actor(server), 2) == 0 {
            return;
        }
        let here = self.links.iter().filter(|link| link.server == Some(server));
        for actor in here.map(|link| link.actor).collect::<BTreeSet<_>>() {
            let cuts = self.cuts_of(actor);
            for other in (0..COUNT).filter(|other| *other != server) {
                let longest = |cut: Option<Instant>| Some(cut.map_or(until, |cut| cut.max(until)));
                cuts.there[other] = longest(cuts.there[other]);
                cuts.back[other] = longest(cuts.back[other]);
            }
        }
    }

    /// Queues a request that a server cannot pass to its leader. Returns the request if the server
    /// can.
    pub(super) fn keep_while_alone(&mut self, request: Request) -> Option<Request> {
        let learner = &mut self.servers[request.server].learner;
        if learner.is_alone {
            learner.waiting.push(request);
            return None;
        }
        Some(request)
    }

    /// Reconnects a server to the leader: in time, so that all queued requests are forwarded, or
    /// after it gave up and closed the connections of its clients.
    pub(super) fn rejoin(&mut self, server: usize, now: Instant) {
        let learner = &mut self.servers[server].learner;
        if !std::mem::take(&mut learner.is_alone) {
            return;
        }
        let waiting = std::mem::take(&mut learner.waiting);
        let actor = Self::server_actor(server);
        let age = self.age(now);
        self.trace.tell((age, actor), What::Session, 0, || "reaches the leader again".to_owned());
        let gives_up =
            self.personality.gives_up_alone() && self.decisions.pick(Site::Way, actor, 2) == 0;
        if gives_up {
            self.hang_up_on_clients(server, now);
        } else {
            self.deliver_what_stayed(server, now);
            for mut request in waiting {
                request.late |= matches!(request.ask, Ask::Commit(_));
                match request.ask {
                    Ask::Read(_) | Ask::Watch(..) => self.serve_latest(request, now),
                    _ => self.forward(request, now),
                }
            }
        }
        self.apply(server, now);
    }

    /// Continues the connection between a server and the leader, which keeps its order: a report
    /// arrives ahead of the requests that were queued behind it, and the pings that the leader sent
    /// in the meantime arrive ahead of its answers to these requests.
    fn deliver_what_stayed(&mut self, server: usize, now: Instant) {
        self.report(server, now);
        let learner = &self.servers[server].learner;
        let travels = learner.ping.is_some_and(|(_, arrives)| arrives > now);
        if travels || learner.report.is_some() || learner.heard.is_empty() {
            return;
        }
        let arrives = now + self.delay_to_leader(server, now);
        self.servers[server].learner.ping = Some((now, arrives));
        self.plan(arrives, Event::Pinged(server));
    }

    /// Closes the connections of a server's clients, and clears its list of sessions with
    /// heartbeats.
    pub(super) fn hang_up_on_clients(&mut self, server: usize, now: Instant) {
        let learner = &mut self.servers[server].learner;
        learner.heard.clear();
        learner.ping = None;
        learner.report = None;
        for index in 0..self.links.len() {
            if self.links[index].server == Some(server) {
                self.break_link(LinkId(index), self.links[index].epoch, now);
            }
        }
    }

    /// Records that a server received a heartbeat of a session, which it will report.
    pub(super) fn hear_of(&mut self, server: usize, session: SessionId, now: Instant) {
        if self.personality.reports_sessions() {
            self.servers[server].learner.heard.insert(session);
            self.plan_ping(server, now);
        }
    }

    fn plan_ping(&mut self, server: usize, now: Instant) {
        let learner = &self.servers[server].learner;
        if learner.is_alone
            || learner.ping.is_some()
            || learner.report.is_some()
            || learner.heard.is_empty()
        {
            return;
        }
        let pings = u64::try_from(PINGS.as_nanos()).unwrap_or(1);
        let age = u64::try_from(self.age(now).as_nanos()).unwrap_or(u64::MAX);
        let sent = now + Duration::from_nanos(pings - age % pings);
        let arrives = sent + self.delay_to_leader(server, now);
        self.servers[server].learner.ping = Some((sent, arrives));
        self.plan(arrives, Event::Pinged(server));
    }

    /// The delay of a ping to a server, or of its report to the leader.
    fn delay_to_leader(&mut self, server: usize, now: Instant) -> Duration {
        let actor = Self::server_actor(server);
        let late = self.decisions.lasting(Site::ReportLate, actor, self.ttl / 4);
        if late.is_some() {
            self.fault(actor, Site::ReportLate, 0, now);
        }
        self.delay(actor) + late.unwrap_or_default()
    }

    /// A ping of the leader arrives, and the server answers it with its list of sessions.
    pub(super) fn pinged(&mut self, server: usize, now: Instant) {
        let ping = self.servers[server].learner.ping;
        if ping.is_none_or(|(_, arrives)| arrives > now) {
            return;
        }
        self.trouble_with_the_leader(server, now);
        if self.servers[server].learner.is_alone {
            return;
        }
        let arrives = now + self.delay_to_leader(server, now);
        let learner = &mut self.servers[server].learner;
        learner.ping = None;
        learner.report = Some((arrives, std::mem::take(&mut learner.heard)));
        self.plan(arrives, Event::Report(server));
    }

    /// The leader receives a server's list of sessions.
    pub(super) fn report(&mut self, server: usize, now: Instant) {
        let learner = &mut self.servers[server].learner;
        if learner.is_alone {
            // The report stays in the connection, and arrives if the server reaches the leader
            // again in time.
            return;
        }
        let Some((_, sessions)) = learner.report.take_if(|(arrives, _)| *arrives <= now) else {
            return;
        };
        if self.leaderless.is_none() {
            self.world.tick(now);
            for session in sessions {
                // A report of a session that has ended has no effect.
                let _lives = self.world.touch(session, now).is_ok();
            }
            self.record(now, By::Store);
            self.note_deaths(now, true);
            self.plan_tick();
        }
        self.plan_ping(server, now);
    }

    /// Forwards a request to the leader, behind the earlier report of its server.
    pub(super) fn forward(&mut self, request: Request, now: Instant) {
        let report = self.servers[request.server].learner.report.as_ref();
        match report.map(|(arrives, _)| *arrives).filter(|arrives| *arrives > now) {
            Some(arrives) => self.plan(arrives, Event::Forwarded(Box::new(request))),
            None => self.ask_leader(request, now),
        }
    }

    /// Answers a heartbeat in order with the reports of its server.
    pub(super) fn answer_behind_ping(&mut self, request: Request, now: Instant) {
        let ping = self.servers[request.server].learner.ping;
        match ping.filter(|(sent, arrives)| *sent <= now && *arrives > now) {
            Some((_, arrives)) => self.plan(arrives, Event::Synced(Box::new(request))),
            None => self.synced(&request, now),
        }
    }

    /// The answer to a heartbeat comes back from the leader.
    pub(super) fn synced(&mut self, request: &Request, now: Instant) {
        if !self.servers[request.server].learner.is_alone {
            self.once_applied(request, self.log.len(), Answer::Done, now);
        }
    }

    /// During an election some servers may not notice that there is no leader, and the deposed
    /// leader may be the last to notice.
    pub(super) fn trouble_in_an_election(&mut self, lasting: Duration, now: Instant) {
        let server =
            usize::try_from(self.decisions.pick(Site::Server, 0, COUNT as u64)).unwrap_or(0);
        let deposed = self.decisions.lasting(Site::Deposed, 0, lasting);
        if let Some(lasting) = deposed {
            self.fault(0, Site::Deposed, 0, now);
            self.deposed = Some(server);
            self.plan(now + lasting, Event::StepsDown(server));
        }
        for other in (0..COUNT).filter(|other| deposed.is_none() || *other != server) {
            if self.servers[other].learner.is_alone {
                continue;
            }
            let actor = Self::server_actor(other);
            if let Some(lasting) = self.decisions.lasting(Site::CutOff, actor, self.ttl * 2) {
                self.fault(actor, Site::CutOff, 0, now);
                self.cut_off(other, lasting, now);
            } else if self.personality.hangs_up_without_leader() {
                self.hang_up_on_clients(other, now);
            }
        }
    }

    /// A deposed leader notices that it was replaced, or another was elected.
    pub(super) fn step_down(&mut self, server: usize, now: Instant) {
        if self.deposed == Some(server) {
            self.deposed = None;
            if self.personality.hangs_up_without_leader() {
                self.hang_up_on_clients(server, now);
            }
        }
    }
}
