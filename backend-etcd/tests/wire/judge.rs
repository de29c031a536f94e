//! [`Judge`]: compares the results and events of clients with the cluster's history.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use synod_core::error::{Effect, Result};
use synod_core::path::Path;
use synod_core::store::{Change, Freshness, Kind, Outcome, Query, Scope, Status, View};
use tokio::sync::watch;

use crate::peer::keys::Commit;
use crate::peer::message::{Event, RangeRequest};
use crate::peer::shared::Shared;
use crate::world::key;

/// The results and events so far, and the breaches found in them.
#[derive(Clone, Debug)]
pub(crate) struct Judge {
    shared: Arc<Shared>,
    book: Arc<Mutex<Book>>,
}

#[derive(Debug, Default)]
struct Book {
    writes: Vec<Write>,
    heard: Vec<Heard>,
    sessions: BTreeMap<i64, watch::Receiver<Status>>,
    breaches: Vec<String>,
    counts: BTreeMap<&'static str, usize>,
}

/// A write of a value that no other write has.
#[derive(Debug)]
struct Write {
    value: String,
    /// The revision of its commit, if it was applied; otherwise whether it may have been.
    ended: std::result::Result<Option<u64>, Effect>,
}

/// The events of one watch.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) query: Query,
    /// The revision of the view before it.
    pub(crate) from: u64,
    pub(crate) changes: Vec<Change>,
    /// The last resync may have skipped changes up to this revision.
    pub(crate) missed: u64,
    /// The node ended with its session, or was dropped.
    pub(crate) over: bool,
    /// Events up to this revision had enough time to arrive.
    pub(crate) until: u64,
}

impl Judge {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let judge = Self { shared, book: Arc::default() };
        let ending = judge.book.clone();
        let ended = move |lease: i64| {
            let mut book = lock(&ending);
            let certain =
                book.sessions.get(&lease).is_some_and(|status| status.borrow().is_certain());
            if certain {
                book.breaches.push(format!("session {lease:x} was certain of a lease that ended"));
            }
        };
        let mut hook = judge.shared.ended.lock().unwrap_or_else(PoisonError::into_inner);
        *hook = Some(Box::new(ended));
        drop(hook);
        judge
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }

    pub(crate) fn session(&self, lease: i64, status: watch::Receiver<Status>) {
        self.book().sessions.insert(lease, status);
    }

    pub(crate) fn breach(&self, what: impl Display) {
        self.book().breaches.push(what.to_string());
    }

    /// Records that something happened which a sweep over many seeds must see.
    pub(crate) fn saw(&self, what: &'static str) {
        *self.book().counts.entry(what).or_default() += 1;
    }

    pub(crate) fn counts(&self) -> BTreeMap<&'static str, usize> {
        self.book().counts.clone()
    }

    pub(crate) fn wrote(&self, value: &str, outcome: &Result<Outcome>) {
        let (what, ended) = match outcome {
            Ok(Outcome::Committed(commit)) => {
                ("a write that was done", Ok(commit.revision.map(synod_core::store::Revision::get)))
            }
            Ok(Outcome::Rejected(_)) => ("a write that was rejected", Err(Effect::None)),
            Err(error) if error.effect() == Effect::None => {
                ("a write that failed for certain", Err(Effect::None))
            }
            Err(_) => ("a write in doubt", Err(Effect::Unknown)),
        };
        self.saw(what);
        self.book().writes.push(Write { value: value.to_owned(), ended });
    }

    pub(crate) fn heard(&self, heard: Heard) {
        self.book().heard.push(heard);
    }

    /// Checks that a view is exactly the state of the cluster at its revision, and not older than
    /// permitted.
    pub(crate) fn read(&self, query: &Query, view: &View, floor: u64) {
        let at = view.revision.get();
        if at < floor {
            self.breach(format!("{query:?} showed revision {at} after {floor}"));
        }
        let state = self.shared.state();
        let (from, end) = match query.scope {
            Scope::Node => (key(&query.path), Vec::new()),
            Scope::Children => bounds(&query.path, "//"),
            Scope::Subtree => bounds(&query.path, "/"),
        };
        let range = RangeRequest { key: from, range_end: end, ..RangeRequest::default() };
        let found = state.keys.range(&range, i64::try_from(at).unwrap_or(i64::MAX));
        let (kvs, ..) = found.expect("no revision is asked for");
        let mut kept: Vec<_> = kvs.iter().map(|kv| (kv.key.clone(), kv.mod_revision)).collect();
        if query.scope == Scope::Subtree {
            let own = RangeRequest { key: key(&query.path), ..RangeRequest::default() };
            let own = state.keys.range(&own, i64::try_from(at).unwrap_or(i64::MAX));
            let (own, ..) = own.expect("no revision is asked for");
            kept.extend(own.iter().map(|kv| (kv.key.clone(), kv.mod_revision)));
        }
        kept.sort();
        let nodes = view.nodes.iter().filter_map(|node| Some((key(&node.path), node.stat?)));
        let modified = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let mut shown: Vec<_> =
            nodes.map(|(key, stat)| (key, modified(stat.modified.get()))).collect();
        shown.sort();
        drop(state);
        self.saw(if query.freshness == Freshness::Local { "a local read" } else { "a read" });
        if shown != kept {
            self.breach(format!("{query:?} at {at} showed {shown:?}, and there was {kept:?}"));
        }
    }

    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.shared.state().keys.revision).unwrap_or_default()
    }

    /// All breaches.
    pub(crate) fn verdict(&self) -> Vec<String> {
        let state = self.shared.state();
        let log: Vec<Commit> = state.keys.since(0, i64::MAX).to_vec();
        drop(state);
        let mut book = self.book();
        let mut found = std::mem::take(&mut book.breaches);
        found.extend(book.writes.iter().filter_map(|write| write.breach(&log)));
        found.extend(book.heard.iter().flat_map(|heard| heard.breaches(&log)));
        found
    }
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All keys that start with a path and some slashes.
fn bounds(path: &Path, slashes: &str) -> (Vec<u8>, Vec<u8>) {
    let from = format!("{path}{slashes}").into_bytes();
    let mut end = from.clone();
    *end.last_mut().expect("a slash") += 1;
    (from, end)
}

