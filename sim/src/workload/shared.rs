//! Two values with copies in three processes, which write them, remove them, and replace them by
//! bytes that are not a value.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cluster::{By, Site};
use futures_util::StreamExt as _;
use futures_util::future::{Either, join, select};
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::{Effect, Error};
use synod_core::path::Path;
use synod_core::store::{Change, Expect, Kind, Revision, Stat};
use synod_recipes::value::{CopyState, LocalCopy, SharedValue};

use crate::findings::Truth;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;
use crate::workload::left::no_mark_is_left;

/// Three processes follow two values, which are at two paths in one session, and write them with
/// conditions and without.
pub(super) struct SharedValues;

const ROUNDS: u64 = 4;

const REFUSED: &str = "a conditional write failed";
const REPLACED: &str = "a conditional write succeeded";
const UNKNOWN: &str = "a write had an unknown effect";
const STALE: &str = "a copy was stale";
const REMOVED: &str = "a copy was of a removed value";
const UNREADABLE: &str = "a copy was of an earlier value than the bytes that are none";
const COMPARED: &str = "a copy was compared with the store";

/// The answer to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Done,
    /// The value was written since.
    Refused,
    /// The write certainly never happens.
    Failed,
    /// The write happens at most once.
    Unknown,
}

/// A write of data that no other call writes.
#[derive(Clone, Debug)]
struct Write {
    /// The process.
    by: u64,
    data: String,
    /// The version that it replaces, if it has that condition.
    seen: Option<Stat>,
    /// The numbers of commits when it was called, and when it returned.
    called: usize,
    returned: usize,
    told: Told,
}

/// The state of a copy.
#[derive(Clone, Debug)]
struct Shown {
    /// The process, and its life.
    by: (u64, u32),
    copy: LocalCopy<String>,
    /// The number of commits then.
    at: usize,
    /// The data that the process has written right before.
    own: Option<String>,
}

/// All writes and all states that copies showed. Clones share them.
#[derive(Clone, Debug, Default)]
struct Book(Arc<Mutex<(Vec<Write>, Vec<Shown>)>>);

impl Workload for SharedValues {
    fn name(&self) -> &'static str {
        "shared_value"
    }

    fn about(&self) -> &'static str {
        "three processes follow two values, write them with conditions and without, and remove them"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-SV-1", "L-SV-2", "L-CNT-3", "L-CNT-6", "L-X-5"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, REFUSED, REPLACED, UNKNOWN, STALE, REMOVED, UNREADABLE, COMPARED]
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::NearTheEnd, Site::BeatsCut, Site::WallClockSet]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let books = [Book::default(), Book::default()];
        let working = books.clone();
        // The promises exclude writes of strangers to a mark. The processes remove the
        // values themselves.
        let sim = sim
            .without_strangers()
            .processes(3, move |me| work(me, working.clone()))
            .must_end("L-CNT-6");
        // Each value is checked separately from the other one.
        paths().into_iter().zip(books).fold(sim, |sim, (path, book)| {
            let [written, conditional, shown] = [(); 3].map(|()| book.clone());
            let [marked, first, second, third] = [(); 4].map(|()| path.clone());
            sim.eventually("L-X-5", |me| no_mark_is_left(me, marked))
                .check("L-CNT-3", move |truth| written.check_writes(&History::of(truth, &first)))
                .check("L-SV-2", move |truth| {
                    conditional.check_conditions(&History::of(truth, &second))
                })
                .check("L-SV-1", move |truth| shown.check_copies(&History::of(truth, &third)))
        })
    }
}

async fn work(me: Process, books: [Book; 2]) {
    let Ok(client) = me.impatient_client().await else { return };
    let [one, other] = paths();
    let [book, others] = books;
    let worker = |path, rounds, book| Worker {
        me: me.clone(),
        client: client.clone(),
        path,
        rounds: me.rounds(rounds),
        book,
    };
    let one = worker(one, ROUNDS, book);
    // Not always, and for a shorter time, so that a history does not become much longer.
    let other = (me.pick(2) == 0).then(|| worker(other, ROUNDS / 2, others));
    let following = async |worker: Option<&Worker>| match worker {
        Some(worker) => worker.follows().await,
        None => None,
    };
    let followed = Box::pin(join(following(Some(&one)), following(other.as_ref()))).await;
    let [one, other] = [(Some(&one), followed.0), (other.as_ref(), followed.1)];
    for (worker, value) in [one, other] {
        if let (Some(worker), Some(value)) = (worker, value) {
            worker.compares(&value).await;
        }
    }
}

