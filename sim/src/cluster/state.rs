//! [`State`]: the whole state of a simulated store, and its future events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use synod_core::clock::Instant;
use synod_core::path::Path;
use synod_core::store::{Kind, Revision, SessionId};
use synod_mem::Census;
use synod_mem::state_machine::{Effect, World};

use crate::cluster::answer::Letter;
use crate::cluster::decisions::{Decisions, SERVERS};
use crate::cluster::flaw::Flaw;
use crate::cluster::link::{Link, LinkId, Request};
use crate::cluster::personality::Personality;
use crate::cluster::server::Server;
use crate::cluster::trace::{Trace, What};
use crate::cluster::trace_text::glimpse;
use crate::cluster::{Alarm, By, ClusterOptions, Death, Entry};

/// The number of servers.
pub(super) const COUNT: usize = 3;

#[derive(Debug)]
pub(super) struct State {
    pub(super) personality: Personality,
    pub(super) decisions: Decisions,
    pub(super) trace: Trace,
    /// The time to live to which the lengths of faults are relative.
    pub(super) ttl: Duration,
    pub(super) flaw: Option<Flaw>,
    start: Instant,
    /// The state that the leader has committed.
    pub(super) world: World,
    pub(super) log: Vec<Logged>,
    pub(super) servers: [Server; COUNT],
    pub(super) links: Vec<Link>,
    /// The cuts between each process and the servers.
    pub(super) cuts: BTreeMap<u64, Cuts>,
    /// Processes that have died, each with its number of links at that time.
    pub(super) buried: BTreeMap<u64, usize>,
    /// The server that each process connected to last, and the number of successive connections to
    /// it.
    pub(super) visits: BTreeMap<u64, (usize, u32)>,
    /// The time until which there is no leader.
    pub(super) leaderless: Option<Instant>,
    /// The planned length of the last outage of the leader.
    pub(super) leaderless_for: Duration,
    /// The leader that was deposed and has not noticed it.
    pub(super) deposed: Option<usize>,
    /// The requests that wait for a leader.
    pub(super) held: Vec<Request>,
    /// The requests that the leader has received and not committed.
    pub(super) proposed: VecDeque<Request>,
    pub(super) deaths: Vec<Death>,
    pub(super) calls_for: Vec<Alarm>,
    agenda: BinaryHeap<Reverse<Due>>,
    dues: u64,
    /// The time at which [`Cluster::run`](super::Cluster::run) continues.
    rest: Rest,
    /// The time of the next planned check for expired sessions and nodes.
    next_tick: Option<Instant>,
    pub(super) calls: u64,
}

/// The task that runs the store is currently checking it.
#[derive(Clone, Copy, Debug)]
enum Rest {
    Awake,
    Until(Instant),
    ForGood,
}

/// A commit.
#[derive(Debug)]
pub(super) struct Logged {
    pub(super) at: Instant,
    pub(super) revision: Revision,
    pub(super) effects: Vec<Effect>,
    pub(super) by: By,
}

/// The time until which messages from a process to each server, and back, are held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cuts {
    pub(super) there: [Option<Instant>; COUNT],
    pub(super) back: [Option<Instant>; COUNT],
    /// The time until which its heartbeats are lost.
    pub(super) beats: Option<Instant>,
}

/// A future event.
#[derive(Debug)]
struct Due {
    at: Instant,
    /// Orders events of the same time by the order in which they were planned.
    number: u64,
    event: Event,
}

#[derive(Debug)]
pub(super) enum Event {
    Arrive(Box<Request>),
    Commit,
    Apply(usize),
    Deliver(LinkId, u64, Box<Letter>),
    Break(LinkId, u64),
    Elected,
    /// A server that was cut off from its leader reconnects.
    Rejoin(usize),
    /// A ping of the leader arrives at a server.
    Pinged(usize),
    /// A request reaches the leader, after a report of the server that forwards it.
    Forwarded(Box<Request>),
    /// A server's report of sessions with heartbeats arrives at the leader.
    Report(usize),
    /// The answer to a heartbeat has returned to the server that forwarded it.
    Synced(Box<Request>),
    /// A deposed leader notices that it was replaced.
    StepsDown(usize),
    /// A server treats a client as gone because it has received nothing from it for too long.
    TakenForGone(LinkId, usize),
    Tick,
}

impl Cuts {
    pub(super) const NONE: Self = Self { there: [None; COUNT], back: [None; COUNT], beats: None };
}

