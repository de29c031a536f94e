//! The connections: the delivery of requests, answers and events, and broken connections.

use std::time::Duration;

use synod_core::clock::Instant;
use tokio::sync::oneshot;

use crate::cluster::Alarm;
use crate::cluster::answer::{Answer, Letter};
use crate::cluster::link::{Ask, Link, LinkId, Pending, Request};
use crate::cluster::site::Site;
use crate::cluster::state::{COUNT, Cuts, Event, State};
use crate::cluster::trace::What;

impl State {
    pub(super) fn link(&mut self, id: LinkId) -> &mut Link {
        &mut self.links[id.0]
    }

    /// A new connection of a process to the store.
    pub(super) fn new_link(&mut self, actor: u64) -> LinkId {
        self.links.push(Link::new(actor));
        LinkId(self.links.len() - 1)
    }

    /// Connects to another server, or to the same one again.
    pub(super) fn connect(&mut self, id: LinkId, now: Instant) {
        self.break_link(id, self.links[id.0].epoch, now);
        let actor = self.links[id.0].actor;
        let picked = self.decisions.pick(Site::Server, actor, COUNT as u64);
        let server = self.rotate(actor, usize::try_from(picked).unwrap_or(0));
        let link = self.link(id);
        link.server = Some(server);
        (link.there, link.back, link.told) = (None, None, None);
    }

    /// The server that a process connects to: the next one, if it has connected to this one
    /// repeatedly. A real client tries all servers of its list, so a server that never answers does
    /// not prevent it from reaching the others.
    fn rotate(&mut self, actor: u64, server: usize) -> usize {
        const MAX_TIMES: u32 = 3;

        let (last, times) = self.visits.get(&actor).copied().unwrap_or((server, 0));
        let times = if last == server { times + 1 } else { 1 };
        let (server, times) =
            if times > MAX_TIMES { ((server + 1) % COUNT, 1) } else { (server, times) };
        self.visits.insert(actor, (server, times));
        server
    }

    /// Sends a request. `None` if there is no connection.
    pub(super) fn send(
        &mut self,
        id: LinkId,
        ask: Ask,
        now: Instant,
    ) -> Option<oneshot::Receiver<Answer>> {
        let link = &self.links[id.0];
        let connects = matches!(ask, Ask::Open(_) | Ask::Attach);
        let server = link.server.filter(|_| link.is_up || connects)?;
        if self.is_buried(id) {
            return None;
        }
        let (actor, epoch) = (link.actor, link.epoch);
        self.calls += 1;
        let call = self.calls;
        let (tell, told) = oneshot::channel();
        self.link(id).pending.insert(call, Pending { tell, sent: now });
        let age = self.age(now);
        self.trace.tell((age, actor), What::Sent, call, || ask.to_string());
        let mut request = Request { call, link: id, epoch, actor, server, late: false, ask };
        self.trouble_on_the_way(id, server, now);
        if self.decide_crash(actor, call, now) {
            return Some(told);
        }
        if let Some(arrival) = self.departs(&mut request, now) {
            self.plan(arrival, Event::Arrive(Box::new(request)));
        }
        Some(told)
    }

    /// Decides whether the sender crashes before or right after it sends.
    fn decide_crash(&mut self, actor: u64, call: u64, now: Instant) -> bool {
        for (site, alarm) in
            [(Site::Crashed, Alarm::Crash(actor)), (Site::UserDied, Alarm::UserDies(actor))]
        {
            // Before or after the request is sent.
            if let Some(when) = self.decisions.fires(site, actor, 2) {
                self.fault(actor, site, call, now);
                self.calls_for.push(alarm);
                return when == 1;
            }
        }
        false
    }

    /// The arrival time of a request, if it arrives.
    fn departs(&mut self, request: &mut Request, now: Instant) -> Option<Instant> {
        let (actor, ttl) = (request.actor, self.ttl);
        let mut delay = self.delay(actor);
        if matches!(request.ask, Ask::Beat) {
            if self.cuts_of(actor).beats.is_some_and(|until| now < until) {
                return None;
            }
            if self.decisions.fires(Site::BeatLost, actor, 1).is_some() {
                self.fault(actor, Site::BeatLost, request.call, now);
                return None;
            }
            if let Some(slow) = self.decisions.lasting(Site::BeatSlow, actor, ttl) {
                self.fault(actor, Site::BeatSlow, request.call, now);
                delay += slow;
            }
            return Some(self.held_there(request, now + delay, now));
        }
        if let Some(slow) = self.decisions.lasting(Site::RequestSlow, actor, ttl) {
            self.fault(actor, Site::RequestSlow, request.call, now);
            delay += slow;
        }
        let mut arrival = self.held_there(request, now + delay, now);
        if self.decisions.fires(Site::RequestLost, actor, 1).is_some() {
            self.fault(actor, Site::RequestLost, request.call, now);
            self.plan(arrival, Event::Break(request.link, request.epoch));
            let late = self.decisions.lasting(Site::AppliedLate, actor, ttl * 3 / 4)?;
            self.fault(actor, Site::AppliedLate, request.call, now);
            request.late = true;
            return Some(arrival + late);
        }
        let behind = self.links[request.link.0].there.is_some_and(|last| last > arrival);
        let ahead = behind && self.decide_overtaking(Site::RequestAhead, actor, request.call, now);
        let link = self.link(request.link);
        if let Some(last) = link.there.filter(|_| !ahead) {
            arrival = arrival.max(last);
        }
        link.there = link.there.max(Some(arrival));
        Some(arrival)
    }

