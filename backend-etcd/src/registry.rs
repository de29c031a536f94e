//! [`Registry`]: the watches of a session, their listeners, and their ids on the stream.
//!
//! A watch that has reported a deletion rests for a while. A client that waits for a lock
//! repeatedly usually waits for the same predecessor, whose ticket reuses its name. The key is then
//! already watched, and no request is sent to start or end a watch. A resting watch that reports an
//! event without a listener ends, so that a server does not send each release to many clients.

use std::collections::{BTreeMap, VecDeque};

use etcd_client::{WatchOptions, WatchResponse};
use synod_core::error::Error;
use tokio::time::Instant;

use crate::error::{is_stale, of_watch};
use crate::watched_range::{Listener, Subject, WatchedRange};

/// The maximum number of resting watches.
const RESTING: usize = 4;

/// The maximum number of unanswered requests for watches. With more of them in flight a late answer
/// could not be distinguished from a lost one.
const UNANSWERED: usize = 500;

/// The id in an answer about all watches of a stream.
const ALL: i64 = -1;

/// All watches, and the requests about them that are still to be sent.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    all: BTreeMap<i64, WatchedRange>,
    /// The watches by subject: a further listener shares the watch.
    by_subject: BTreeMap<Subject, i64>,
    /// The watch of each listener.
    by_listener: BTreeMap<i64, i64>,
    /// The watch of each id on the stream. A new request has a new id.
    by_name: BTreeMap<i64, i64>,
    last_name: i64,
    unsent: VecDeque<Unsent>,
    /// The ids that were sent but not answered, in order, with the time of sending.
    unanswered: VecDeque<(i64, Instant)>,
    /// The time of the last answer to the first of them.
    answered: Option<Instant>,
    /// The watches without a listener, with the time at which each stops resting, in order of that
    /// time.
    resting: VecDeque<(i64, Instant)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unsent {
    Create(i64),
    Cancel(i64),
}

/// A request that is to be sent.
#[derive(Debug)]
pub(crate) enum Request {
    Create(Vec<u8>, WatchOptions),
    Cancel(i64),
}

/// The consequence of a message, in addition to the events that were delivered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Consequence {
    Fine,
    /// A watch continues after this revision; earlier events are lost.
    Behind(i64, i64),
    /// A watch continues after a revision that the member has not reached yet: the member lags, or
    /// the store was restored from a backup.
    Ahead,
    /// The token of the stream is no longer accepted.
    Stale(String),
    /// The peer assigns its own ids to watches: it is a proxy.
    Proxied,
    /// If the member's version reports this correctly: every accepted watch has reported all events
    /// up to this revision.
    Progress(i64),
}