/// One of the values, as a process uses it.
struct Worker {
    me: Process,
    client: Client,
    path: Path,
    rounds: u64,
    book: Book,
}

impl Worker {
    fn data(&self, what: &str, round: u64) -> String {
        format!("{}{}.{}.{what}{round}", self.path, self.me.name(), self.me.life())
    }

    /// Follows the value and writes it. Returns it at the end, if it was opened.
    async fn follows(&self) -> Option<SharedValue<String>> {
        for _ in 0..3 {
            let first = self.data("first", 0);
            let opened = SharedValue::open(&self.client, self.path.clone(), &first);
            if let Some(Ok(value)) = self.me.perhaps(opened).await {
                let end = {
                    let (writes, reads) = (pin!(self.writes(&value)), pin!(self.reads(&value)));
                    matches!(select(writes, reads).await, Either::Left(_))
                };
                return end.then_some(value);
            }
        }
        None
    }

    async fn reads(&self, value: &SharedValue<String>) {
        let mut changes = pin!(value.changes());
        while let Some(copy) = changes.next().await {
            self.show(copy, None);
            self.me.dawdle().await;
        }
    }

    async fn writes(&self, value: &SharedValue<String>) {
        for round in 0..self.rounds {
            self.show(value.get(), None);
            match self.me.pick(8) {
                0 => drop(self.me.perhaps(self.removes()).await),
                1 => drop(self.me.perhaps(self.client.put(&self.path, "no JSON")).await),
                2 | 3 => self.sets(value, round).await,
                _ => self.tries(value, round).await,
            }
            self.me.rest(self.me.ttl() / 6).await;
        }
    }

    /// Removes the value, and the marks below it.
    async fn removes(&self) -> Result<(), Error> {
        for mark in self.client.children(&self.path).await? {
            let _removed = self.client.delete(&mark.path, Expect::Any).await?;
        }
        self.client.delete(&self.path, Expect::Any).await.map(drop)
    }

    async fn sets(&self, value: &SharedValue<String>, round: u64) {
        let (data, called) = (self.data("set", round), self.me.committed());
        let told = match self.me.perhaps(value.set(&data)).await {
            Some(Ok(_)) => Told::Done,
            Some(Err(error)) => failed(&error),
            None => Told::Unknown,
        };
        self.note(value, data, None, called, told);
    }

    async fn tries(&self, value: &SharedValue<String>, round: u64) {
        let (data, seen) = (self.data("try", round), value.get());
        if self.me.pick(2) == 0 {
            self.me.rest(self.me.ttl() / 6).await;
        }
        let called = self.me.committed();
        let told = match self.me.perhaps(value.try_set(&seen, &data)).await {
            Some(Ok(Ok(_))) => Told::Done,
            Some(Ok(Err(_newer))) => Told::Refused,
            Some(Err(error)) => failed(&error),
            None => Told::Unknown,
        };
        self.me.sometimes(REFUSED, told == Told::Refused);
        self.me.sometimes(REPLACED, told == Told::Done);
        self.note(value, data, Some(seen.stat), called, told);
    }

    fn note(
        &self,
        value: &SharedValue<String>,
        data: String,
        seen: Option<Stat>,
        called: usize,
        told: Told,
    ) {
        self.me.sometimes(UNKNOWN, told == Told::Unknown);
        if told == Told::Done {
            self.show(value.get(), Some(data.clone()));
        }
        let (by, returned) = (self.me.number(), self.me.committed());
        let write = Write { by, data, seen, called, returned, told };
        self.book.0.lock().unwrap_or_else(PoisonError::into_inner).0.push(write);
    }