    /// Decides whether a message overtakes earlier ones, if the store keeps no order.
    fn decide_overtaking(&mut self, site: Site, actor: u64, id: u64, now: Instant) -> bool {
        let ahead =
            !self.personality.keeps_order() && self.decisions.fires(site, actor, 1).is_some();
        if ahead {
            self.fault(actor, site, id, now);
        }
        ahead
    }

    fn held_there(&self, request: &Request, arrival: Instant, now: Instant) -> Instant {
        let cut = self.cuts.get(&request.actor).and_then(|cuts| cuts.there[request.server]);
        cut.filter(|until| *until > now).map_or(arrival, |until| arrival.max(until))
    }

    fn held_back(&self, actor: u64, server: usize, arrival: Instant, now: Instant) -> Instant {
        let cut = self.cuts.get(&actor).and_then(|cuts| cuts.back[server]);
        cut.filter(|until| *until > now).map_or(arrival, |until| arrival.max(until))
    }

    /// The time that a message takes without a fault.
    pub(super) fn delay(&mut self, actor: u64) -> Duration {
        Duration::from_millis(self.decisions.pick(Site::Delay, actor, 4))
    }

    /// Answers a request over its connection.
    pub(super) fn answer(&mut self, request: &Request, answer: Answer, now: Instant) {
        let (id, call) = (request.link, request.call);
        let (age, server) = (self.age(now), Self::server_actor(request.server));
        self.trace.tell((age, server), What::Answered, call, || answer.to_string());
        if self.links[id.0].epoch != request.epoch {
            return;
        }
        let (actor, ttl) = (request.actor, self.ttl);
        let mut delay = self.delay(actor);
        if matches!(request.ask, Ask::Beat) {
            if let Some(slow) = self.decisions.lasting(Site::BeatAnswerSlow, actor, ttl) {
                self.fault(actor, Site::BeatAnswerSlow, call, now);
                delay += slow;
            }
            let at = self.held_back(actor, request.server, now + delay, now);
            let letter = Letter::Answer { call, answer };
            return self.plan(at, Event::Deliver(id, request.epoch, Box::new(letter)));
        }
        if let Some(slow) = self.decisions.lasting(Site::ReplySlow, actor, ttl) {
            self.fault(actor, Site::ReplySlow, call, now);
            delay += slow;
        }
        if self.decisions.fires(Site::ReplyLost, actor, 1).is_some() {
            self.fault(actor, Site::ReplyLost, call, now);
            return self.plan(now + delay, Event::Break(id, request.epoch));
        }
        self.post(id, delay, Letter::Answer { call, answer }, now);
    }

    /// Sends a message to a client: after all earlier ones on this connection, or overtaking them,
    /// but an event never overtakes an earlier event.
    pub(super) fn post(&mut self, id: LinkId, delay: Duration, letter: Letter, now: Instant) {
        let link = &self.links[id.0];
        let Some(server) = link.server else { return };
        let (actor, epoch) = (link.actor, link.epoch);
        let mut at = self.held_back(actor, server, now + delay, now);
        let (site, number, tells) = match &letter {
            Letter::Answer { call, .. } => (Site::AnswerAhead, *call, false),
            Letter::News { watch } | Letter::ReadAgain { watch, .. } => {
                (Site::EventAhead, *watch, true)
            }
        };
        // A message can overtake only if an earlier one is in flight.
        let behind = self.links[id.0].back.is_some_and(|last| last > at);
        let ahead = behind && self.decide_overtaking(site, actor, number, now);
        let link = self.link(id);
        if let Some(last) = if ahead { link.told.filter(|_| tells) } else { link.back } {
            at = at.max(last);
        }
        link.back = link.back.max(Some(at));
        if tells {
            link.told = Some(at);
        }
        self.plan(at, Event::Deliver(id, epoch, Box::new(letter)));
    }

