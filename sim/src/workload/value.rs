//! Single values that several processes change: every recipe over one node, checked by one
//! specification.
//!
//! The operations of a recipe are in its adapter, [`Handle`]; the permitted answers are in
//! [`linear`](super::linear).

use std::sync::PoisonError;
use std::time::Duration;

use crate::cluster::Site;
use futures_util::future::join;
use synod_core::error::{Effect, Error};
use synod_core::path::Path;
use synod_recipes::value::{AtomicValue, Cost, Counter, Promotion};

use crate::findings::Truth;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::left::no_mark_is_left;
use crate::workload::linear::{Act, Calls, State, Told};
use crate::workload::promotion::{Unharmed, lock, no_ticket_is_left, the_others_stand_back};
use crate::workload::{WATCHED, Workload};

/// Three processes, each with two tasks, change two values of a recipe, which are at two paths in
/// one session.
pub(super) struct Values {
    name: &'static str,
    about: &'static str,
    laws: &'static [&'static str],
    law: &'static str,
    marks: &'static [&'static str],
    recipe: Recipe,
}

/// The recipes that have one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recipe {
    Counter,
    AtomicValue,
    /// A counter whose changes are promoted, after another number of lost attempts in each process.
    Promoted,
}

const ROUNDS: u64 = 3;

/// The amounts are powers of 4, and a sum has 62 bits.
const ADDITIONS: u32 = 30;

const UNKNOWN: &str = "a change had an unknown effect";
const FAILED: &str = "a change failed for certain";
const RACED: &str = "another client was faster";
const KEPT: &str = "a swap found another value";
const RESOLVED: &str = "a lost answer was found out";
const UNDER_LOCK: &str = "a change was made under the lock";

const MARKS: &[&str] = &[DROPPED, UNKNOWN, FAILED, RACED, KEPT, RESOLVED];

pub(super) const COUNTER: Values = Values {
    name: "counter",
    about: "three processes, with two tasks each, add to two numbers, swap them and set them",
    laws: &["L-CNT-1", "L-CNT-2", "L-CNT-3", "L-CNT-6", "L-X-5"],
    law: "L-CNT-1",
    marks: MARKS,
    recipe: Recipe::Counter,
};

pub(super) const ATOMIC: Values = Values {
    name: "atomic_value",
    about: "three processes, with two tasks each, update two values, swap them and set them",
    laws: &["L-CNT-1", "L-CNT-2", "L-CNT-3", "L-CNT-6", "L-X-5"],
    law: "L-CNT-1",
    marks: MARKS,
    recipe: Recipe::AtomicValue,
};

pub(super) const PROMOTED: Values = Values {
    name: "promotion",
    about: "three processes, with two tasks each, change two numbers, and continue under a lock after lost tries",
    laws: &["L-CNT-1", "L-CNT-2", "L-CNT-3", "L-CNT-6", "L-CNT-7", "L-X-5"],
    law: "L-CNT-1",
    marks: &[DROPPED, UNKNOWN, FAILED, RACED, KEPT, RESOLVED, UNDER_LOCK],
    recipe: Recipe::Promoted,
};

impl Workload for Values {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn laws(&self) -> &'static [&'static str] {
        self.laws
    }

    fn marks(&self) -> &'static [&'static str] {
        self.marks
    }

    fn unreached(&self) -> Vec<Site> {
        if self.recipe == Recipe::Promoted {
            return vec![Site::SlowReader, Site::EventsJoined, Site::BeatsCut];
        }
        [WATCHED, &[Site::SlowReader, Site::NearTheEnd, Site::BeatsCut, Site::WallClockSet]]
            .concat()
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let (calls, recipe) = ([Calls::default(), Calls::default()], self.recipe);
        let (made, unharmed) = (calls.clone(), Unharmed::default());
        let whole = unharmed.clone();
        let first = (recipe == Recipe::AtomicValue).then_some(0);
        // Writes and removals of strangers are not part of the specification.
        let sim = sim
            .without_strangers()
            .processes(3, move |me| work(me, recipe, made.clone(), whole.clone()))
            .must_end("L-CNT-6");
        // Each value is checked by its own calls, independent of the other one.
        paths().into_iter().zip(calls).fold(sim, |sim, (path, calls)| {
            let (of, marked) = (path.clone(), path.clone());
            let sim = match recipe {
                Recipe::Counter | Recipe::Promoted => sim,
                // A swap distinguishes a missing value from 0, but the specification does not.
                Recipe::AtomicValue => sim.given(path.clone(), "0"),
            };
            let sim = sim
                .eventually("L-X-5", |me| no_mark_is_left(me, marked))
                .check(self.law, move |truth| calls.explain(first, last(recipe, &of, truth)));
            if recipe != Recipe::Promoted {
                return sim;
            }
            let (locked, unharmed) = (path.clone(), unharmed.clone());
            sim.aged(lock(&path))
                .eventually("L-X-5", |me| no_ticket_is_left(me, locked))
                .check("L-CNT-7", move |truth| the_others_stand_back(truth, &path, &unharmed))
        })
    }
}

