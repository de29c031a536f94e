//! Single values that several processes change: every recipe over one node, by one specification.
//!
//! What a recipe does with a value is in its adapter, [`Handle`]; what may be answered, in [`linear`](super::linear).

use std::time::Duration;

use futures_util::future::join;
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::{Effect, Error};
use synod_core::path::Path;
use synod_core::store::Query;
use synod_mem::cluster::Site;
use synod_recipes::{AtomicValue, Counter};

use crate::findings::Truth;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::linear::{Act, Calls, State, Told};
use crate::workload::{WATCHED, Workload};

/// Three processes, each with two tasks, change one value of a recipe.
pub(super) struct Values {
    name: &'static str,
    about: &'static str,
    laws: &'static [&'static str],
    law: &'static str,
    recipe: Recipe,
}

/// The recipes that have one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recipe {
    Counter,
    AtomicValue,
}

const ROUNDS: u64 = 3;

/// The amounts are powers of 4, and a sum has 62 bits.
const ADDITIONS: u32 = 30;

const UNKNOWN: &str = "a change had an unknown effect";
const FAILED: &str = "a change failed for certain";
const RACED: &str = "another client was faster";
const KEPT: &str = "a swap found another value";
const RESOLVED: &str = "a lost answer was found out";

pub(super) const COUNTER: Values = Values {
    name: "counter",
    about: "three processes, with two tasks each, add to one number, swap it and set it",
    laws: &["L-CNT-1", "L-CNT-2", "L-CNT-3", "L-CNT-6", "L-X-5"],
    law: "L-CNT-1",
    recipe: Recipe::Counter,
};

pub(super) const ATOMIC: Values = Values {
    name: "atomic_value",
    about: "three processes, with two tasks each, update one value, swap it and set it",
    laws: &["L-CNT-1", "L-CNT-2", "L-CNT-3", "L-CNT-6", "L-X-5"],
    law: "L-CNT-1",
    recipe: Recipe::AtomicValue,
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
        &[DROPPED, UNKNOWN, FAILED, RACED, KEPT, RESOLVED]
    }

    fn unreached(&self) -> Vec<Site> {
        [WATCHED, &[Site::SlowReader, Site::NearTheEnd, Site::BeatsCut, Site::WallClockSet]]
            .concat()
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let (calls, recipe) = (Calls::default(), self.recipe);
        let made = calls.clone();
        let sim = match recipe {
            Recipe::Counter => sim,
            // A swap tells a missing value from 0, and the specification does not.
            Recipe::AtomicValue => sim.given(path(), "0"),
        };
        let first = (recipe == Recipe::AtomicValue).then_some(0);
        // What strangers write or remove is no part of the specification.
        sim.without_strangers()
            .processes(3, move |me| work(me, recipe, made.clone()))
            .must_end("L-CNT-6")
            .eventually("L-X-5", |me| no_mark_is_left(me, path()))
            .check(self.law, move |truth| calls.explain(first, last(recipe, truth)))
    }
}

async fn work(me: Process, recipe: Recipe, calls: Calls) {
    let Ok(client) = me.impatient_client().await else { return };
    let worker = Worker { me, handle: Handle::new(recipe, &client), calls };
    // Changes of two tasks are written together.
    Box::pin(join(worker.rounds(), worker.rounds())).await;
}

struct Worker {
    me: Process,
    handle: Handle,
    calls: Calls,
}

impl Worker {
    async fn rounds(&self) {
        for _ in 0..self.me.rounds(ROUNDS) {
            let act = self.act();
            if let Some(open) = self.calls.call(self.me.number(), act) {
                let told = self.does(act).await;
                self.calls.returned(open, told);
            }
            self.me.rest(Duration::from_millis(150)).await;
        }
    }

    /// Mostly an addition, of an amount that no sum of others has.
    fn act(&self) -> Act {
        let number = self.calls.additions();
        match self.me.pick(16) {
            0 => Act::Get,
            1 => Act::Initialize(0),
            2 => Act::Swap { from: 0, to: 0 },
            3 => Act::Set(0),
            _ if number < ADDITIONS => Act::Add(1 << (2 * number)),
            _ => Act::Get,
        }
    }

