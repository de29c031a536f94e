//! Small random programs of several sessions, recorded and checked.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::{join, join_all};
use synod_core::error::{Effect, Error};
use synod_core::path::Path;
use synod_core::store::{
    Event, Expect, Kind, Lifetime, Outcome, Query, Revision, Txn, Version, View,
};

use crate::actor::{Actor, Watcher, text};
use crate::world::World;
use synod_testkit::check::{order, registers};
use synod_testkit::history::{Action, Answer, Recorder, Value};

cases![
    "L-KV-1 L-KV-2 L-KV-5 L-KV-7" catches [CasInTwoSteps LatestLags] => registers_are_linearizable,
    "L-KV-3 L-KV-4" catches [LocalGoesBack] => no_session_of_many_goes_back,
    "L-WAT-3 L-WAT-4 L-WAT-8" catches [EventsOutOfOrder EventTwice] => the_events_of_a_watcher_are_what_happened,
    "L-WAT-6 L-WAT-1" catches [EventDropped] => a_mirror_that_follows_the_events_is_equal_in_the_end,
    "L-SEQ-1 L-SEQ-2 L-SEQ-3" catches [SequenceBeforeCommit] => tickets_of_many_sessions_are_in_one_order,
];

const REGISTERS: usize = 3;
const CALLS: usize = 40;

fn register(world: &World, number: usize) -> Path {
    world.at(&format!("r/{number}"))
}

async fn registers_are_linearizable(world: World) {
    let actors = join_all((0..3).map(|_| world.ann())).await;
    let recorder = Recorder::default();
    let clients = actors.iter().enumerate().map(|(number, actor)| {
        let recorder = recorder.clone();
        Client { world: &world, actor, number, recorder, seen: BTreeMap::new() }.run()
    });
    join_all(clients).await;

    let history = recorder.history();
    let happened = history.calls().iter().filter(|call| matches!(call.answer, Answer::Done { .. }));
    assert!(happened.count() >= REGISTERS, "the program did next to nothing");
    if let Err(violation) = order::check(&history) {
        panic!("{violation}");
    }
    match registers::check(&history, 2_000_000) {
        registers::Verdict::Illegal { register, stuck } => {
            panic!("no order explains register {register}; the longest ends before\n  {stuck}")
        }
        registers::Verdict::Unknown { register } => {
            panic!("no verdict on register {register}: too many calls for the search")
        }
        registers::Verdict::Legal => {}
    }
}

/// A client of registers: the last value that it saw in each.
struct Client<'a> {
    world: &'a World,
    actor: &'a Actor,
    number: usize,
    recorder: Recorder,
    seen: BTreeMap<usize, (Value, Version)>,
}