impl Registry {
    /// Returns `true` if no watch has a listener.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.len() == self.resting.len()
    }

    /// The time at which the first of the resting watches stops resting.
    pub(crate) fn rests_until(&self) -> Option<Instant> {
        self.resting.front().map(|(_, until)| *until)
    }

    /// Ends the watches that have rested for long enough.
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

    /// Adds a listener for a subject.
    pub(crate) fn add(&mut self, subject: Subject, listener: Listener) {
        if let Some(id) = self.by_subject.get(&subject).copied()
            && let Some(watched) = self.all.get_mut(&id)
        {
            self.by_listener.insert(listener.id, id);
            watched.join(listener);
            self.resting.retain(|(resting, _)| *resting != id);
            return;
        }
        // A watch has the number of its first listener.
        let id = listener.id;
        self.by_listener.insert(id, id);
        self.by_subject.insert(subject.clone(), id);
        self.all.insert(id, WatchedRange::new(subject, listener));
        self.ask_for(id);
    }

    /// Removes a listener. If it was the last one, its watch may rest until `until`.
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
            if self.by_name.remove(&name).is_none() {
                // The server has ended it already.
                continue;
            }
            let create = Unsent::Create(name);
            match self.unsent.iter().position(|unsent| *unsent == create) {
                Some(place) => drop(self.unsent.remove(place)),
                None => self.unsent.push_back(Unsent::Cancel(name)),
            }
        }
    }

    /// Requests a second watch, because events of the first may be late. The server reads its
    /// current revision, and registers the watch after that: if it writes in between, the watch
    /// starts in the past, and is served by a loop that runs ten times a second. So further watches
    /// are requested until the server has not written between two of them: then the earlier of the
    /// two is up to date.
    ///
    /// This is done only for a single key: whichever watch reports an event first, the event
    /// includes all earlier changes. It is not done for a listener that joined an existing watch.
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

    fn take(&mut self, id: i64) -> Option<WatchedRange> {
        let watched = self.all.remove(&id)?;
        self.by_subject.remove(watched.subject());
        self.resting.retain(|(resting, _)| *resting != id);
        Some(watched)
    }

    /// The stream is gone: all watches must be requested again.
    pub(crate) fn hang_up(&mut self) {
        self.by_name.clear();
        self.unsent.clear();
        self.unanswered.clear();
        self.answered = None;
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

    /// The next request to send. It stays the next until [`Registry::sent`].
    pub(crate) fn request(&self) -> Option<Request> {
        Some(match *self.unsent.front()? {
            Unsent::Cancel(name) => Request::Cancel(name),
            Unsent::Create(_) if self.unanswered.len() >= UNANSWERED => return None,
            Unsent::Create(name) => {
                let (key, options) = self.all.get(self.by_name.get(&name)?)?.request(name);
                Request::Create(key, options)
            }
        })
    }

    pub(crate) fn sent(&mut self) {
        if let Some(Unsent::Create(name)) = self.unsent.pop_front() {
            self.unanswered.push_back((name, Instant::now()));
        }
    }

    /// The time since which the answer to the oldest request for a watch is awaited: since it was
    /// sent, or since the request before it was answered. Answers arrive in order.
    pub(crate) fn unanswered_since(&self) -> Option<Instant> {
        self.unanswered.front().map(|(_, sent)| self.answered.map_or(*sent, |at| at.max(*sent)))
    }

    /// Ends all watches with this error.
    pub(crate) fn refuse(&mut self, error: &Error) {
        for watched in std::mem::take(&mut self.all).values_mut() {
            watched.refuse(error);
        }
        self.by_subject.clear();
        self.resting.clear();
        self.hang_up();
    }

    /// Records for all watches that the next events cannot be delivered.
    pub(crate) fn miss(&mut self) {
        for watched in self.all.values_mut() {
            watched.miss();
        }
    }

    /// The highest revision up to which a watch has reported its events.
    pub(crate) fn reported(&self) -> i64 {
        self.all.values().map(WatchedRange::reported).max().unwrap_or_default()
    }

    pub(crate) fn resync(&self, id: i64) {
        if let Some(watched) = self.all.get(&id) {
            watched.resync();
        }
    }

    /// Every watch that the server has accepted has reported all events up to this revision.
    pub(crate) fn progress(&mut self, revision: i64) {
        for watched in self.all.values_mut() {
            let create = Unsent::Create(watched.name);
            // The server may have answered before it received this request.
            let sent = self.unanswered.iter().any(|(name, _)| *name == watched.name);
            let pending = sent || self.unsent.contains(&create);
            if !pending {
                watched.progress(revision);
            }
        }
    }

    /// Removes an id from those that are not answered: this one, or the oldest if the answer has
    /// none.
    fn answered(&mut self, name: i64) -> Option<i64> {
        let named = self.unanswered.iter().position(|(asked, _)| *asked == name);
        let place = if name > 0 { named? } else { 0 };
        if place == 0 {
            self.answered = Some(Instant::now());
        }
        self.unanswered.remove(place).map(|(asked, _)| asked)
    }

    /// Handles a message of etcd.
    pub(crate) fn receive(&mut self, response: WatchResponse) -> Consequence {
        let response = response.0;
        let mut name = response.watch_id;
        let revision = response.header.map_or(0, |header| header.revision);
        if response.created {
            let asked = self.answered(name);
            // The proxy numbers the watches of each stream from zero, an id that this client never
            // uses.
            if !response.canceled && name <= 0 {
                return Consequence::Proxied;
            }
            // The answer to a refused request may lack the id.
            if name <= 0 {
                name = asked.unwrap_or(name);
            }
        } else if name == ALL && !response.canceled && response.events.is_empty() {
            return Consequence::Progress(revision);
        }
        let Some(id) = self.by_name.get(&name).copied() else { return Consequence::Fine };
        let Some(watched) = self.all.get_mut(&id) else { return Consequence::Fine };
        let beside = watched.others.contains(&name);
        if beside && response.canceled {
            // The first watch still exists, and gets its own refusal if there is one.
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
            if is_stale(&response.cancel_reason) {
                return Consequence::Stale(response.cancel_reason);
            }
            self.by_name.remove(&name);
            watched.refuse(&of_watch(&response.cancel_reason));
            self.end(id);
        } else if response.created {
            if watched.begun(revision) {
                return Consequence::Behind(revision, id);
            }
            if watched.is_ahead_of(revision) {
                return Consequence::Ahead;
            }
        } else {
            watched.deliver(response.events, response.fragment);
            if watched.is_overheard() {
                self.end(id);
            }
        }
        Consequence::Fine
    }
}

#[cfg(test)]
mod tests;
