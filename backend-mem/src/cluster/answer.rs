//! What a server says: answers, and what watches are told.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use synod_core::clock::Instant;
use synod_core::error::{Effect, ErrorKind};
use synod_core::store::{Change, Feed, Outcome, Query, Revision, SessionId, View};

use crate::cluster::words::seen;

/// What a client is told of a request. With the revision that the server had then.
#[derive(Debug)]
pub(super) enum Answer {
    Opened(SessionId, Duration),
    /// Connected again, with this time to live, counted from this moment.
    Attached(Duration, Instant),
    /// The server is behind what the client has seen.
    Behind,
    View(View, Revision),
    /// Of a watch, by its number.
    Observing(View, u64, Revision),
    Outcome(Outcome, Revision),
    Done,
    /// The session is over.
    Over,
    /// The server refuses, and says whether it may have done it all the same.
    Refused(ErrorKind, Effect),
    /// The connection is gone, and what became of the request nobody knows.
    Broken,
}

/// Something on its way to a client.
#[derive(Debug)]
pub(super) enum Letter {
    Answer {
        call: u64,
        answer: Answer,
    },
    /// That there is something in the outbox of this watch.
    News {
        watch: u64,
    },
    ReadAgain {
        watch: u64,
        at: Revision,
    },
}

/// A watch, as both its ends know it.
#[derive(Debug)]
pub(super) struct Watching {
    pub(super) query: Query,
    pub(super) feed: Feed,
    /// Up to where the client was told.
    pub(super) told: Revision,
    /// Up to where the server has sent.
    pub(super) sent: Revision,
    /// What is on its way over the connection that is up: what each commit changed.
    pub(super) outbox: VecDeque<(Vec<Change>, Revision)>,
}

impl Watching {
    /// A watch that begins where its view ends.
    pub(super) fn new(query: Query, feed: Feed, at: Revision) -> Self {
        Self { query, feed, told: at, sent: at, outbox: VecDeque::new() }
    }

    /// Takes what is on its way: one commit, or all of them as one, each path with its last change.
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
            Self::Behind => f.write_str("this server is behind"),
            Self::View(view, at) => write!(f, "{}", seen(view, *at)),
            Self::Observing(view, ..) => write!(f, "{}; watches", seen(view, view.revision)),
            Self::Outcome(Outcome::Committed(_), at) => write!(f, "done, #{at}"),
            Self::Outcome(Outcome::Rejected(no), _) => write!(f, "rejected: {}", no.why),
            Self::Done => f.write_str("done"),
            Self::Over => f.write_str("the session is over"),
            Self::Refused(kind, effect) => write!(f, "refused: {kind}, effect {effect:?}"),
            Self::Broken => f.write_str("no answer"),
        }
    }
}
