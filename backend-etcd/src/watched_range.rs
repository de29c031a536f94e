//! [`WatchedRange`]: one watched range, its listeners, and the revision up to which its events were
//! delivered.

use etcd_client::proto::PbEvent;
use etcd_client::{WatchFilterType, WatchOptions};
use synod_core::error::{Error, Result};
use synod_core::store::{Change, Detail, End, Feed, Kind, Query, Scope};
use tokio::sync::oneshot;

use crate::fetch;
use crate::history::is_before;
use crate::key::{self, Range};

/// The maximum number of additional watches on one range.
const OTHERS: usize = 3;

/// The subject of a watch at the server: a range.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subject {
    pub(crate) range: Range,
    /// Only deletes are of interest.
    until_gone: bool,
}

/// A part of a query that is one range.
#[derive(Clone, Debug)]
pub(crate) struct Covered {
    pub(crate) subject: Subject,
    /// Writes of data matter, and not only existence.
    updates: bool,
}

/// The ranges that a query needs.
pub(crate) fn covers(query: &Query) -> Vec<Covered> {
    let (path, data) = (&query.path, query.detail == Detail::Data);
    let of = |range, updates| {
        let subject = Subject { range, until_gone: query.is_until_gone() };
        Covered { subject, updates }
    };
    match query.scope {
        Scope::Node => vec![of(key::only(path), true)],
        Scope::Children => vec![of(key::children(path, &query.prefix), data)],
        Scope::Subtree => vec![of(key::only(path), true), of(key::below(path), true)],
    }
}

/// A listener for one range.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) id: i64,
    updates: bool,
    feed: Feed,
    /// Waits for the answer to the request for the watch.
    ready: Option<oneshot::Sender<Result<i64>>>,
}

impl Listener {
    pub(crate) fn new(
        id: i64,
        covered: &Covered,
        feed: Feed,
        ready: oneshot::Sender<Result<i64>>,
    ) -> Self {
        Self { id, updates: covered.updates, feed, ready: Some(ready) }
    }

    /// Starts the delivery of events: every event after this revision is delivered.
    fn begin(&mut self, revision: i64) {
        if let Some(ready) = self.ready.take() {
            let _heard = ready.send(Ok(revision)).is_ok();
        }
    }

    fn deliver(&self, changes: impl IntoIterator<Item = Change>) {
        let mine = |change: &Change| self.updates || change.kind != Kind::Updated;
        let _told = self.feed.send_all(changes.into_iter().filter(mine));
    }

    fn refuse(&mut self, error: Error) {
        match self.ready.take() {
            Some(ready) => {
                let _heard = ready.send(Err(error)).is_ok();
            }
            None => self.feed.end(End::Failed(error.into())),
        }
    }
}

/// A range that is watched once for all of its listeners.
#[derive(Debug)]
pub(crate) struct WatchedRange {
    subject: Subject,
    listeners: Vec<Listener>,
    /// Every change before this revision was delivered; zero before the first.
    next: i64,
    /// Changes were lost, and the listeners must still be notified of that.
    missed: bool,
    /// Changes of one revision that may not be complete yet.
    held: Vec<PbEvent>,
    /// The id of the watch on the stream.
    pub(crate) name: i64,
    /// The ids of the additional watches: see
    /// [`Registry::double`](crate::registry::Registry::double).
    pub(crate) others: Vec<i64>,
    /// The server's revision when it registered the latest of them.
    taken: i64,
    /// The last event was a delete, and no listener has joined since.
    gone: bool,
}

impl WatchedRange {
    pub(crate) fn new(subject: Subject, listener: Listener) -> Self {
        let listeners = vec![listener];
        let (held, others) = (Vec::new(), Vec::new());
        let (missed, gone) = (false, false);
        Self { subject, listeners, next: 0, missed, held, name: 0, others, taken: 0, gone }
    }