impl Client<'_> {
    /// Makes this number of random calls.
    async fn run(mut self) {
        for call in 0..CALLS {
            let at = usize::try_from(self.world.random.below(REGISTERS as u64)).unwrap_or(0);
            let value = 1 + (call * 16 + self.number) as u64;
            match (self.world.random.below(10), self.seen.get(&at).copied()) {
                (0..4, _) => self.read(at).await,
                (4..6, _) => self.create(at, value).await,
                (_, Some((from, version))) => self.swap(at, (from, version), value).await,
                (_, None) => self.read(at).await,
            }
            self.world.think().await;
        }
    }

    async fn read(&mut self, at: usize) {
        let pending = self.recorder.call(self.number, at, Action::Read);
        let view = self.actor.ask(Query::node(register(self.world, at))).await;
        let answer = match view.map(View::into_node) {
            Ok(Some(node)) => {
                let stat = node.stat.expect("a node that is read with its data has a stat");
                let value = text(&node).parse().expect("numbers were written");
                self.seen.insert(at, (value, stat.version));
                Answer::Found { value: Some(value), revision: Some(stat.modified.get()) }
            }
            Ok(None) => Answer::Found { value: None, revision: None },
            Err(_) => Answer::Failed,
        };
        pending.returned(answer);
    }

    async fn create(&mut self, at: usize, value: Value) {
        let action = Action::Swap { from: None, to: Some(value) };
        let path = register(self.world, at);
        let txn = Txn::new().create(path, value.to_string(), Lifetime::Persistent);
        self.write(at, action, txn).await;
    }

    async fn swap(&mut self, at: usize, (from, version): (Value, Version), value: Value) {
        let action = Action::Swap { from: Some(from), to: Some(value) };
        // Registers are never deleted: versions may repeat in the next incarnation.
        let path = register(self.world, at);
        let txn = Txn::new().set(path, value.to_string(), Expect::Version(version));
        self.write(at, action, txn).await;
    }

    async fn write(&mut self, at: usize, action: Action, txn: Txn) {
        let pending = self.recorder.call(self.number, at, action);
        let answer = match self.actor.attempt(txn).await {
            Ok(Outcome::Committed(commit)) => {
                let stat = commit.results.first().and_then(|done| done.stat);
                if let (Some(stat), Action::Swap { to: Some(to), .. }) = (stat, action) {
                    self.seen.insert(at, (to, stat.version));
                }
                let revision = stat.map(|stat| stat.modified).or(commit.revision);
                Answer::Done { revision: revision.map(Revision::get) }
            }
            Ok(Outcome::Rejected(_)) => {
                self.seen.remove(&at);
                Answer::Refused
            }
            Err(error) => of(&error),
        };
        pending.returned(answer);
    }
}

fn of(error: &Error) -> Answer {
    match error.effect() {
        Effect::None => Answer::Failed,
        Effect::Unknown => Answer::Unknown,
    }
}

async fn no_session_of_many_goes_back(world: World) {
    let actors = join_all((0..3).map(|_| world.ann())).await;
    let node = world.at("n");
    actors[0].create(&node, "0").await;
    let programs = actors.iter().map(|actor| async {
        let mut latest =
            actor.get(&node).await.and_then(|node| node.stat).map(|stat| stat.modified);
        for _ in 0..CALLS {
            let now = match world.random.below(4) {
                0 => Some(actor.set(&node, "x").await.modified),
                1 => modified(&actor.read(Query::node(&node)).await),
                _ => modified(&actor.read(Query::node(&node).local()).await),
            };
            assert!(now >= latest, "{now:?} after {latest:?} in one session");
            latest = now;
            world.think().await;
        }
    });
    join_all(programs).await;
}

fn modified(view: &View) -> Option<Revision> {
    view.node().and_then(|node| node.stat).map(|stat| stat.modified)
}

/// A few nodes that are created, written and deleted at random. Returns every write that happened,
/// with its revision.
async fn churn(world: &World, actor: &Actor, dir: &Path) -> Vec<(Path, Kind, Revision)> {
    let mut writes = Vec::new();
    for _ in 0..CALLS {
        let path = dir.join(&format!("n{}", world.random.below(4))).expect("valid");
        let (kind, txn) = match world.random.below(3) {
            0 => (Kind::Created, Txn::new().create(&path, "x", Lifetime::Persistent)),
            1 => (Kind::Updated, Txn::new().set(&path, "y", Expect::Any)),
            _ => (Kind::Deleted, Txn::new().delete(&path, Expect::Any)),
        };
        let outcome = actor.attempt(txn).await.expect("the store answers");
        if let Some(commit) = outcome.ok() {
            let stat = commit.results[0].stat.map(|stat| stat.modified);
            writes.extend(commit.revision.or(stat).map(|revision| (path, kind, revision)));
        }
        world.think().await;
    }
    writes
}

