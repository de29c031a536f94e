//! The work of the leader: sessions and writes.

use std::time::Duration;

use synod_core::clock::Instant;
use synod_core::error::{Effect, ErrorKind};
use synod_core::store::{Op, Outcome, SessionId, Txn};

use crate::cluster::By;
use crate::cluster::answer::Answer;
use crate::cluster::flaw::Flaw;
use crate::cluster::link::{Ask, LinkId, Request};
use crate::cluster::server::Waiting;
use crate::cluster::site::Site;
use crate::cluster::state::{COUNT, Event, State};
use crate::cluster::trace::What;

impl State {
    /// Passes a request to the leader, or queues it until there is one.
    pub(super) fn ask_leader(&mut self, request: Request, now: Instant) {
        if self.links[request.link.0].epoch != request.epoch && !request.late {
            return;
        }
        let Some(request) = self.keep_while_alone(request) else { return };
        if self.leaderless.is_some() {
            if self.deposed == Some(request.server) && matches!(request.ask, Ask::Beat) {
                return self.answer(&request, Answer::Done, now);
            }
            return self.held.push(request);
        }
        match &request.ask {
            Ask::Beat if self.personality.reports_sessions() => self.sync(request, now),
            Ask::Beat => self.beat(&request, now),
            Ask::Attach => self.attach(&request, now),
            Ask::Open(ttl) => self.open(&request, *ttl, now),
            _ => {
                let site = Site::Refused;
                if adds(&request.ask) && self.decisions.fires(site, request.actor, 1).is_some() {
                    self.fault(request.actor, site, request.call, now);
                    return self.refuse(&request, now);
                }
                let takes = self.decisions.pick(Site::Delay, Self::server_actor(request.server), 3);
                self.proposed.push_back(request);
                self.plan(now + Duration::from_millis(takes), Event::Commit);
            }
        }
    }

    fn refuse(&mut self, request: &Request, now: Instant) {
        let kind = self.refusal(request.actor);
        self.answer(request, Answer::Refused(kind, Effect::None), now);
    }

    fn refusal(&mut self, actor: u64) -> ErrorKind {
        let kinds = [ErrorKind::Backend, ErrorKind::Denied];
        kinds[usize::from(self.decisions.pick(Site::Way, actor, 2) == 1)]
    }

    /// The error of an applied transaction, if a fault rejects it nevertheless. A full etcd does
    /// that: it applies a write and then reports that it has no space. So does ZooKeeper, if the
    /// follow-up read of a write is refused.
    fn refuse_applied(&mut self, request: &Request, answer: Answer, now: Instant) -> Answer {
        let applied = matches!(answer, Answer::Outcome(Outcome::Committed(_), _));
        let (actor, site) = (request.actor, Site::RefusedDone);
        if !applied || self.decisions.fires(site, actor, 1).is_none() {
            return answer;
        }
        self.fault(actor, site, request.call, now);
        let mistaken = self.flaw == Some(Flaw::RefusedMeansUndone);
        let effect = if mistaken { Effect::None } else { Effect::Unknown };
        Answer::Refused(self.refusal(actor), effect)
    }

    fn open(&mut self, request: &Request, ttl: Duration, now: Instant) {
        let session = self.world.open(ttl, now);
        self.record(now, By::Store);
        let (epoch, link) = (request.epoch, self.link(request.link));
        (link.session, link.attached, link.opened) = (Some(session), epoch, ttl);
        self.plan_tick();
        let age = self.age(now);
        let about = || format!("session {session} begins");
        self.trace.tell((age, request.actor), What::Session, session.get(), about);
        let needed = self.log.len();
        self.once_applied(request, needed, Answer::Opened(session, ttl), now);
    }

    fn attach(&mut self, request: &Request, now: Instant) {
        let link = &self.links[request.link.0];
        if self.revision_of(request.server) < link.seen {
            return self.answer(request, Answer::Behind, now);
        }
        // A delayed request of an old connection: the newer connection stays.
        let Some(session) = link.session.filter(|_| link.epoch == request.epoch) else { return };
        if self.world.touch(session, now).is_err() {
            self.record(now, By::Store);
            self.note_deaths(now, true);
            return self.answer(request, Answer::Over, now);
        }
        self.record(now, By::Store);
        self.plan_tick();
        let epoch = request.epoch;
        self.link(request.link).attached = epoch;
        let ttl = self.renegotiate(request, now);
        // A longer time applies immediately.
        if self.world.ttl(session).is_some_and(|counted| counted < ttl) {
            self.count_with(request.link, ttl, now, now);
        }
        self.answer(request, Answer::Attached(ttl, now), now);
        if self.links[request.link.0].epoch == epoch {
            self.rearm(request.link, request.server, now);
        }
    }