    pub(crate) fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Adds a listener. If the watch already exists, it serves this listener like one that was
    /// added first.
    pub(crate) fn join(&mut self, mut listener: Listener) {
        if self.next > 0 {
            listener.begin(self.next - 1);
        }
        self.listeners.push(listener);
        self.gone = false;
    }

    /// Removes a listener. Returns `true` if it was the last one.
    pub(crate) fn leave(&mut self, listener: i64) -> bool {
        self.listeners.retain(|other| other.id != listener);
        self.listeners.is_empty()
    }

    /// Returns `true` if the watch may rest without a listener: it has exactly one watch at the
    /// server, no revision is partly delivered, none was missed, and the deletion was reported, so
    /// that the next event comes only after the node exists again.
    pub(crate) fn may_rest(&self) -> bool {
        let whole = !self.missed && self.held.is_empty();
        self.subject.until_gone && self.gone && self.others.is_empty() && whole
    }

    /// Returns `true` if an event arrived without a listener.
    pub(crate) fn is_overheard(&self) -> bool {
        self.listeners.is_empty()
    }

    /// Returns `true` if one more watch may be added.
    pub(crate) fn may_double(&self) -> bool {
        self.is_one() && self.others.len() < OTHERS
    }

    /// Records that the server registered an additional watch. Returns `true` if the server has
    /// written since the previous one.
    pub(crate) fn doubled(&mut self, revision: i64) -> bool {
        revision > std::mem::replace(&mut self.taken, revision)
    }

    /// Returns `true` if it concerns one key.
    fn is_one(&self) -> bool {
        self.subject.range.end.is_empty()
    }

    /// The request for the watch. The first one starts now, a later one where the watch broke.
    /// Additional watches start now.
    ///
    /// More precisely, it starts at the last delivered revision: some servers lose a delete that is
    /// the first event of a watch when all earlier revisions are compacted. If that revision is
    /// compacted too, they report it.
    pub(crate) fn request(&self, name: i64) -> (Vec<u8>, WatchOptions) {
        let from = if self.others.contains(&name) { 0 } else { self.next.saturating_sub(1).max(0) };
        // In fragments: events that were missed arrive together, and may exceed the maximum message
        // size.
        let mut options =
            WatchOptions::new().with_watch_id(name).with_start_revision(from).with_fragment();
        let range = &self.subject.range;
        if !self.is_one() {
            options = options.with_range(range.end.clone());
        }
        if self.subject.until_gone {
            options = options.with_filters([WatchFilterType::NoPut]);
        }
        (range.key.clone(), options)
    }

    /// Records that the server registered the watch: it reports all events after `revision`.
    /// Returns `true` if earlier changes are lost.
    pub(crate) fn begun(&mut self, revision: i64) -> bool {
        self.held.clear();
        self.taken = revision;
        if self.next == 0 {
            self.next = revision.saturating_add(1);
        }
        for listener in &mut self.listeners {
            listener.begin(revision);
        }
        std::mem::take(&mut self.missed)
    }

    /// The revision up to which every event was delivered; zero before the first.
    pub(crate) fn reported(&self) -> i64 {
        (self.next - 1).max(0)
    }

    /// Returns `true` if the watch is registered at a member and has delivered events after this
    /// revision.
    pub(crate) fn is_ahead_of(&self, revision: i64) -> bool {
        is_before(revision, self.reported())
    }

    /// Records that every event up to `revision` was delivered.
    pub(crate) fn progress(&mut self, revision: i64) {
        if self.next > 0 && self.held.is_empty() {
            self.next = self.next.max(revision.saturating_add(1));
        }
    }

    /// Records that etcd has compacted events that were not delivered yet.
    pub(crate) fn miss(&mut self) {
        (self.next, self.missed) = (0, true);
    }

    pub(crate) fn resync(&self) {
        for listener in &self.listeners {
            let _told = listener.feed.resync();
        }
    }

    /// Ends the watch with this error.
    pub(crate) fn refuse(&mut self, error: &Error) {
        for listener in &mut self.listeners {
            listener.refuse(error.clone());
        }
    }