    fn show(&self, copy: LocalCopy<String>, own: Option<String>) {
        self.me.sometimes(STALE, matches!(copy.state, CopyState::Stale));
        self.me.sometimes(REMOVED, matches!(copy.state, CopyState::Removed));
        self.me.sometimes(UNREADABLE, matches!(copy.state, CopyState::Unreadable(_)));
        let (by, at) = ((self.me.number(), self.me.life()), self.me.committed());
        let shown = Shown { by, copy, at, own };
        self.book.0.lock().unwrap_or_else(PoisonError::into_inner).1.push(shown);
    }

    /// L-SV-1: at the end the copy has the content of the store.
    async fn compares(&self, value: &SharedValue<String>) {
        const TIMES: u32 = 100;
        self.me.mended().await;
        let mut different = None;
        for _ in 0..TIMES {
            if let Ok(node) = self.client.get(&self.path).await {
                let copy = value.get();
                let same = match (&copy.state, &node) {
                    (CopyState::Current, Some(node)) => node.stat == Some(copy.stat),
                    (CopyState::Removed, None) => true,
                    (CopyState::Unreadable(_), Some(node)) => &node.data[..] == b"no JSON",
                    _ => false,
                };
                if same {
                    self.me.sometimes(COMPARED, true);
                    return self.show(copy, None);
                }
                different = Some((copy, node));
            }
            if self.client.is_closed() {
                return;
            }
            clock::sleep(self.me.ttl() / 4).await;
        }
        if let Some((copy, node)) = different {
            self.me.wrong("L-SV-1", || format!("there is {node:?}, and the copy is {copy:?}"));
        }
    }
}

fn failed(error: &Error) -> Told {
    if error.effect() == Effect::None { Told::Failed } else { Told::Unknown }
}

/// A version that the node had, or its absence.
#[derive(Clone, Debug)]
struct Version {
    /// The number of commits before the one that made it.
    at: usize,
    revision: Revision,
    /// `None` after a deletion.
    node: Option<(String, Stat)>,
}

/// All versions of the value, in order; and when a node at its path or below it was removed, and by
/// which process.
struct History(Vec<Version>, Vec<(usize, By)>);

impl History {
    fn of(truth: &Truth, path: &Path) -> Self {
        let (mut versions, mut removed) = (Vec::new(), Vec::new());
        for (at, entry) in truth.log.iter().enumerate() {
            let is_removed = |change: &Change| {
                let is_here = change.path == *path || change.path.is_below(path);
                change.kind == Kind::Deleted && is_here
            };
            if entry.changes.iter().any(is_removed) {
                removed.push((at, entry.by));
            }
            for change in entry.changes.iter().filter(|change| change.path == *path) {
                let node = change.node.as_ref().and_then(|node| {
                    Some((String::from_utf8_lossy(&node.data).into_owned(), node.stat?))
                });
                let Some(revision) = change.revision else { continue };
                versions.push(Version { at, revision, node });
            }
        }
        Self(versions, removed)
    }

    /// The places of the versions with this data.
    fn places(&self, data: &str) -> Vec<usize> {
        let data = format!("\"{data}\"");
        let is_it = |version: &Version| version.node.as_ref().is_some_and(|node| node.0 == data);
        (0..self.0.len()).filter(|place| is_it(&self.0[*place])).collect()
    }

    fn version(&self, stat: &Stat) -> Option<&(String, Stat)> {
        let mut nodes = self.0.iter().filter_map(|version| version.node.as_ref());
        nodes.find(|(_, of)| of == stat)
    }

    /// Returns `true` if a write created the node, and another process removed its mark before the
    /// answer: then the library may take the create for one that was never applied, and repeat it.
    /// The promises assume that no client removes marks.
    fn is_undone(&self, place: usize, write: &Write) -> bool {
        let unmarked = |(at, by): &(usize, By)| {
            (self.0[place].at..write.returned).contains(at) && *by != By::Process(write.by)
        };
        self.is_create(place) && self.1.iter().any(unmarked)
    }