impl State {
    pub(super) fn new(options: ClusterOptions, now: Instant) -> Self {
        let rates = options.personality.rates(options.rates);
        let habits = options.personality.habits();
        Self {
            personality: options.personality,
            decisions: Decisions::new(options.choice, rates),
            trace: Trace::new(options.keep_trace),
            ttl: options.ttl,
            flaw: options.flaw,
            start: now,
            world: World::with_journal(habits),
            log: Vec::new(),
            servers: std::array::from_fn(|_| Server::new()),
            links: Vec::new(),
            cuts: BTreeMap::new(),
            buried: BTreeMap::new(),
            visits: BTreeMap::new(),
            leaderless: None,
            leaderless_for: Duration::ZERO,
            deposed: None,
            held: Vec::new(),
            proposed: VecDeque::new(),
            deaths: Vec::new(),
            calls_for: Vec::new(),
            agenda: BinaryHeap::new(),
            dues: 0,
            rest: Rest::Awake,
            next_tick: None,
            calls: 0,
        }
    }

    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.start)
    }

    pub(super) fn plan(&mut self, at: Instant, event: Event) {
        self.dues += 1;
        self.agenda.push(Reverse(Due { at, number: self.dues, event }));
    }

    /// Executes all events that are due.
    pub(super) fn advance(&mut self, now: Instant) {
        self.rest = Rest::Awake;
        while let Some(Reverse(due)) = self.agenda.peek()
            && due.at <= now
        {
            let Some(Reverse(due)) = self.agenda.pop() else { return };
            self.happen(due.event, now);
        }
    }

    fn happen(&mut self, event: Event, now: Instant) {
        match event {
            Event::Arrive(request) => self.arrive(*request, now),
            Event::Commit => self.commit_next(now),
            Event::Apply(server) => self.apply(server, now),
            Event::Deliver(link, epoch, letter) => self.deliver(link, epoch, *letter, now),
            Event::Break(link, epoch) => self.break_link(link, epoch, now),
            Event::Elected => self.elected(now),
            Event::Rejoin(server) => self.rejoin(server, now),
            Event::Pinged(server) => self.pinged(server, now),
            Event::Forwarded(request) => self.ask_leader(*request, now),
            Event::Report(server) => self.report(server, now),
            Event::Synced(request) => self.synced(&request, now),
            Event::StepsDown(server) => self.step_down(server, now),
            Event::TakenForGone(link, server) => self.take_for_gone(link, server, now),
            Event::Tick => self.tick(now),
        }
    }

    /// The time at which the next event is due. Records that the store is not checked before that.
    pub(super) fn rests(&mut self) -> Option<Instant> {
        let next = self.agenda.peek().map(|Reverse(due)| due.at);
        self.rest = next.map_or(Rest::ForGood, Rest::Until);
        next
    }

    /// Returns `true` if an event is due before the planned check.
    pub(super) fn wake_if_sooner(&mut self) -> bool {
        let Some(Reverse(due)) = self.agenda.peek() else { return false };
        let sooner = match self.rest {
            Rest::Awake => false,
            Rest::Until(rest) => due.at < rest,
            Rest::ForGood => true,
        };
        if sooner {
            self.rest = Rest::Awake;
        }
        sooner
    }

    /// Moves later events forward to `by`, in order.
    pub(super) fn hurry(&mut self, by: Instant) {
        let mut all: Vec<Due> = self.agenda.drain().map(|Reverse(due)| due).collect();
        for due in &mut all {
            if !matches!(due.event, Event::Tick) {
                due.at = due.at.min(by);
            }
        }
        self.agenda.extend(all.into_iter().map(Reverse));
        for server in &mut self.servers {
            server.learner.hurry(by);
        }
    }

    /// Makes the leader act for an author. Sessions that expire at this moment are not attributed
    /// to the author.
    pub(super) fn on_behalf<T>(
        &mut self,
        by: By,
        now: Instant,
        act: impl FnOnce(&mut World) -> T,
    ) -> T {
        self.world.tick(now);
        self.record(now, By::Store);
        let done = act(&mut self.world);
        self.record(now, by);
        done
    }

    /// Records the leader's commits, and plans when the servers apply them.
    pub(super) fn record(&mut self, now: Instant, by: By) {
        for (revision, effects) in self.world.take_journal() {
            let (age, first) = (self.age(now), effects.first());
            self.trace.tell((age, 0), What::Committed, revision.get(), || {
                let all = effects.iter().map(|it| {
                    let held = it.body.as_ref().map(|body| glimpse(&body.data));
                    let kind = format!("{:?}", it.kind).to_lowercase();
                    format!("{kind} {}{}", it.path, held.unwrap_or_default())
                });
                format!("#{revision}: {}", all.collect::<Vec<_>>().join(", "))
            });
            if let Some(effect) = first {
                self.trace.stir(effect.path.as_str().len() as u64);
            }
            self.log_effects(revision, effects, by, now);
        }
    }

    /// Adds to the log. Without effects it is the collection of empty containers.
    pub(super) fn log_effects(
        &mut self,
        revision: Revision,
        effects: Vec<Effect>,
        by: By,
        now: Instant,
    ) {
        self.log.push(Logged { at: now, revision, effects, by });
        for server in 0..COUNT {
            self.follow(server, now);
        }
    }

    /// Records the sessions that have expired, and plans the next check.
    pub(super) fn tick(&mut self, now: Instant) {
        self.next_tick = None;
        if self.leaderless.is_some() {
            return;
        }
        self.world.tick(now);
        self.record(now, By::Store);
        self.note_deaths(now, true);
        self.plan_tick();
    }

    pub(super) fn plan_tick(&mut self) {
        if let Some(next) = self.world.next_end()
            && self.next_tick.is_none_or(|planned| next < planned)
        {
            self.next_tick = Some(next);
            self.plan(next, Event::Tick);
        }
    }

    /// The time of a path's creation, and the session that owns it: the creation at `created`, or
    /// else the last one.
    pub(super) fn born(
        &self,
        path: &Path,
        created: Revision,
    ) -> Option<(Revision, Option<SessionId>)> {
        let effects = self.log.iter().rev().flat_map(|logged| &logged.effects);
        let here = effects.filter(|it| it.path == *path);
        let mut bodies = here.filter_map(|it| it.body.as_ref()).map(|body| body.stat).peekable();
        let last = bodies.peek().copied();
        let stat = bodies.find(|stat| stat.created == created).or(last)?;
        Some((stat.created, stat.owner))
    }

    /// The author of the deletion of the node that was created at `created`. A delayed create may
    /// have created another node since.
    pub(super) fn removed_by(&self, path: &Path, created: Revision) -> Option<By> {
        let effects = self.log.iter().flat_map(|logged| {
            let here = logged.effects.iter().filter(|it| it.path == *path);
            here.map(|it| (it.body.as_ref().map(|body| body.stat.created), logged.by))
        });
        let mut since = effects.skip_while(|(made, _)| *made != Some(created));
        since.find(|(made, _)| made.is_none()).map(|(_, by)| by)
    }

    pub(super) fn lives(&self, session: SessionId) -> bool {
        self.world.lives(session)
    }

    /// Records the sessions that have ended, and whether each ended because it was silent.
    pub(super) fn note_deaths(&mut self, now: Instant, silent: bool) {
        for index in 0..self.links.len() {
            let link = &mut self.links[index];
            let unnoted = link.ended.is_none();
            let Some(session) = link.session.filter(|id| unnoted && !self.world.lives(*id)) else {
                continue;
            };
            link.ended = Some(self.log.len());
            let (actor, at) = (link.actor, now.saturating_duration_since(self.start));
            self.deaths.push(Death { session, actor, at, silent });
            self.calls_for.push(Alarm::Died);
            let about = || format!("session {session} is over");
            self.trace.tell((at, actor), What::Session, session.get(), about);
        }
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        let is_drawn = |effect: &&Effect| {
            let sequence = effect.body.as_ref().and_then(|body| body.sequence);
            effect.kind == Kind::Created && sequence.is_some()
        };
        let entry = |logged: &Logged| Entry {
            at: self.age(logged.at),
            changes: logged.effects.iter().map(|it| it.to_change(logged.revision)).collect(),
            drawn: logged.effects.iter().filter(is_drawn).map(|it| it.path.clone()).collect(),
            by: logged.by,
        };
        self.log.iter().map(entry).collect()
    }

    pub(super) fn census(&mut self) -> Census {
        let mut census = self.world.census();
        let lives = |link: &&Link| link.session.is_some_and(|session| self.world.lives(session));
        // Sessions of the world itself belong to no process.
        census.sessions = self.links.iter().filter(|link| link.actor > 0).filter(lives).count();
        let of_processes = self.links.iter_mut().filter(|link| link.actor > 0);
        census.watches = of_processes.map(Link::watches).sum();
        census
    }

    pub(super) fn skip_sequences(&mut self, dir: &Path, next: u64) {
        self.world.skip_sequences(dir, next);
    }

    /// The number of a server as an actor.
    pub(super) fn server_actor(server: usize) -> u64 {
        SERVERS + server as u64
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
