//! The work of a follower: it applies the log, answers requests, and serves watches.

use std::time::Duration;

use synod_core::clock::Instant;
use synod_core::store::{Change, Freshness, Revision};
use synod_mem::state_machine::{Tree, answer};

use crate::cluster::answer::{Answer, Letter, Watching};
use crate::cluster::link::{Ask, LinkId, Request};
use crate::cluster::server::Waiting;
use crate::cluster::site::Site;
use crate::cluster::state::{Event, State};
use crate::cluster::trace::What;

impl State {
    /// Plans when a server applies the latest commit.
    pub(super) fn follow(&mut self, server: usize, now: Instant) {
        let actor = Self::server_actor(server);
        let mut at = now + Duration::from_millis(self.decisions.pick(Site::Delay, actor, 3));
        if let Some(behind) = self.decisions.lasting(Site::Behind, actor, self.ttl * 5) {
            self.fault(actor, Site::Behind, 0, now);
            at += behind;
        }
        let follows = &mut self.servers[server].follows;
        at = follows.back().map_or(at, |last| at.max(*last));
        follows.push_back(at);
        if !self.servers[server].frozen {
            self.plan(at, Event::Apply(server));
        }
    }

    /// Applies all entries that are due.
    pub(super) fn apply(&mut self, server: usize, now: Instant) {
        if self.servers[server].frozen || self.servers[server].learner.is_alone {
            return;
        }
        while let Some(at) = self.servers[server].follows.front()
            && *at <= now
        {
            self.servers[server].follows.pop_front();
            let index = self.servers[server].applied;
            self.servers[server].applied += 1;
            self.tell_watches(server, index, now);
        }
        self.serve_waiting(server, now);
    }

    /// Applies all entries immediately.
    pub(super) fn catch_up(&mut self, server: usize, now: Instant) {
        for at in &mut self.servers[server].follows {
            *at = (*at).min(now);
        }
        self.apply(server, now);
    }

    fn serve_waiting(&mut self, server: usize, now: Instant) {
        let applied = self.servers[server].applied;
        let waiting = std::mem::take(&mut self.servers[server].waiting);
        for (needed, work) in waiting {
            if needed > applied {
                self.servers[server].waiting.push((needed, work));
                continue;
            }
            match work {
                Waiting::Serve(request) => self.serve(&request, now),
                Waiting::Answer(request, answer) => self.answer(&request, *answer, now),
            }
        }
    }

    /// Does `work` once a server has applied `needed` entries of the log.
    pub(super) fn once(&mut self, server: usize, needed: usize, work: Waiting, now: Instant) {
        self.servers[server].waiting.push((needed, work));
        if self.servers[server].applied >= needed {
            self.serve_waiting(server, now);
        }
    }

    /// Handles an arrived request.
    pub(super) fn arrive(&mut self, request: Request, now: Instant) {
        let link = &self.links[request.link.0];
        if link.epoch != request.epoch && !request.late || self.servers[request.server].frozen {
            return;
        }
        let (age, server) = (self.age(now), Self::server_actor(request.server));
        self.trace.tell((age, server), What::Arrived, request.call, || request.ask.to_string());
        self.trouble_at_arrival(&request, now);
        self.trouble_with_the_leader(request.server, now);
        if let Some(session) = self.links[request.link.0].session.filter(|_| !request.late) {
            self.hear_of(request.server, session, now);
        }
        match &request.ask {
            Ask::Open(_) | Ask::Attach | Ask::Beat | Ask::Commit(_) | Ask::Close => {
                self.forward(request, now);
            }
            Ask::Read(query) | Ask::Watch(query, _) => {
                let stale = query.freshness == Freshness::Latest
                    && self.decisions.fires(Site::StaleLatest, server, 1).is_some();
                if stale {
                    self.fault(server, Site::StaleLatest, request.call, now);
                }
                if query.freshness == Freshness::Local || stale {
                    return self.serve(&request, now);
                }
                self.serve_latest(request, now);
            }
        }
    }

    /// Answers a read once its server has caught up with the leader.
    pub(super) fn serve_latest(&mut self, request: Request, now: Instant) {
        if self.leaderless.is_some() {
            return self.held.push(request);
        }
        if let Some(request) = self.keep_while_alone(request) {
            let (server, needed) = (request.server, self.log.len());
            self.once(server, needed, Waiting::Serve(Box::new(request)), now);
        }
    }

