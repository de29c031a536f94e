//! [`State`]: all of a simulated store, and what is to happen to it when.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use synod_core::clock::Instant;
use synod_core::path::Path;
use synod_core::store::{Kind, Revision, SessionId};

use crate::Census;
use crate::apply::Effect;
use crate::cluster::answer::Letter;
use crate::cluster::dice::{Dice, SERVERS};
use crate::cluster::flaw::Flaw;
use crate::cluster::link::{Link, LinkId, Request};
use crate::cluster::personality::Personality;
use crate::cluster::server::Server;
use crate::cluster::trace::{Trace, What};
use crate::cluster::words::glimpse;
use crate::cluster::{Alarm, By, ClusterOptions, Death, Entry};
use crate::world::World;

/// How many servers there are.
pub(super) const COUNT: usize = 3;

#[derive(Debug)]
pub(super) struct State {
    pub(super) personality: Personality,
    pub(super) dice: Dice,
    pub(super) trace: Trace,
    /// The time to live by which the length of what goes wrong is measured.
    pub(super) ttl: Duration,
    pub(super) flaw: Option<Flaw>,
    start: Instant,
    /// What the leader has committed.
    pub(super) world: World,
    pub(super) log: Vec<Logged>,
    pub(super) servers: [Server; COUNT],
    pub(super) links: Vec<Link>,
    /// What is between a process and the servers, by process.
    pub(super) cuts: BTreeMap<u64, Cuts>,
    /// Processes that are no more, each with how many links it had then.
    pub(super) buried: BTreeMap<u64, usize>,
    /// There is no leader until then.
    pub(super) leaderless: Option<Instant>,
    /// How long there was to be none, the last time.
    pub(super) leaderless_for: Duration,
    /// The leader that was deposed and has not noticed it.
    pub(super) deposed: Option<usize>,
    /// What waits for a leader.
    pub(super) held: Vec<Request>,
    /// What the leader has and has not committed.
    pub(super) proposed: VecDeque<Request>,
    pub(super) deaths: Vec<Death>,
    pub(super) calls_for: Vec<Alarm>,
    agenda: BinaryHeap<Reverse<Due>>,
    dues: u64,
    /// Whoever lets this live has gone to rest.
    rest: Rest,
    /// When the next look at what time has ended is planned.
    next_tick: Option<Instant>,
    pub(super) calls: u64,
}

/// Whether whoever lets a store live looks at it now.
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

/// Until when what a process says to each server, and what it hears of it, is held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cuts {
    pub(super) there: [Option<Instant>; COUNT],
    pub(super) back: [Option<Instant>; COUNT],
    /// Until when its heartbeats are lost.
    pub(super) beats: Option<Instant>,
}

/// Something that is to happen.
#[derive(Debug)]
struct Due {
    at: Instant,
    /// In the order in which they were planned, if at the same time.
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
    /// A server that was cut off from its leader reaches it again.
    Rejoin(usize),
    /// A ping of the leader arrives at a server.
    Pinged(usize),
    /// A request reaches the leader behind a report of the server that forwards it.
    Forwarded(Box<Request>),
    /// The leader learns of which sessions a server heard.
    Report(usize),
    /// The answer to a heartbeat is back at the server that forwarded it.
    Synced(Box<Request>),
    /// A deposed leader notices that it is none.
    StepsDown(usize),
    /// A server takes a client for gone that it has not heard for so long.
    TakenForGone(LinkId, usize),
    Tick,
}

impl State {
    pub(super) fn new(options: ClusterOptions, now: Instant) -> Self {
        let rates = options.personality.rates(options.rates);
        let habits = options.personality.habits();
        Self {
            personality: options.personality,
            dice: Dice::new(options.choice, rates),
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

    /// Lets everything happen that is due.
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

    /// When there is something to do again. Remembers that nobody looks before that.
    pub(super) fn rests(&mut self) -> Option<Instant> {
        let next = self.agenda.peek().map(|Reverse(due)| due.at);
        self.rest = next.map_or(Rest::ForGood, Rest::Until);
        next
    }

    /// Whether there is something to do before anybody looks.
    pub(super) fn is_sooner(&mut self) -> bool {
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

    /// Brings what is far away near, in its order.
    pub(super) fn hurry(&mut self, by: Instant) {
        let mut all: Vec<Due> = self.agenda.drain().map(|Reverse(due)| due).collect();
        for due in &mut all {
            if !matches!(due.event, Event::Tick) {
                due.at = due.at.min(by);
            }
        }
        self.agenda.extend(all.into_iter().map(Reverse));
    }

    /// Has the leader do something for somebody. What ends by itself just now is not that one's doing.
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

    /// Takes over what the leader did, and plans when the servers follow.
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

    /// Adds to the log. Without effects it is the empty containers that go.
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

    /// Notes that sessions have ended, and when one will end by itself.
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

    /// When a path was last created, and whose it is.
    pub(super) fn born(&self, path: &Path) -> Option<(Revision, Option<SessionId>)> {
        let effects = self.log.iter().rev().flat_map(|logged| &logged.effects);
        let body = effects.filter(|it| it.path == *path).find_map(|it| it.body.as_ref())?;
        Some((body.stat.created, body.stat.owner))
    }

    /// Who removed the node of this path that was created then. A late create may have made another one since.
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

    /// Notes which sessions are over, and whether that was because nothing was heard of them.
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
        let (nodes, ..) = self.world.counts();
        let lives = |link: &&Link| link.session.is_some_and(|session| self.world.lives(session));
        // Those of the world itself are nobody's.
        let sessions = self.links.iter().filter(|link| link.actor > 0).filter(lives).count();
        let of_processes = self.links.iter_mut().filter(|link| link.actor > 0);
        let watches = of_processes.map(Link::watches).sum();
        Census { nodes, sessions, watches }
    }

    pub(super) fn skip_sequences(&mut self, dir: &Path, next: u64) {
        self.world.skip_sequences(dir, next);
    }

    /// The actor that a server is in the trace and to the dice.
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
