//! [`Roster`]: what is watched, for whom, and by which names on the stream.
//!
//! A watch of one key that nobody listens to any more rests for a while: whoever waits in a line again and again mostly
//! waits for the same one, who comes under the same name. He finds the key watched, and no request is sent to watch it or to
//! end that.

use std::collections::{BTreeMap, VecDeque};

use etcd_client::{WatchOptions, WatchResponse};
use synod_core::error::Error;
use tokio::time::Instant;

use crate::error::of_watch;
use crate::key::Range;
use crate::watched::{Listener, Watched};

/// How many watches rest at most.
const RESTING: usize = 4;

/// Everything that is watched, and what is still to be sent about it.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    all: BTreeMap<i64, Watched>,
    /// What is watched already: whoever wants to know more of it shares the watch.
    by_range: BTreeMap<Range, i64>,
    /// What each listener listens to.
    by_listener: BTreeMap<i64, i64>,
    /// What the names on the stream stand for. A new request has a new name.
    by_name: BTreeMap<i64, i64>,
    last_name: i64,
    unsent: VecDeque<Unsent>,
    /// The names of requests that are not answered yet, in order.
    unanswered: VecDeque<i64>,
    /// What nobody listens to, and until when it rests; the first to end comes first.
    resting: VecDeque<(i64, Instant)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unsent {
    Create(i64),
    Cancel(i64),
}

/// What is to be sent.
#[derive(Debug)]
pub(crate) enum Request {
    Create(Vec<u8>, WatchOptions),
    Cancel(i64),
}

/// What a message comes to, beyond what was told to readers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Fine,
    /// A watch goes on from behind this revision; what was before is lost.
    Behind(i64, i64),
    /// The stream's token is not accepted any more.
    Stale,
}