    /// Returns `true` if a write that had created the node at `first` created it again, as it had
    /// been removed: a late request, or one that is repeated without a mark. The promises say
    /// nothing about a value that is removed while it is used.
    fn is_repeated(&self, first: usize, place: usize) -> bool {
        let mut between = self.0[first..place].iter();
        self.is_create(first) && self.is_create(place) && between.any(|it| it.node.is_none())
    }

    fn is_create(&self, place: usize) -> bool {
        let node = self.0[place].node.as_ref();
        node.is_some_and(|(_, stat)| stat.created == stat.modified)
    }

    /// Returns `true` if there was such a version after a revision, and before this number of
    /// commits.
    fn had(&self, after: Revision, before: usize, is_it: impl Fn(&Version) -> bool) -> bool {
        let mut versions = self.0.iter();
        versions.any(|version| version.revision > after && version.at < before && is_it(version))
    }
}

impl Book {
    /// L-CNT-3: each write happened once and during the call, or as its answer reports.
    fn check_writes(&self, history: &History) -> Result<(), String> {
        for write in &self.0.lock().unwrap_or_else(PoisonError::into_inner).0 {
            let mut places = history.places(&write.data);
            if let Some(&first) = places.first() {
                places.retain(|place| !history.is_repeated(first, *place));
            }
            let during =
                |place: &usize| (write.called..write.returned).contains(&history.0[*place].at);
            let stayed = places.iter().filter(|place| !history.is_undone(**place, write)).count();
            let fits = match write.told {
                Told::Done => !places.is_empty() && stayed <= 1 && places.iter().all(during),
                Told::Refused => places.is_empty(),
                Told::Failed => stayed == 0,
                Told::Unknown => stayed <= 1,
            };
            if !fits {
                return Err(format!("{write:?} is version {places:?}"));
            }
        }
        Ok(())
    }

    /// L-SV-2: a write with a condition replaced exactly that version; one that failed found
    /// another.
    fn check_conditions(&self, history: &History) -> Result<(), String> {
        for write in &self.0.lock().unwrap_or_else(PoisonError::into_inner).0 {
            let Some(seen) = write.seen else { continue };
            for place in history.places(&write.data) {
                let before = place.checked_sub(1).and_then(|place| history.0[place].node.as_ref());
                if before.map(|(_, stat)| *stat) != Some(seen) {
                    return Err(format!("{write:?} replaced {before:?}"));
                }
            }
            let written = history.had(seen.modified, write.returned, |_| true);
            if write.told == Told::Refused && !written {
                return Err(format!("{write:?}, and no client wrote it"));
            }
        }
        Ok(())
    }

    /// L-SV-1: a copy shows existing versions, in order, and none older than the last write of its
    /// client.
    fn check_copies(&self, history: &History) -> Result<(), String> {
        let mut last: BTreeMap<(u64, u32), Revision> = BTreeMap::new();
        for shown in &self.0.lock().unwrap_or_else(PoisonError::into_inner).1 {
            let Shown { by, copy, at, own } = shown;
            let modified = copy.stat.modified;
            let there = history.version(&copy.stat);
            if there.is_none_or(|(data, _)| *data != format!("\"{}\"", copy.value)) {
                return Err(format!("{shown:?} is none of its versions"));
            }
            let before = last.insert(*by, modified);
            if before > Some(modified) {
                return Err(format!("{shown:?} comes after {before:?}"));
            }
            let is_so = match &copy.state {
                CopyState::Removed => history.had(modified, *at, |it| it.node.is_none()),
                CopyState::Unreadable(_) => history.had(modified, *at, |it| {
                    it.node.as_ref().is_some_and(|(data, _)| data == "no JSON")
                }),
                _ => true,
            };
            let own = own.as_ref().and_then(|own| history.places(own).first().copied());
            let shows_own = own.is_none_or(|own| history.0[own].revision <= modified);
            if !is_so || copy.is_current() && !shows_own {
                return Err(format!("{shown:?} was never so"));
            }
        }
        Ok(())
    }
}

fn paths() -> [Path; 2] {
    ["/shared", "/other"].map(|path| Path::new(path).expect("it is one"))
}