async fn work(me: Process, recipe: Recipe, calls: [Calls; 2], unharmed: Unharmed) {
    let Ok(client) = me.impatient_client().await else { return };
    let after = u32::try_from(me.pick(3)).unwrap_or_default();
    let handle = |path: &Path| match recipe {
        Recipe::Counter => Handle::Counter(Counter::new(&client, path.clone())),
        Recipe::AtomicValue => Handle::Value(AtomicValue::new(&client, path.clone())),
        Recipe::Promoted => {
            let counter = Counter::new(&client, path.clone());
            Handle::Promoted(counter.promote(Promotion::after(after)), after)
        }
    };
    let paths = paths();
    let handles = || paths.each_ref().map(handle);
    // Changes of two tasks are written together, or each has its own recipe value in the same
    // session.
    let first = handles();
    let second = if me.pick(2) == 0 { first.clone() } else { handles() };
    let [one, two] = [first, second].map(|handles| {
        let [calls, others] = calls.clone();
        let [handle, other] = handles;
        let values =
            [Value { unit: 1, handle, calls }, Value { unit: 2, handle: other, calls: others }];
        Worker { me: me.clone(), values, unharmed: unharmed.clone() }
    });
    Box::pin(join(one.rounds(), two.rounds())).await;
}

struct Worker {
    me: Process,
    values: [Value; 2],
    unharmed: Unharmed,
}

/// One of the values, and the calls that changed it.
struct Value {
    /// The smallest amount that is added: the other value never gets such amounts.
    unit: i64,
    handle: Handle,
    calls: Calls,
}

impl Worker {
    async fn rounds(&self) {
        let [one, other] = &self.values;
        for _ in 0..self.me.rounds(ROUNDS) {
            match self.me.pick(6) {
                0 => self.changes(other).await,
                1 => drop(join(self.changes(one), self.changes(other)).await),
                _ => self.changes(one).await,
            }
            self.me.rest(self.pause()).await;
        }
    }

    async fn changes(&self, value: &Value) {
        let act = self.act(value);
        if let Some(open) = value.calls.call(self.me.number(), act) {
            let told = self.does(&value.handle, act).await;
            value.calls.returned(open, told);
        }
    }

    /// Processes that should meet under a lock pause for a short time only.
    fn pause(&self) -> Duration {
        Duration::from_millis(if matches!(self.values[0].handle, Handle::Promoted(..)) {
            20
        } else {
            150
        })
    }

    /// Usually an addition, of an amount that differs from every sum of others.
    fn act(&self, value: &Value) -> Act {
        let number = value.calls.additions();
        match self.me.pick(16) {
            0 => Act::Get,
            1 => Act::Initialize(0),
            2 => Act::Swap { from: 0, to: 0 },
            3 => Act::Set(0),
            _ if number < ADDITIONS => Act::Add(value.unit << (2 * number)),
            _ => Act::Get,
        }
    }