    /// Delivers the events that are new. If `more` follow, the last revision may be incomplete.
    pub(crate) fn deliver(&mut self, events: Vec<PbEvent>, more: bool) {
        let mut events = match std::mem::take(&mut self.held) {
            held if held.is_empty() => events,
            held => held.into_iter().chain(events).collect(),
        };
        if more {
            let last = events.last().map(revision);
            let whole = events.partition_point(|event| Some(revision(event)) < last);
            self.held = events.split_off(whole);
        }
        let from = self.next;
        let changes: Vec<Change> = events
            .into_iter()
            .filter_map(|event| {
                let revision = revision(&event);
                // Some servers repeat events, or return to earlier ones.
                if revision < from {
                    return None;
                }
                self.next = self.next.max(revision.saturating_add(1));
                change(event)
            })
            .collect();
        if let Some(last) = changes.last() {
            self.gone = last.kind == Kind::Deleted;
        }
        if let Some((last, others)) = self.listeners.split_last() {
            for listener in others {
                listener.deliver(changes.iter().cloned());
            }
            last.deliver(changes);
        }
    }
}

/// The revision of an event.
fn revision(event: &PbEvent) -> i64 {
    event.kv.as_ref().map_or(0, |kv| kv.mod_revision)
}

fn change(event: PbEvent) -> Option<Change> {
    const DELETED: i32 = 1;
    let kv = event.kv?;
    let revision = fetch::revision(kv.mod_revision);
    if event.r#type == DELETED {
        return Some(Change::new(key::known(&kv.key)?, Kind::Deleted).at(revision));
    }
    let new = kv.create_revision == kv.mod_revision;
    let node = fetch::node(kv)?;
    let kind = if new { Kind::Created } else { Kind::Updated };
    Some(Change::new(node.path.clone(), kind).at(revision).with_node(node))
}

#[cfg(test)]
mod tests {
    use etcd_client::proto::PbKeyValue;
    use synod_core::path::Path;
    use synod_core::store::{Event, Watch};

    use super::*;

    fn put(created: i64, modified: i64) -> PbEvent {
        let kv = PbKeyValue {
            key: b"//d//n".to_vec(),
            create_revision: created,
            mod_revision: modified,
            ..PbKeyValue::default()
        };
        PbEvent { kv: Some(PbKeyValue { key: b"/d//n".to_vec(), ..kv }), ..PbEvent::default() }
    }

    fn listener(id: i64, covered: &Covered) -> (Listener, Watch, oneshot::Receiver<Result<i64>>) {
        let (feed, watch) = Feed::new(16);
        let (ready, begun) = oneshot::channel();
        (Listener::new(id, covered, feed, ready), watch, begun)
    }

    fn watched(query: &Query) -> (WatchedRange, Watch) {
        let covered = covers(query).remove(0);
        let (listener, watch, _) = listener(1, &covered);
        (WatchedRange::new(covered.subject, listener), watch)
    }

    fn delivered(watch: &mut Watch) -> Vec<(Kind, u64)> {
        let events = std::iter::from_fn(|| watch.try_next());
        let changes = events.filter_map(|event| match event {
            Event::Changed(change) => Some((change.kind, change.revision?.get())),
            _ => None,
        });
        changes.collect()
    }

    fn dir() -> Path {
        Path::new("/d").expect("valid")
    }

