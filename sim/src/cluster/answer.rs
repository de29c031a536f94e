//! The messages of a server: answers, and events of watches.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use synod_core::clock::Instant;
use synod_core::error::{Effect, ErrorKind};
use synod_core::store::{Change, Feed, Outcome, Query, Revision, SessionId, View};

use crate::cluster::trace_text::seen;

/// The answer to a request, with the revision of the server at that time.
#[derive(Debug)]
pub(super) enum Answer {
    Opened(SessionId, Duration),
    /// The session is reconnected, with this time to live, counted from this instant.
    Attached(Duration, Instant),
    /// The server is behind: its revision is lower than one that the client has seen.
    Behind,
    View(View, Revision),
    /// The view of a watch, and its number.
    Observing(View, u64, Revision),
    Outcome(Outcome, Revision),
    Done,
    /// The session is over.
    Over,
    /// The server rejects the request; the effect tells whether it may have been applied
    /// nevertheless.
    Refused(ErrorKind, Effect),
    /// The connection broke, and the effect of the request is unknown.
    Broken,
}

/// A message in flight to a client.
#[derive(Debug)]
pub(super) enum Letter {
    Answer {
        call: u64,
        answer: Answer,
    },
    /// The outbox of this watch has a new entry.
    News {
        watch: u64,
    },
    ReadAgain {
        watch: u64,
        at: Revision,
    },
}

/// The state of a watch at both of its ends.
#[derive(Debug)]
pub(super) struct Watching {
    pub(super) query: Query,
    pub(super) feed: Feed,
    /// The revision up to which the client was notified.
    pub(super) told: Revision,
    /// The revision up to which the server has sent.
    pub(super) sent: Revision,
    /// The events in flight on the current connection: the changes of each commit.
    pub(super) outbox: VecDeque<(Vec<Change>, Revision)>,
}

impl Watching {
    /// Creates a watch that starts at the revision of its view.
    pub(super) fn new(query: Query, feed: Feed, at: Revision) -> Self {
        Self { query, feed, told: at, sent: at, outbox: VecDeque::new() }
    }

    /// Takes the events in flight: of one commit, or of all of them, merged to the last change of
    /// each path.
    pub(super) fn take(&mut self, joined: bool) -> Option<(Vec<Change>, Revision)> {
        let (mut changes, mut at) = self.outbox.pop_front()?;
        while joined && let Some((later, then)) = self.outbox.pop_front() {
            changes.retain(|change| later.iter().all(|newer| newer.path != change.path));
            changes.extend(later);
            at = then;
        }
        Some((changes, at))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened(session, _) => write!(f, "session {session}"),
            Self::Attached(ttl, _) => write!(f, "connected, time to live {ttl:?}"),
            Self::Behind => f.write_str("this server lags"),
            Self::View(view, at) => write!(f, "{}", seen(view, *at)),
            Self::Observing(view, ..) => write!(f, "{}; watches", seen(view, view.revision)),
            Self::Outcome(Outcome::Committed(_), at) => write!(f, "done, #{at}"),
            Self::Outcome(Outcome::Rejected(no), _) => write!(f, "rejected: {}", no.reason),
            Self::Done => f.write_str("done"),
            Self::Over => f.write_str("the session is over"),
            Self::Refused(kind, effect) => write!(f, "refused: {kind}, effect {effect:?}"),
            Self::Broken => f.write_str("no answer"),
        }
    }
}