impl Roster {
    /// Whether nobody wants to know anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.len() == self.resting.len()
    }

    /// Until when the first of those rests that nobody listens to.
    pub(crate) fn rests_until(&self) -> Option<Instant> {
        self.resting.front().map(|(_, until)| *until)
    }

    /// Ends what rested for long enough.
    pub(crate) fn wake(&mut self, now: Instant) {
        while self.rests_until().is_some_and(|until| until <= now) {
            self.end_first();
        }
    }

    fn end_first(&mut self) {
        if let Some((id, _)) = self.resting.front().copied() {
            self.end(id);
        }
    }

    /// Somebody wants to know of a range.
    pub(crate) fn add(&mut self, range: Range, listener: Listener) {
        if let Some(id) = self.by_range.get(&range).copied()
            && let Some(watched) = self.all.get_mut(&id)
        {
            self.by_listener.insert(listener.id, id);
            watched.join(listener);
            self.resting.retain(|(resting, _)| *resting != id);
            return;
        }
        // A watch is called as whoever listened first.
        let id = listener.id;
        self.by_listener.insert(id, id);
        self.by_range.insert(range.clone(), id);
        self.all.insert(id, Watched::new(range, listener));
        self.ask_for(id);
    }

    /// Somebody does not want to know any more. If nobody else does, what he listened to may rest until then.
    pub(crate) fn remove(&mut self, listener: i64, until: Instant) {
        let Some(id) = self.by_listener.remove(&listener) else { return };
        let Some(watched) = self.all.get_mut(&id) else { return };
        if !watched.leave(listener) {
            return;
        }
        if !watched.may_rest() {
            return self.end(id);
        }
        self.resting.push_back((id, until));
        if self.resting.len() > RESTING {
            self.end_first();
        }
    }

    fn end(&mut self, id: i64) {
        let Some(watched) = self.take(id) else { return };
        for name in watched.others.into_iter().chain([watched.name]) {
            self.by_name.remove(&name);
            let create = Unsent::Create(name);
            match self.unsent.iter().position(|unsent| *unsent == create) {
                Some(place) => drop(self.unsent.remove(place)),
                None => self.unsent.push_back(Unsent::Cancel(name)),
            }
        }
    }

    /// What somebody listens to may be told late. The server looks which revision is now, and takes the watch
    /// then: if it writes in between, the watch begins in the past, and is served by a loop that runs ten
    /// times a second. So there is another, until the server has written nothing from one to the next: then the
    /// one before is in time.
    ///
    /// Of one key only: whichever watch tells of it first, changes before that have joined. And not for who found
    /// it watched.
    pub(crate) fn double(&mut self, listener: i64) {
        if self.by_listener.get(&listener) == Some(&listener) {
            self.ask_for_another(listener);
        }
    }

    fn ask_for_another(&mut self, id: i64) {
        let Some(watched) = self.all.get_mut(&id).filter(|watched| watched.may_double()) else {
            return;
        };
        self.last_name += 1;
        watched.others.push(self.last_name);
        self.by_name.insert(self.last_name, id);
        self.unsent.push_back(Unsent::Create(self.last_name));
    }

    fn take(&mut self, id: i64) -> Option<Watched> {
        let watched = self.all.remove(&id)?;
        self.by_range.remove(watched.range());
        self.resting.retain(|(resting, _)| *resting != id);
        Some(watched)
    }

    /// The stream is gone: everything is to be asked for again.
    pub(crate) fn hang_up(&mut self) {
        self.by_name.clear();
        self.unsent.clear();
        self.unanswered.clear();
        for (id, _) in std::mem::take(&mut self.resting) {
            self.take(id);
        }
        let ids: Vec<i64> = self.all.keys().copied().collect();
        for watched in self.all.values_mut() {
            watched.others.clear();
        }
        for id in ids {
            self.ask_for(id);
        }
    }

    fn ask_for(&mut self, id: i64) {
        let Some(watched) = self.all.get_mut(&id) else { return };
        self.last_name += 1;
        watched.name = self.last_name;
        self.by_name.insert(watched.name, id);
        self.unsent.push_back(Unsent::Create(watched.name));
    }

    /// What is to be sent next. It stays so until [`Roster::sent`].
    pub(crate) fn request(&self) -> Option<Request> {
        Some(match *self.unsent.front()? {
            Unsent::Cancel(name) => Request::Cancel(name),
            Unsent::Create(name) => {
                let (key, options) = self.all.get(self.by_name.get(&name)?)?.request(name);
                Request::Create(key, options)
            }
        })
    }

    pub(crate) fn sent(&mut self) {
        if let Some(Unsent::Create(name)) = self.unsent.pop_front() {
            self.unanswered.push_back(name);
        }
    }

    /// Nobody may watch anything.
    pub(crate) fn refuse(&mut self, error: &Error) {
        for watched in std::mem::take(&mut self.all).values_mut() {
            watched.refuse(error);
        }
        self.by_range.clear();
        self.resting.clear();
        self.hang_up();
    }

    /// What is to be told next cannot be.
    pub(crate) fn miss(&mut self) {
        for watched in self.all.values_mut() {
            watched.miss();
        }
    }

    pub(crate) fn resync(&self, id: i64) {
        if let Some(watched) = self.all.get(&id) {
            watched.resync();
        }
    }

    /// Takes what etcd said.
    pub(crate) fn hear(&mut self, response: WatchResponse) -> Heard {
        let response = response.0;
        let mut name = response.watch_id;
        if response.created {
            // A refused request may come back without its name; answers come in order.
            let answered = self.unanswered.pop_front();
            if name <= 0 {
                name = answered.unwrap_or(name);
            }
        }
        let Some(id) = self.by_name.get(&name).copied() else { return Heard::Fine };
        let Some(watched) = self.all.get_mut(&id) else { return Heard::Fine };
        let revision = response.header.map_or(0, |header| header.revision);
        let beside = watched.others.contains(&name);
        if beside && response.canceled {
            // The other is still there, and told if it must not be.
            self.by_name.remove(&name);
        } else if beside && response.created {
            if watched.doubled(revision) {
                self.ask_for_another(id);
            }
        } else if response.canceled && response.compact_revision > 0 {
            self.by_name.remove(&name);
            watched.miss();
            self.ask_for(id);
        } else if response.canceled {
            if response.cancel_reason.contains("auth token") {
                return Heard::Stale;
            }
            self.by_name.remove(&name);
            watched.refuse(&of_watch(&response.cancel_reason));
            self.take(id);
        } else if response.created {
            if watched.begun(revision) {
                return Heard::Behind(revision, id);
            }
        } else {
            watched.tell(response.events, response.fragment);
        }
        Heard::Fine
    }
}

#[cfg(test)]
mod tests {
    use etcd_client::proto::{PbEvent, PbKeyValue, PbResponseHeader, PbWatchResponse};
    use std::time::Duration;
    use synod_core::error::{ErrorKind, Result};
    use synod_core::path::Path;
    use synod_core::store::{Event, Feed, Query, Watch};
    use tokio::sync::oneshot;

    use super::*;
    use crate::watched::covers;

    /// Each of them watches another.
    fn add(roster: &mut Roster, id: i64) -> (Watch, oneshot::Receiver<Result<i64>>) {
        listen(roster, id, &format!("/n{id}"))
    }