async fn the_events_of_a_watcher_are_what_happened(world: World) {
    let (ann, bob, eve) = (world.ann().await, world.bob().await, world.ann().await);
    let (dir, last) = (world.at("d"), world.at("d/last"));
    let (_view, mut watcher) = eve.watch(Query::children(&dir)).await;

    let churned = join_all([churn(&world, &ann, &dir), churn(&world, &bob, &dir)]).await;
    ann.create(&last, "").await;

    let happened: Vec<_> = churned.into_iter().flatten().collect();
    let mut latest = BTreeMap::new();
    for event in watcher.up_to(&last).await {
        let Event::Changed(change) = event else { break };
        let Some(revision) = change.revision else { continue };
        if change.path == last || change.kind == Kind::Children {
            continue;
        }
        let before = latest.insert(change.path.clone(), revision);
        assert!(before < Some(revision), "{change:?} was reported after {before:?}");
        let known = happened.iter().any(|(path, kind, at)| {
            *path == change.path && *kind == change.kind && *at == revision
        });
        // A store need not report the revisions of deletions.
        assert!(known || change.kind == Kind::Deleted, "{change:?} never happened");
    }
}

/// A copy of the names in a directory, kept equal by the events alone.
struct Mirror<'a> {
    actor: &'a Actor,
    dir: &'a Path,
    watcher: Watcher,
    copy: BTreeSet<Path>,
}

impl Mirror<'_> {
    async fn read(&self) -> BTreeSet<Path> {
        let nodes = self.actor.children(self.dir).await;
        nodes.into_iter().map(|node| node.path).collect()
    }

    async fn follow(&mut self, event: Event) {
        match event {
            Event::Changed(change) if change.kind == Kind::Deleted => {
                self.copy.remove(&change.path);
            }
            Event::Changed(change) if change.kind != Kind::Children => {
                self.copy.insert(change.path);
            }
            Event::Changed(_) | Event::Resync => self.copy = self.read().await,
            Event::Ended(end) => panic!("the session lives: {end:?}"),
        }
    }
}

async fn a_mirror_that_follows_the_events_is_equal_in_the_end(world: World) {
    let (ann, bob, eve) = (world.ann().await, world.bob().await, world.ann().await);
    let (dir, last) = (world.at("d"), world.at("d/last"));
    let (_view, watcher) = eve.watch(Query::children(&dir)).await;
    let mut mirror = Mirror { actor: &eve, dir: &dir, watcher, copy: BTreeSet::new() };

    let churning = async {
        join_all([churn(&world, &ann, &dir), churn(&world, &bob, &dir)]).await;
        ann.create(&last, "").await;
    };
    let mirroring = async {
        while !mirror.copy.contains(&last) {
            let event = mirror.watcher.next("what the copy lacks").await;
            mirror.follow(event).await;
        }
    };
    join(churning, mirroring).await;

    // Events for other paths may arrive later than the event for the last one.
    let equal = async || {
        while let Some(event) = mirror.watcher.watch.try_next() {
            mirror.follow(event).await;
        }
        mirror.read().await == mirror.copy
    };
    world.eventually("the copy is equal to what it copies", equal).await;
}

async fn tickets_of_many_sessions_are_in_one_order(world: World) {
    let actors = join_all((0..3).map(|_| world.ann())).await;
    let dir = world.at("d");
    let anchor = actors[0].draw(&world.at("d/anchor-"), Lifetime::Persistent).await;
    let programs = actors.iter().map(|actor| async {
        let mut drawn = Vec::new();
        for round in 0..20 {
            let ticket = dir.join(&format!("{}-{round}-", actor.id())).expect("valid");
            let done = actor.draw(&ticket, Lifetime::Session).await;
            let stat = done.stat.expect("a single create returns the stat");
            drawn.push((stat.created, done.sequence, done.path));
            world.think().await;
            if world.random.below(2) == 0 {
                let (_, _, path) = &drawn[drawn.len() - 1];
                actor.delete(path).await;
            }
        }
        drawn
    });

    let mut drawn: Vec<_> = join_all(programs).await.into_iter().flatten().collect();

    drawn.sort();
    let sequences: Vec<_> = drawn.iter().map(|(_, sequence, _)| *sequence).collect();
    assert!(sequences.is_sorted_by(|a, b| a < b), "in the order of creation: {sequences:?}");
    assert!(sequences.first() > Some(&anchor.sequence));
    let paths: BTreeSet<_> = drawn.iter().map(|(_, _, path)| path).collect();
    assert_eq!(paths.len(), drawn.len(), "every ticket has a name of its own");
}
