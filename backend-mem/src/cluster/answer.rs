//! What a server says: answers, and what watches are told.

use std::fmt;
use std::time::Duration;

use synod_core::error::ErrorKind;
use synod_core::store::{Change, Feed, Outcome, Query, Revision, SessionId, View};

use crate::cluster::words::seen;

/// What a client is told of a request. With the revision that the server had then.
#[derive(Debug)]
pub(super) enum Answer {
    Opened(SessionId, Duration),
    Attached,
    /// The server is behind what the client has seen.
    Behind,
    View(View, Revision),
    /// Of a watch, by its number.
    Observing(View, u64, Revision),
    Outcome(Outcome, Revision),
    Done,
    /// The session is over.
    Over,
    /// The server would not.
    Refused(ErrorKind),
    /// The connection is gone, and what became of the request nobody knows.
    Broken,
}

/// Something on its way to a client.
#[derive(Debug)]
pub(super) enum Letter {
    Answer { call: u64, answer: Answer },
    News { watch: u64, changes: Vec<Change>, at: Revision },
    ReadAgain { watch: u64, at: Revision },
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
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened(session, _) => write!(f, "session {session}"),
            Self::Attached => f.write_str("connected"),
            Self::Behind => f.write_str("this server is behind"),
            Self::View(view, at) => write!(f, "{}", seen(view, *at)),
            Self::Observing(view, ..) => write!(f, "{}; watches", seen(view, view.revision)),
            Self::Outcome(Outcome::Committed(_), at) => write!(f, "done, #{at}"),
            Self::Outcome(Outcome::Rejected(no), _) => write!(f, "rejected: {}", no.why),
            Self::Done => f.write_str("done"),
            Self::Over => f.write_str("the session is over"),
            Self::Refused(kind) => write!(f, "refused: {kind}"),
            Self::Broken => f.write_str("no answer"),
        }
    }
}
