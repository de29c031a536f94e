//! Every known mistake is found by the cases that say so.
//!
//! Each case runs on memory with each of the mistakes that it names, and must fail. And on memory
//! behind the same wrapper without a mistake it must pass, so that it is the mistake that it finds.
//!
//! Prints a table: the mistake, the case, and what that says. Arguments that are no options choose
//! mistakes by their names.

#![expect(clippy::print_stdout, reason = "its output is a table for people")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use synod_conformance::harness::{Ability, Harness, Link, Profile};
use synod_conformance::run::{Suite, Verdict};
use synod_conformance::wrong::{Mistake, Wrong};
use synod_conformance::{Case, cases};
use synod_core::path::Path;
use synod_core::store::{Backend, Change, Event, Query, SessionId, SessionOptions, Store, Watch};
use synod_mem::{MemBackend, Weather};

/// Memory, behind a wrapper that makes at most one mistake.
#[derive(Debug)]
struct Mistaken {
    memory: MemBackend,
    wrong: Wrong,
    witness: Witness,
}

/// Somebody who is told by memory itself of all that happens.
#[derive(Debug)]
struct Witness {
    _session: Box<dyn Store>,
    told: Mutex<(Watch, Vec<Change>)>,
}

impl Mistaken {
    fn new(mistake: Option<Mistake>) -> Self {
        let memory = MemBackend::new();
        let inner = Arc::new(memory.clone());
        let wrong = match mistake {
            Some(mistake) => Wrong::new(inner, mistake),
            None => Wrong::transparent(inner),
        };
        let witness = Witness::of(&memory).now_or_never().expect("memory answers at once");
        Self { memory, wrong, witness }
    }
}

impl Witness {
    async fn of(memory: &MemBackend) -> Self {
        let session = memory.open(&SessionOptions::default()).await.expect("memory opens");
        let all = Query::subtree(Path::root()).names_only();
        let (_view, watch) = session.observe(all).await.expect("memory is observed");
        Self { _session: session, told: Mutex::new((watch, Vec::new())) }
    }
}

#[async_trait]
impl Harness for Mistaken {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(self.wrong.clone())
    }

    fn profile(&self) -> Profile {
        Profile::new(Duration::from_secs(10), Duration::from_secs(60)).offers(&[
            Ability::Expiry,
            Ability::TtlNodes,
            Ability::Links,
            Ability::WatchCount,
            Ability::Truth,
        ])
    }

    async fn expire(&self, session: SessionId) {
        self.memory.expire(session);
    }

    async fn link(&self, session: SessionId, link: Link) {
        self.memory.set_weather(
            session,
            match link {
                Link::Cut => Weather::CUT,
                Link::Deaf => Weather::DEAF,
                Link::Slow { there, back } => Weather { there: Some(there), back: Some(back) },
                _ => Weather::CLEAR,
            },
        );
    }

    async fn watches(&self) -> usize {
        // That of the witness is not counted.
        self.memory.census().watches - 1
    }

    async fn truth(&self) -> Vec<Change> {
        let mut told = self.witness.told.lock().expect("nobody panics with it");
        let (watch, changes) = &mut *told;
        changes.extend(std::iter::from_fn(|| watch.try_next()).filter_map(|event| match event {
            Event::Changed(change) => Some(change),
            Event::Resync | Event::Ended(_) => None,
        }));
        changes.clone()
    }
}

/// What became of a case with a mistake, or without any.
fn verdict(case: &Case, mistake: Option<Mistake>) -> Verdict {
    Suite::new(move || Mistaken::new(mistake)).on_paused_time().seeded(SEED).run(case)
}

/// So that whoever runs it twice sees the same.
const SEED: u64 = 1;

/// The cases that a mistake must not get past.
fn catchers() -> BTreeMap<Mistake, Vec<&'static Case>> {
    let mut catchers: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for case in cases() {
        for mistake in case.catches() {
            catchers.entry(*mistake).or_default().push(case);
        }
    }
    catchers
}

/// Tries the cases without a mistake. Returns what is wrong with them.
fn try_without_mistake() -> Vec<String> {
    let failing = cases().filter_map(|case| match verdict(case, None) {
        Verdict::Passed => None,
        Verdict::Failed { why } => Some(format!("{} fails without a mistake: {why}", case.name())),
        Verdict::Skipped { why } => Some(format!("{} cannot run: {why}", case.name())),
    });
    failing.collect()
}

/// Tries one mistake on the cases that look for it. Returns what gets past them.
fn try_mistake(mistake: Mistake, cases: &[&'static Case]) -> Vec<String> {
    let mut holes = Vec::new();
    for case in cases {
        let said = match verdict(case, Some(mistake)) {
            Verdict::Failed { why } => brief(&why),
            Verdict::Passed | Verdict::Skipped { .. } => {
                holes.push(format!("{mistake} gets past {}: {}", case.name(), mistake.what()));
                "NOTHING".to_owned()
            }
        };
        println!("{mistake:<30} | {} | {said}", case.name());
    }
    if cases.is_empty() {
        holes.push(format!("{mistake} is looked for by no case: {}", mistake.what()));
    }
    holes
}

/// What a failure says, on one line that is not too long.
fn brief(why: &str) -> String {
    const LENGTH: usize = 120;
    let mut words = why.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = words.char_indices().nth(LENGTH) {
        words.truncate(end);
        words.push_str("...");
    }
    words
}

fn main() -> ExitCode {
    let names: Vec<_> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    let chosen = |mistake: &&Mistake| names.is_empty() || names.contains(&mistake.to_string());
    let catchers = catchers();

    let mut holes = if names.is_empty() { try_without_mistake() } else { Vec::new() };
    let mut tried = 0;
    for mistake in Mistake::ALL.iter().filter(chosen) {
        let cases = catchers.get(mistake).map(Vec::as_slice).unwrap_or_default();
        holes.extend(try_mistake(*mistake, cases));
        tried += 1;
    }
    for hole in &holes {
        println!("hole: {hole}");
    }
    println!("{tried} mistakes tried, {} holes", holes.len());
    if holes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