    /// Answers a read from the server's own tree.
    fn serve(&mut self, request: &Request, now: Instant) {
        let link = &self.links[request.link.0];
        // A server learns the end of a session from the log, like every other change.
        let applied = self.servers[request.server].applied;
        if link.session.is_none() || link.ended.is_some_and(|ended| ended <= applied) {
            return self.answer(request, Answer::Over, now);
        }
        let at = self.revision_of(request.server);
        let (Ask::Read(query) | Ask::Watch(query, _)) = &request.ask else { return };
        let view = answer(self.tree_of(request.server), query, at, None);
        let answer = match &request.ask {
            Ask::Watch(query, feed) => {
                let (query, feed) = (query.clone(), feed.clone());
                let watching = Watching::new(query, feed, at);
                // On an old connection the watch could never be removed again.
                if self.links[request.link.0].epoch == request.epoch {
                    self.link(request.link).watching.insert(request.call, watching);
                }
                Answer::Observing(view, request.call, at)
            }
            _ => Answer::View(view, at),
        };
        self.answer(request, answer, now);
    }

    pub(super) fn revision_of(&self, server: usize) -> Revision {
        let applied = self.servers[server].applied;
        applied.checked_sub(1).map_or(Revision::ZERO, |last| self.log[last].revision)
    }

    /// The tree at the revision of a server.
    pub(super) fn tree_of(&mut self, server: usize) -> &Tree {
        let applied = self.servers[server].applied;
        if applied == self.log.len() {
            return self.world.tree();
        }
        let linger = self.personality.habits().linger;
        let (tree, at) = self.servers[server].copy.get_or_insert_with(|| (Tree::new(), 0));
        for logged in &self.log[*at..applied] {
            for effect in &logged.effects {
                effect.apply_to(tree);
            }
            if linger && !logged.effects.is_empty() {
                tree.collect(logged.revision.get());
            } else {
                let _any = tree.collect_all();
            }
        }
        *at = applied;
        tree
    }

    /// Delivers one commit to the watches at a server.
    fn tell_watches(&mut self, server: usize, index: usize, now: Instant) {
        for number in 0..self.links.len() {
            let link = &self.links[number];
            // A connection that is not established yet gets its missed events later.
            let is_here = link.server == Some(server) && link.attached == link.epoch;
            if is_here && !link.watching.is_empty() {
                self.tell_link(LinkId(number), index, now);
            }
        }
    }

    /// Delivers one commit to the watches of one connection.
    pub(super) fn tell_link(&mut self, id: LinkId, index: usize, now: Instant) {
        let (at, bare) = (self.log[index].revision, self.personality.gives_bare_hints());
        let link = &mut self.links[id.0];
        link.watching.retain(|_, watching| !watching.feed.is_over());
        let mut news = Vec::new();
        for (number, watching) in &mut link.watching {
            if watching.sent >= at {
                continue;
            }
            watching.sent = at;
            let mine = self.log[index].effects.iter().filter(|it| it.concerns(&watching.query));
            let hints = bare && watching.query.hints;
            let changes = mine.map(|it| if hints { it.to_hint() } else { it.to_change(at) });
            let changes: Vec<Change> = changes.collect();
            if !changes.is_empty() {
                watching.outbox.push_back((changes, at));
                news.push(*number);
            }
        }
        for watch in news {
            self.post_news(id, watch, now);
        }
    }

    fn post_news(&mut self, id: LinkId, watch: u64, now: Instant) {
        let actor = self.links[id.0].actor;
        let mut delay = self.delay(actor);
        if let Some(late) = self.decisions.lasting(Site::EventLate, actor, self.ttl) {
            self.fault(actor, Site::EventLate, watch, now);
            delay += late;
        }
        if self.decisions.fires(Site::EventTwice, actor, 1).is_some() {
            self.fault(actor, Site::EventTwice, watch, now);
            if let Some(watching) = self.link(id).watching.get_mut(&watch)
                && let Some(again) = watching.outbox.back().cloned()
            {
                watching.outbox.push_back(again);
                self.post(id, delay, Letter::News { watch }, now);
            }
        }
        if self.decisions.fires(Site::ResyncForNothing, actor, 1).is_some() {
            self.fault(actor, Site::ResyncForNothing, watch, now);
            self.post(id, delay, Letter::ReadAgain { watch, at: Revision::ZERO }, now);
        }
        self.post(id, delay, Letter::News { watch }, now);
    }

    /// Continues the watches of a session over a new connection.
    pub(super) fn rearm(&mut self, id: LinkId, server: usize, now: Instant) {
        let (actor, at) = (self.links[id.0].actor, self.revision_of(server));
        self.links[id.0].watching.retain(|_, watching| !watching.feed.is_over());
        let watches: Vec<u64> = self.links[id.0].watching.keys().copied().collect();
        let resumes = self.personality.resumes_watches();
        for watch in watches {
            let compacted = self.decisions.fires(Site::Compacted, actor, 1).is_some();
            let Some(watching) = self.links[id.0].watching.get_mut(&watch) else { continue };
            watching.outbox.clear();
            if resumes && !compacted {
                watching.sent = watching.told;
            } else {
                watching.sent = at;
                let delay = self.delay(actor);
                self.post(id, delay, Letter::ReadAgain { watch, at }, now);
            }
        }
        if resumes {
            for index in 0..self.servers[server].applied {
                self.tell_link(id, index, now);
            }
        }
    }
}