    #[test]
    fn what_missed_an_event_does_not_rest() {
        let (mut watched, _watch) = watched(&Query::until_gone(dir()));
        assert!(!watched.begun(4));
        let kv = PbKeyValue { key: b"//d".to_vec(), mod_revision: 5, ..PbKeyValue::default() };
        watched.deliver(vec![PbEvent { r#type: 1, kv: Some(kv), prev_kv: None }], false);
        assert!(watched.may_rest());
        watched.miss();
        assert!(!watched.may_rest());
    }

    #[test]
    fn an_event_that_a_server_repeats_is_delivered_once() {
        let (mut watched, mut watch) = watched(&Query::children(dir()));
        assert!(!watched.begun(4));
        watched.deliver(vec![put(5, 5), put(5, 6)], false);
        watched.deliver(vec![put(5, 5)], false);
        watched.deliver(vec![put(5, 6), put(5, 7)], false);

        let expected = [(Kind::Created, 5), (Kind::Updated, 6), (Kind::Updated, 7)];
        assert_eq!(delivered(&mut watch), expected);
        assert_eq!(watched.next, 8);
    }

    #[test]
    fn where_a_watch_begins_only_the_answer_to_its_request_says() {
        let (mut watched, _watch) = watched(&Query::children(dir()));
        watched.progress(9);
        assert_eq!(watched.next, 0);
        assert!(!watched.begun(4));
        watched.progress(9);
        assert_eq!(watched.next, 10);
    }

    #[test]
    fn fragments_are_delivered_as_whole_revisions() {
        let (mut watched, mut watch) = watched(&Query::children(dir()));
        assert!(!watched.begun(4));
        watched.deliver(vec![put(5, 5), put(6, 6)], true);
        assert_eq!(delivered(&mut watch), [(Kind::Created, 5)]);
        assert_eq!(watched.next, 6, "it would go on there");
        watched.deliver(vec![put(5, 6), put(7, 7)], true);
        watched.deliver(vec![put(5, 7)], false);
        let rest = [(Kind::Created, 6), (Kind::Updated, 6), (Kind::Created, 7), (Kind::Updated, 7)];
        assert_eq!(delivered(&mut watch), rest);

        watched.deliver(vec![put(5, 8)], true);
        assert!(
            !watched.begun(9),
            "the stream broke, and the half delivered revision is sent again"
        );
        watched.deliver(vec![put(5, 8)], false);
        assert_eq!(delivered(&mut watch), [(Kind::Updated, 8)]);
    }

    #[test]
    fn a_watch_goes_on_where_it_broke_off_unless_that_is_forgotten() {
        let (mut watched, _watch) = watched(&Query::children(dir()));
        assert!(!watched.begun(4));
        watched.deliver(vec![put(5, 9)], false);
        assert!(!watched.begun(20), "it goes on from 10");
        assert_eq!(watched.next, 10);
        watched.miss();
        assert!(watched.begun(30), "what lies between is lost");
        assert_eq!(watched.next, 31);
    }

    #[test]
    fn a_listener_for_names_gets_no_data_events() {
        let (mut watched, mut watch) = watched(&Query::children(dir()).names_only());
        watched.begun(4);
        watched.deliver(vec![put(5, 5), put(5, 6)], false);
        assert_eq!(delivered(&mut watch), [(Kind::Created, 5)]);
    }

    #[test]
    fn a_late_listener_gets_the_events_not_yet_delivered() {
        let (mut watched, mut first) = watched(&Query::children(dir()));
        let names = covers(&Query::children(dir()).names_only()).remove(0);
        let (early, mut second, mut early_begun) = listener(2, &names);
        watched.join(early);
        assert!(early_begun.try_recv().is_err(), "it is not watched yet");
        watched.begun(4);
        assert_eq!(early_begun.try_recv().expect("reported").expect("watched"), 4);
        watched.deliver(vec![put(5, 5), put(5, 6), put(5, 7)], true);

        let (late, mut third, mut late_begun) = listener(3, &names);
        watched.join(late);
        assert_eq!(late_begun.try_recv().expect("reported").expect("watched"), 6);
        watched.deliver(vec![put(8, 8)], false);

        let all = [(Kind::Created, 5), (Kind::Updated, 6), (Kind::Updated, 7), (Kind::Created, 8)];
        assert_eq!(delivered(&mut first), all);
        assert_eq!(delivered(&mut second), [all[0], all[3]]);
        assert_eq!(delivered(&mut third), [all[3]]);
        assert!(!watched.leave(1) && !watched.leave(3) && watched.leave(2));
    }
}