    async fn does(&self, handle: &Handle, act: Act) -> Told {
        let lost = || self.me.suffered(&[Site::ReplyLost]);
        let before = lost();
        let done = self.me.perhaps(handle.does(act)).await;
        if self.me.harmed() == 0 {
            let mut unharmed = self.unharmed.lock().unwrap_or_else(PoisonError::into_inner);
            unharmed.insert(self.me.number(), self.me.committed());
        }
        let Some(done) = done else { return Told::Unknown };
        let (told, cost) = match done {
            Ok(done) => done,
            Err(error) if error.effect() == Effect::None => (Told::Failed, Cost::default()),
            Err(_) => (Told::Unknown, Cost::default()),
        };
        self.me.sometimes(UNKNOWN, told == Told::Unknown);
        self.me.sometimes(FAILED, told == Told::Failed);
        self.me.sometimes(KEPT, matches!((act, told), (Act::Swap { .. }, Told::Found(_))));
        self.me.sometimes(RACED, cost.tries > 1);
        self.me.sometimes(RESOLVED, cost.tries == 1 && lost() > before);
        if let Handle::Promoted(_, after) = *handle {
            self.me.sometimes(UNDER_LOCK, cost.promoted_tries > 0);
            let without = cost.tries - cost.promoted_tries;
            // An attempt with an unknown effect is repeated without the lock, if a fault has ended
            // its session.
            if without > after && self.me.harmed() == 0 {
                self.me.wrong("L-CNT-7", || format!("{without} tries without the lock"));
            }
        }
        told
    }
}

/// A recipe, as the specification sees it.
#[derive(Clone, Debug)]
enum Handle {
    Counter(Counter),
    Value(AtomicValue<i64>),
    /// A counter, with the number of attempts without the lock.
    Promoted(Counter, u32),
}

impl Handle {
    /// Makes a call. Returns its answer and its cost.
    async fn does(&self, act: Act) -> Result<(Told, Cost), Error> {
        match self {
            Self::Counter(counter) | Self::Promoted(counter, _) => counts(counter, act).await,
            Self::Value(value) => changes(value, act).await,
        }
    }
}

async fn counts(counter: &Counter, act: Act) -> Result<(Told, Cost), Error> {
    let none = Cost::default();
    Ok(match act {
        Act::Get => (Told::Found(counter.get().await?), none),
        Act::Add(amount) => {
            let update = counter.add(amount).await?;
            (Told::Changed(update.before, update.after), update.cost)
        }
        Act::Set(number) => (Told::Done(true), counter.set(number).await?),
        Act::Swap { from, to } => match counter.compare_and_set(from, to).await? {
            Ok(update) => (Told::Done(true), update.cost),
            Err(found) => (Told::Found(found), none),
        },
        Act::Initialize(number) => (Told::Done(counter.initialize(number).await?), none),
    })
}

async fn changes(value: &AtomicValue<i64>, act: Act) -> Result<(Told, Cost), Error> {
    let none = Cost::default();
    Ok(match act {
        Act::Get => (Told::Found(value.get().await?.unwrap_or(0)), none),
        Act::Add(amount) => {
            let update = value.update(move |before| before.unwrap_or(0) + amount).await?;
            (Told::Changed(update.before.unwrap_or(0), update.after), update.cost)
        }
        Act::Set(number) => (Told::Done(true), value.set(&number).await?),
        Act::Swap { from, to } => {
            let first = value.compare_and_set(Some(from), &to).await?;
            match first {
                Ok(cost) => (Told::Done(true), cost),
                Err(found) => (Told::Found(found.unwrap_or(0)), none),
            }
        }
        Act::Initialize(number) => (Told::Done(value.initialize(&number).await?), none),
    })
}

/// The value that the store has at the end.
fn last(recipe: Recipe, path: &Path, truth: &Truth) -> State {
    let changes = truth.log.iter().flat_map(|entry| &entry.changes);
    let last = changes.filter(|change| change.path == *path).last()?;
    let data = &last.node.as_ref()?.data;
    let read = match recipe {
        Recipe::Counter | Recipe::Promoted => data[..].try_into().ok().map(i64::from_be_bytes),
        Recipe::AtomicValue => std::str::from_utf8(data).ok().and_then(|text| text.parse().ok()),
    };
    // Smaller than every sum of amounts.
    read.or(Some(i64::MIN))
}

fn paths() -> [Path; 2] {
    ["/value", "/other"].map(|path| Path::new(path).expect("it is one"))
}