    /// Delivers a message to a client.
    pub(super) fn deliver(&mut self, id: LinkId, epoch: u64, letter: Letter, now: Instant) {
        if self.links[id.0].epoch != epoch || self.is_buried(id) {
            return;
        }
        let (age, actor) = (self.age(now), self.links[id.0].actor);
        match letter {
            Letter::Answer { call, answer } => {
                let Some(pending) = self.link(id).pending.remove(&call) else { return };
                self.trace.tell((age, actor), What::Returned, call, || answer.to_string());
                self.take_in(id, &answer);
                let _heard = pending.tell.send(answer).is_ok();
            }
            Letter::News { watch } => self.hand_out(id, watch, now),
            Letter::ReadAgain { watch, at } => {
                let link = self.link(id);
                link.seen = link.seen.max(at);
                let Some(watching) = link.watching.get_mut(&watch) else { return };
                watching.told = watching.told.max(at);
                let _heard = watching.feed.resync();
                self.trace.tell((age, actor), What::Told, watch, || "read again".to_owned());
            }
        }
    }

    /// Delivers the events of a watch that have arrived.
    fn hand_out(&mut self, id: LinkId, watch: u64, now: Instant) {
        let (age, actor) = (self.age(now), self.links[id.0].actor);
        let waits = self.links[id.0].watching.get(&watch).map_or(0, |it| it.outbox.len());
        let joined = waits > 1 && self.decisions.fires(Site::EventsJoined, actor, 1).is_some();
        if joined {
            self.fault(actor, Site::EventsJoined, watch, now);
        }
        let link = self.link(id);
        let Some(watching) = link.watching.get_mut(&watch) else { return };
        // Nothing is left if these events were joined with earlier ones.
        let Some((changes, at)) = watching.take(joined) else { return };
        watching.told = watching.told.max(at);
        link.seen = link.seen.max(at);
        let feed = watching.feed.clone();
        self.trace.tell((age, actor), What::Told, watch, || {
            let all = changes.iter().map(|it| format!("{:?} {}", it.kind, it.path));
            all.collect::<Vec<_>>().join(", ")
        });
        if !feed.send_all(changes) {
            self.link(id).watching.remove(&watch);
        }
    }

    /// Records what a client learns from an answer about its session and revision.
    fn take_in(&mut self, id: LinkId, answer: &Answer) {
        let link = self.link(id);
        match answer {
            Answer::Opened(session, _) => (link.session, link.is_up) = (Some(*session), true),
            Answer::Attached(..) => link.is_up = true,
            Answer::View(view, at) | Answer::Observing(view, _, at) => {
                link.seen = link.seen.max(*at).max(view.revision);
            }
            Answer::Outcome(_, at) => link.seen = link.seen.max(*at),
            _ => {}
        }
    }

    /// Breaks a connection, and fails all calls that wait for an answer over it.
    pub(super) fn break_link(&mut self, id: LinkId, epoch: u64, now: Instant) {
        let link = self.link(id);
        if link.epoch != epoch {
            return;
        }
        link.epoch += 1;
        let was_up = link.is_up;
        (link.server, link.is_up) = (None, false);
        let (actor, pending) = (link.actor, std::mem::take(&mut link.pending));
        if was_up {
            link.broken.notify_one();
        }
        let age = self.age(now);
        for (call, pending) in pending {
            self.trace.tell((age, actor), What::Failed, call, || "no answer".to_owned());
            let _heard = pending.tell.send(Answer::Broken).is_ok();
        }
    }

    /// Breaks a connection over which a call has waited for too long.
    pub(super) fn give_up_on(&mut self, id: LinkId, limit: Duration, now: Instant) {
        let link = &self.links[id.0];
        let oldest = link.pending.values().next().map(|pending| pending.sent);
        if oldest.is_some_and(|sent| now.saturating_duration_since(sent) >= limit) {
            self.break_link(id, link.epoch, now);
        }
    }

    /// Records a fault in the trace.
    pub(super) fn fault(&mut self, actor: u64, site: Site, id: u64, now: Instant) {
        let age = self.age(now);
        self.trace.tell((age, actor), What::Fault, id, || site.to_string());
    }

    /// The cuts between a process and the servers.
    pub(super) fn cuts_of(&mut self, actor: u64) -> &mut Cuts {
        self.cuts.entry(actor).or_insert(Cuts::NONE)
    }

    /// The number of servers that have a connection in both directions to a process.
    pub(super) fn reaches(&self, actor: u64, now: Instant) -> usize {
        let Some(cuts) = self.cuts.get(&actor) else { return COUNT };
        let cut = |until: Option<Instant>| until.is_some_and(|until| until > now);
        (0..COUNT).filter(|server| !cut(cuts.there[*server]) && !cut(cuts.back[*server])).count()
    }

    fn is_buried(&self, id: LinkId) -> bool {
        let link = &self.links[id.0];
        self.buried.get(&link.actor).is_some_and(|count| id.0 < *count)
    }

    pub(super) fn bury(&mut self, actor: u64, now: Instant) {
        self.buried.insert(actor, self.links.len());
        for index in 0..self.links.len() {
            if self.links[index].actor == actor {
                self.break_link(LinkId(index), self.links[index].epoch, now);
                self.links[index].watching.clear();
            }
        }
    }
}