    fn listen(roster: &mut Roster, id: i64, at: &str) -> (Watch, oneshot::Receiver<Result<i64>>) {
        let (feed, watch) = Feed::new(8);
        let (ready, opened) = oneshot::channel();
        let covered = covers(&Query::node(Path::new(at).expect("valid"))).remove(0);
        roster.add(covered.range.clone(), Listener::new(id, &covered, feed, ready));
        (watch, opened)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    fn says(response: PbWatchResponse) -> WatchResponse {
        let header = Some(PbResponseHeader { revision: 7, ..PbResponseHeader::default() });
        WatchResponse(PbWatchResponse { header, ..response })
    }

    fn send_all(roster: &mut Roster) -> usize {
        std::iter::from_fn(|| roster.request().map(|_| roster.sent())).count()
    }

    fn created(name: i64) -> WatchResponse {
        says(PbWatchResponse { watch_id: name, created: true, ..PbWatchResponse::default() })
    }

    #[test]
    fn a_refusal_without_a_name_is_of_the_request_whose_turn_it_is() {
        let mut roster = Roster::default();
        let (_one, mut first) = add(&mut roster, 1);
        let (_two, mut second) = add(&mut roster, 2);
        assert_eq!(send_all(&mut roster), 2);

        assert_eq!(roster.hear(created(1)), Heard::Fine);
        let refused = PbWatchResponse {
            watch_id: -1,
            created: true,
            canceled: true,
            cancel_reason: "etcdserver: permission denied".to_owned(),
            ..PbWatchResponse::default()
        };
        assert_eq!(roster.hear(says(refused)), Heard::Fine);

        assert_eq!(first.try_recv().expect("answered").expect("watched"), 7);
        let error = second.try_recv().expect("answered").expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Denied);
    }

    #[test]
    fn what_is_compacted_is_watched_from_now_on_and_said_to_be_missed() {
        let mut roster = Roster::default();
        let (mut watch, _opened) = add(&mut roster, 1);
        assert_eq!(send_all(&mut roster), 1);
        roster.hear(created(1));
        roster.hang_up();
        assert_eq!(send_all(&mut roster), 1);
        roster.hear(created(2));
        let compacted = PbWatchResponse {
            watch_id: 2,
            canceled: true,
            compact_revision: 9,
            ..PbWatchResponse::default()
        };
        assert_eq!(roster.hear(says(compacted)), Heard::Fine);
        assert!(watch.try_next().is_none(), "whoever reads now may read too early");

        assert_eq!(send_all(&mut roster), 1);
        assert_eq!(roster.hear(created(3)), Heard::Behind(7, 1));
        roster.resync(1);
        assert!(matches!(watch.try_next(), Some(Event::Resync)));
    }

    #[test]
    fn whoever_watches_the_same_shares_a_watch() {
        let mut roster = Roster::default();
        let covered = covers(&Query::children(Path::new("/d").expect("valid"))).remove(0);
        let listen = |roster: &mut Roster, id| {
            let (feed, watch) = Feed::new(8);
            let (ready, opened) = oneshot::channel();
            roster.add(covered.range.clone(), Listener::new(id, &covered, feed, ready));
            (watch, opened)
        };
        let (mut first, _opened) = listen(&mut roster, 1);
        assert_eq!(send_all(&mut roster), 1);
        roster.hear(created(1));
        let (mut second, mut opened) = listen(&mut roster, 2);
        assert_eq!(opened.try_recv().expect("told at once").expect("watched"), 7);
        assert_eq!(send_all(&mut roster), 0, "it is watched already");

        roster.resync(1);
        for watch in [&mut first, &mut second] {
            assert!(matches!(watch.try_next(), Some(Event::Resync)));
        }
        roster.remove(1, soon());
        assert!(roster.request().is_none() && !roster.is_empty(), "one is left");
        roster.remove(2, soon());
        assert!(matches!(roster.request(), Some(Request::Cancel(1))));

        let _third = listen(&mut roster, 3);
        assert!(matches!(roster.request(), Some(Request::Cancel(1))));
        assert_eq!(send_all(&mut roster), 2, "the end of the one, and another");
    }

    /// An answer at another revision.
    fn taken(name: i64, revision: i64) -> WatchResponse {
        let mut answer = created(name);
        answer.0.header = Some(PbResponseHeader { revision, ..PbResponseHeader::default() });
        answer
    }