    async fn does(&self, act: Act) -> Told {
        let lost = || self.me.suffered(&[Site::ReplyLost]);
        let before = lost();
        let Some(done) = self.me.perhaps(self.handle.does(act)).await else { return Told::Unknown };
        let (told, tries) = match done {
            Ok(done) => done,
            Err(error) if error.effect() == Effect::None => (Told::Failed, 0),
            Err(_) => (Told::Unknown, 0),
        };
        self.me.sometimes(UNKNOWN, told == Told::Unknown);
        self.me.sometimes(FAILED, told == Told::Failed);
        self.me.sometimes(KEPT, matches!((act, told), (Act::Swap { .. }, Told::Found(_))));
        self.me.sometimes(RACED, tries > 1);
        self.me.sometimes(RESOLVED, tries == 1 && lost() > before);
        told
    }
}

/// A recipe, as the specification sees it.
#[derive(Debug)]
enum Handle {
    Counter(Counter),
    Value(AtomicValue<i64>),
}

impl Handle {
    fn new(recipe: Recipe, client: &Client) -> Self {
        match recipe {
            Recipe::Counter => Self::Counter(Counter::new(client, path())),
            Recipe::AtomicValue => Self::Value(AtomicValue::new(client, path())),
        }
    }

    /// What a call returned, and how many writes it tried.
    async fn does(&self, act: Act) -> Result<(Told, u32), Error> {
        match self {
            Self::Counter(counter) => counts(counter, act).await,
            Self::Value(value) => changes(value, act).await,
        }
    }
}

async fn counts(counter: &Counter, act: Act) -> Result<(Told, u32), Error> {
    Ok(match act {
        Act::Get => (Told::Found(counter.get().await?), 0),
        Act::Add(amount) => {
            let update = counter.add(amount).await?;
            (Told::Changed(update.before, update.after), update.cost.tries)
        }
        Act::Set(number) => (Told::Done(true), counter.set(number).await?.tries),
        Act::Swap { from, to } => match counter.compare_and_set(from, to).await? {
            Ok(update) => (Told::Done(true), update.cost.tries),
            Err(found) => (Told::Found(found), 0),
        },
        Act::Initialize(number) => (Told::Done(counter.initialize(number).await?), 0),
    })
}

async fn changes(value: &AtomicValue<i64>, act: Act) -> Result<(Told, u32), Error> {
    Ok(match act {
        Act::Get => (Told::Found(value.get().await?.unwrap_or(0)), 0),
        Act::Add(amount) => {
            let update = value.update(move |before| before.unwrap_or(0) + amount).await?;
            (Told::Changed(update.before.unwrap_or(0), update.after), update.cost.tries)
        }
        Act::Set(number) => (Told::Done(true), value.set(&number).await?.tries),
        Act::Swap { from, to } => {
            let first = value.compare_and_set(Some(from), &to).await?;
            match first {
                Ok(cost) => (Told::Done(true), cost.tries),
                Err(found) => (Told::Found(found.unwrap_or(0)), 0),
            }
        }
        Act::Initialize(number) => (Told::Done(value.initialize(&number).await?), 0),
    })
}

/// The value that the store has in the end.
fn last(recipe: Recipe, truth: &Truth) -> State {
    let changes = truth.log.iter().flat_map(|entry| &entry.changes);
    let last = changes.filter(|change| change.path == path()).last()?;
    let data = &last.node.as_ref()?.data;
    let read = match recipe {
        Recipe::Counter => data[..].try_into().ok().map(i64::from_be_bytes),
        Recipe::AtomicValue => std::str::from_utf8(data).ok().and_then(|text| text.parse().ok()),
    };
    // No sum of amounts is as small.
    read.or(Some(i64::MIN))
}

/// The marks of all writers are gone with their sessions.
pub(super) async fn no_mark_is_left(me: Process, value: Path) -> Result<(), String> {
    let marks = Query::children(value).names_only();
    let mut left = None;
    for _ in 0..100 {
        // A part of the servers may be out of reach for ever.
        if let Ok(client) = me.client().await
            && let Ok(view) = client.read(marks.clone()).await
        {
            left = Some(view.nodes).filter(|nodes| !nodes.is_empty());
            if left.is_none() {
                break;
            }
        }
        clock::sleep(me.ttl() / 4).await;
    }
    left.map_or(Ok(()), |left| Err(format!("{left:?} are left")))
}

fn path() -> Path {
    Path::new("/value").expect("it is one")
}