fn events(log: &[Commit]) -> impl Iterator<Item = (u64, &Event)> {
    let at = |commit: &Commit| u64::try_from(commit.revision).unwrap_or_default();
    log.iter().flat_map(move |commit| commit.events.iter().map(move |event| (at(commit), event)))
}

impl Write {
    fn breach(&self, log: &[Commit]) -> Option<String> {
        let is_mine = |event: &Event| {
            event.kv.as_ref().is_some_and(|kv| event.kind == 0 && kv.value == self.value.as_bytes())
        };
        let done: Vec<u64> =
            events(log).filter(|(_, event)| is_mine(event)).map(|(at, _)| at).collect();
        let right = match &self.ended {
            Ok(at) => done.len() == 1 && at.is_none_or(|at| done == [at]),
            Err(Effect::None) => done.is_empty(),
            Err(_) => done.len() <= 1,
        };
        (!right).then(|| format!("{self:?} happened at {done:?}"))
    }
}

impl Heard {
    fn breaches(&self, log: &[Commit]) -> Vec<String> {
        let mut last: BTreeMap<&Path, u64> = BTreeMap::new();
        let mut found = Vec::new();
        for change in &self.changes {
            let at = change.revision.map_or(0, synod_core::store::Revision::get);
            let before = last.insert(&change.path, at).unwrap_or(self.from);
            if at <= before && at > self.missed {
                found.push(format!("{change:?} was reported after {before} of {:?}", self.query));
            }
            let wanted = i32::from(change.kind == Kind::Deleted);
            let happened = events(log).any(|(then, event)| {
                let of = event.kv.as_ref().is_some_and(|kv| kv.key == key(&change.path));
                then == at && of && event.kind == wanted
            });
            if !happened {
                found.push(format!("{change:?} was reported, and did not happen"));
            }
        }
        if self.over {
            return found;
        }
        let covered = |key_: &[u8]| match self.query.scope {
            Scope::Node => key_ == key(&self.query.path),
            Scope::Children => key_.starts_with(&bounds(&self.query.path, "//").0),
            Scope::Subtree => {
                key_ == key(&self.query.path) || key_.starts_with(&bounds(&self.query.path, "/").0)
            }
        };
        let from = self.from.max(self.missed);
        let mut owed: BTreeMap<&[u8], u64> = BTreeMap::new();
        for (at, event) in events(log).filter(|(at, _)| *at > from && *at <= self.until) {
            let Some(kv) = event.kv.as_ref().filter(|kv| covered(&kv.key)) else { continue };
            owed.insert(&kv.key, at);
        }
        let told: BTreeMap<Vec<u8>, u64> = last.iter().map(|(path, at)| (key(path), *at)).collect();
        for (key, at) in owed {
            if told.get(key).is_none_or(|told| *told < at) {
                let key = String::from_utf8_lossy(key);
                found.push(format!("{:?} was not notified of {key} at {at}", self.query));
            }
        }
        found
    }
}