    #[test]
    fn another_watch_tells_what_the_first_is_late_with() {
        let mut roster = Roster::default();
        let (mut watch, _opened) = add(&mut roster, 1);
        assert_eq!(send_all(&mut roster), 1);
        roster.hear(created(1));
        roster.double(1);
        assert_eq!(send_all(&mut roster), 1);
        roster.hear(created(2));
        assert_eq!(send_all(&mut roster), 0, "the server wrote nothing meanwhile");

        let gone = |name| {
            let kv = PbKeyValue { key: b"//n1".to_vec(), mod_revision: 9, ..PbKeyValue::default() };
            let events = vec![PbEvent { r#type: 1, kv: Some(kv), prev_kv: None }];
            says(PbWatchResponse { watch_id: name, events, ..PbWatchResponse::default() })
        };
        roster.hear(gone(2));
        roster.hear(gone(1));
        let told = [watch.try_next(), watch.try_next()];
        assert!(matches!(told, [Some(Event::Changed(_)), None]), "{told:?}");

        roster.remove(1, soon());
        assert_eq!(send_all(&mut roster), 2, "the end of both");
    }

    #[test]
    fn others_are_asked_for_while_the_server_writes_and_not_for_ever() {
        let mut roster = Roster::default();
        let _watch = add(&mut roster, 1);
        send_all(&mut roster);
        roster.hear(created(1));
        roster.double(1);
        for name in 2..=4 {
            assert_eq!(send_all(&mut roster), 1, "{name}");
            roster.hear(taken(name, 6 + name));
        }
        assert_eq!(send_all(&mut roster), 0);

        let refused = PbWatchResponse { watch_id: 3, canceled: true, ..PbWatchResponse::default() };
        assert_eq!(roster.hear(says(refused)), Heard::Fine);
        roster.hang_up();
        assert_eq!(send_all(&mut roster), 1, "the next stream has none beside");
        roster.remove(1, soon());
        roster.wake(soon());
        assert_eq!(send_all(&mut roster), 1);
    }

    /// A change of the key that `add` watches as `/n1`.
    fn written(name: i64, revision: i64) -> WatchResponse {
        let kv =
            PbKeyValue { key: b"//n1".to_vec(), mod_revision: revision, ..PbKeyValue::default() };
        let events = vec![PbEvent { r#type: 0, kv: Some(kv), prev_kv: None }];
        says(PbWatchResponse { watch_id: name, events, ..PbWatchResponse::default() })
    }

    #[test]
    fn who_comes_again_soon_finds_it_watched() {
        let mut roster = Roster::default();
        let _first = add(&mut roster, 1);
        send_all(&mut roster);
        roster.hear(created(1));
        roster.remove(1, soon());
        assert_eq!(send_all(&mut roster), 0);
        assert!(roster.is_empty() && roster.rests_until().is_some());

        // What happens meanwhile is nobody's business, and not told to who comes later.
        roster.hear(written(1, 9));
        let (mut watch, mut opened) = listen(&mut roster, 2, "/n1");
        assert_eq!(opened.try_recv().expect("told at once").expect("watched"), 9);
        assert!(!roster.is_empty() && roster.rests_until().is_none());
        roster.double(2);
        assert_eq!(send_all(&mut roster), 0, "it was watched before");
        roster.hear(written(1, 10));
        let told = [watch.try_next(), watch.try_next()];
        assert!(matches!(told, [Some(Event::Changed(_)), None]), "{told:?}");

        roster.remove(2, soon());
        roster.wake(Instant::now());
        assert_eq!(send_all(&mut roster), 0, "it has not rested for long");
        roster.wake(soon());
        assert!(matches!(roster.request(), Some(Request::Cancel(1))));
        let (_watch, mut opened) = listen(&mut roster, 3, "/n1");
        assert!(opened.try_recv().is_err(), "it is watched anew");
    }

    #[test]
    fn few_watches_rest_and_none_beyond_its_stream() {
        let mut roster = Roster::default();
        let mut kept = Vec::new();
        for id in 1..=6 {
            kept.push(add(&mut roster, id));
            send_all(&mut roster);
            roster.hear(created(id));
        }
        for id in 1..=6 {
            roster.remove(id, soon());
        }
        assert!(matches!(roster.request(), Some(Request::Cancel(1))));
        assert_eq!(send_all(&mut roster), 2, "the first two that were left");

        roster.hang_up();
        assert!(roster.is_empty() && roster.rests_until().is_none());
        assert_eq!(send_all(&mut roster), 0);
    }

    #[test]
    fn a_watch_that_was_refused_or_doubled_does_not_rest() {
        let mut roster = Roster::default();
        let _first = add(&mut roster, 1);
        send_all(&mut roster);
        roster.hear(created(1));
        roster.double(1);
        roster.remove(1, soon());
        assert!(roster.rests_until().is_none());
        assert_eq!(send_all(&mut roster), 1, "the end of the one; the other was never sent");

        let _second = listen(&mut roster, 2, "/n1");
        send_all(&mut roster);
        roster.hear(created(3));
        roster.remove(2, soon());
        let cancelled =
            PbWatchResponse { watch_id: 3, canceled: true, ..PbWatchResponse::default() };
        assert_eq!(roster.hear(says(cancelled)), Heard::Fine);
        assert!(roster.is_empty() && roster.rests_until().is_none());
    }

    #[test]
    fn what_nobody_watches_any_more_is_cancelled_or_never_sent() {
        let mut roster = Roster::default();
        let _both = (add(&mut roster, 1), add(&mut roster, 2));
        roster.sent();
        roster.remove(2, soon());
        roster.remove(1, soon());
        assert!(matches!(roster.request(), Some(Request::Cancel(1))));
        assert_eq!(send_all(&mut roster), 1);
        assert!(roster.is_empty());
    }
}