    /// The time to live that a server grants when it takes over a session: the time at the opening,
    /// within the limits of this server.
    fn renegotiate(&mut self, request: &Request, now: Instant) -> Duration {
        const PARTS: u32 = 8;

        let opened = self.links[request.link.0].opened;
        let parts = self.decisions.fires(Site::OtherTtl, request.actor, u64::from(PARTS) - 1);
        let Some(parts) = parts.and_then(|parts| u32::try_from(parts).ok()) else { return opened };
        self.fault(request.actor, Site::OtherTtl, request.call, now);
        (opened * parts / PARTS).max(opened / 4)
    }

    /// Sets a new time to live for a session, counted from its connection.
    ///
    /// A real leader does so when it takes over the session, before the client knows of it. A
    /// client that misses the answer, or reads it late, uses the wrong time until then. No client
    /// can prevent that: the servers of one ensemble must have the same limits. So here a shorter
    /// time applies once the client knows it.
    pub(super) fn count_with(&mut self, id: LinkId, ttl: Duration, since: Instant, now: Instant) {
        if let Some(session) = self.links[id.0].session {
            self.world.renegotiate(session, ttl, since, now);
            self.record(now, By::Store);
            self.note_deaths(now, true);
            self.plan_tick();
        }
    }

    fn beat(&mut self, request: &Request, now: Instant) {
        let (actor, session) = (request.actor, self.links[request.link.0].session);
        let Some(session) = session else { return };
        if self.decisions.fires(Site::EndedBeforeBeat, actor, 1).is_some() {
            self.fault(actor, Site::EndedBeforeBeat, request.call, now);
            self.end_session(session, now);
        }
        let touched = self.world.touch(session, now);
        self.record(now, By::Store);
        self.collect(now);
        self.plan_tick();
        let answer = match touched {
            Ok(()) => Answer::Done,
            Err(_) if self.decide_dead_answer(request, now) => Answer::Done,
            Err(_) => Answer::Over,
        };
        self.note_deaths(now, true);
        self.answer(request, answer, now);
        if self.decisions.fires(Site::EndedAfterBeat, actor, 1).is_some() {
            self.fault(actor, Site::EndedAfterBeat, request.call, now);
            self.end_session(session, now);
        }
    }

    /// A heartbeat that extends its session only with the next report of its server.
    fn sync(&mut self, request: Request, now: Instant) {
        let (actor, session) = (request.actor, self.links[request.link.0].session);
        let Some(session) = session else { return };
        if self.decisions.fires(Site::EndedBeforeBeat, actor, 1).is_some() {
            self.fault(actor, Site::EndedBeforeBeat, request.call, now);
            self.end_session(session, now);
        }
        self.tick(now);
        self.collect(now);
        let ends = self.decisions.fires(Site::EndedAfterBeat, actor, 1).is_some();
        if ends {
            self.fault(actor, Site::EndedAfterBeat, request.call, now);
        }
        if self.world.lives(session) || self.decide_dead_answer(&request, now) {
            self.answer_behind_ping(request, now);
        } else {
            self.answer(&request, Answer::Over, now);
        }
        if ends {
            self.end_session(session, now);
        }
    }

    /// Decides whether a heartbeat is answered although its session has ended.
    fn decide_dead_answer(&mut self, request: &Request, now: Instant) -> bool {
        let (actor, site) = (request.actor, Site::BeatOfTheDead);
        let fires = self.decisions.fires(site, actor, 1).is_some();
        if fires {
            self.fault(actor, site, request.call, now);
        }
        fires || self.flaw == Some(Flaw::DeadBeatAnswered)
    }

    /// Collects the containers that have been empty for a while, in the order of the log.
    fn collect(&mut self, now: Instant) {
        if self.world.collect_all() {
            self.log_effects(self.world.revision(), Vec::new(), By::Store, now);
        }
    }

    /// Ends a session at the leader.
    pub(super) fn end_session(&mut self, session: SessionId, now: Instant) {
        self.world.tick(now);
        self.note_deaths(now, true);
        self.world.end(session, now);
        self.record(now, By::Store);
        self.note_deaths(now, false);
    }

    /// Commits the request that was proposed first.
    pub(super) fn commit_next(&mut self, now: Instant) {
        if let Some(request) = self.proposed.pop_front() {
            self.commit(request, now);
        }
    }

    pub(super) fn commit(&mut self, mut request: Request, now: Instant) {
        let link = &self.links[request.link.0];
        let moved = self.personality.moves_sessions() && link.attached != request.epoch;
        let Some(session) = link.session.filter(|_| !moved) else { return };
        if let Ask::Commit(txn) = std::mem::replace(&mut request.ask, Ask::Close) {
            self.commit_txn(&request, session, txn, now);
        } else {
            self.end_session(session, now);
            self.once_applied(&request, self.log.len(), Answer::Done, now);
        }
    }

    fn commit_txn(&mut self, request: &Request, session: SessionId, txn: Txn, now: Instant) {
        let paths: Vec<_> = txn.ops.iter().map(|op| op.path().clone()).collect();
        let by = By::Process(request.actor);
        let outcome = self.on_behalf(by, now, |world| world.commit(session, txn, now));
        self.note_deaths(now, true);
        self.plan_tick();
        let answer = match outcome {
            Ok(outcome) => Answer::Outcome(outcome, self.world.revision()),
            Err(_) => Answer::Over,
        };
        let answer = self.refuse_applied(request, answer, now);
        self.once_applied(request, self.log.len(), answer, now);
        if let Some(path) = paths.first() {
            self.trouble_after_commit(request.actor, path, now);
        }
    }

    /// Sends the answer once the server of the request has applied `needed` entries.
    pub(super) fn once_applied(
        &mut self,
        request: &Request,
        needed: usize,
        answer: Answer,
        now: Instant,
    ) {
        let server = request.server;
        let asked = request.copy();
        self.once(server, needed, Waiting::Answer(Box::new(asked), Box::new(answer)), now);
    }

    /// Removes the leader for a while. Uncommitted requests are either committed before or never.
    pub(super) fn lose_leader(&mut self, lasting: Duration, now: Instant) {
        self.leaderless = Some(now + lasting);
        self.leaderless_for = lasting;
        self.plan(now + lasting, Event::Elected);
        for request in std::mem::take(&mut self.proposed) {
            let (id, epoch) = (request.link, request.epoch);
            if self.decisions.pick(Site::Way, 0, 2) == 0 {
                self.commit(request, now);
            }
            self.break_link(id, epoch, now);
        }
        self.trouble_in_an_election(lasting, now);
    }

    /// Elects a new leader, which gives every session its full time.
    pub(super) fn elected(&mut self, now: Instant) {
        if self.leaderless.is_none_or(|until| until > now) {
            return;
        }
        self.leaderless = None;
        if let Some(server) = self.deposed {
            self.step_down(server, now);
        }
        self.hear_of_all(now);
        self.plan_tick();
        let age = self.age(now);
        self.trace.tell((age, 0), What::Session, 0, || "there is a leader".to_owned());
        if self.decisions.fires(Site::EndedByOldLeader, 0, 1).is_some()
            && let Some(session) = self.links.iter().rev().find_map(|link| link.session)
        {
            self.fault(0, Site::EndedByOldLeader, 0, now);
            // The leader treats the session as silent.
            self.world.end(session, now);
            self.record(now, By::Store);
            self.note_deaths(now, true);
        }
        for request in std::mem::take(&mut self.held) {
            match request.ask {
                Ask::Read(_) | Ask::Watch(..) => self.serve_latest(request, now),
                _ => {
                    if self.flaw == Some(Flaw::ElectedRepeats) {
                        self.do_once_more(&request, now);
                    }
                    self.ask_leader(request, now);
                }
            }
        }
    }

    /// A planted mistake: the leader does not know which requests were applied already.
    fn do_once_more(&mut self, request: &Request, now: Instant) {
        let link = &self.links[request.link.0];
        let session = link.session.filter(|_| link.epoch == request.epoch);
        if let (Some(session), Ask::Commit(txn)) = (session, &request.ask) {
            let (by, txn) = (By::Process(request.actor), txn.clone());
            let _either_way =
                self.on_behalf(by, now, |world| world.commit(session, txn, now).is_ok());
        }
    }

    /// Restarts the time of every session.
    fn hear_of_all(&mut self, now: Instant) {
        /// Practically forever.
        const AGES: Duration = Duration::from_secs(86_400);
        let was_long = self.leaderless_for > self.ttl * 5;
        let forgets = self.flaw == Some(Flaw::OutageKeepsSessions) && was_long;
        self.world.touch_all(if forgets { now + AGES } else { now });
    }

    pub(super) fn freeze(&mut self, server: usize) {
        if let Some(server) = self.servers.get_mut(server % COUNT) {
            server.frozen = true;
        }
    }
}

impl Request {
    /// A copy without the payload, which only shows whether it is a heartbeat: the answer of a
    /// heartbeat is sent separately.
    fn copy(&self) -> Self {
        let Self { call, link, epoch, actor, server, late, .. } = *self;
        let ask = if matches!(self.ask, Ask::Beat) { Ask::Beat } else { Ask::Close };
        Self { call, link, epoch, actor, server, late, ask }
    }
}

/// Returns `true` if a request creates something that needs space.
fn adds(ask: &Ask) -> bool {
    let adds = |op: &Op| matches!(op, Op::Create { .. } | Op::Set { .. });
    matches!(ask, Ask::Commit(txn) if txn.ops.iter().any(adds))
}
