//! [`Link`]: the connection of one session to one server, and its requests.

use std::collections::BTreeMap;
use std::time::Duration;

use synod_core::clock::Instant;
use synod_core::store::{Feed, Query, Revision, SessionId, Txn};
use tokio::sync::{Notify, oneshot};

use crate::cluster::answer::{Answer, Watching};
use crate::cluster::trace_text::{Asked, said};

/// A connection, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LinkId(pub(super) usize);

/// A session's connection to any server.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) actor: u64,
    pub(super) session: Option<SessionId>,
    /// Counts the connections: messages of an old one are discarded.
    pub(super) epoch: u64,
    /// The server, while it is connected or connecting.
    pub(super) server: Option<usize>,
    pub(super) is_up: bool,
    /// The last connection that the leader accepted for the session.
    pub(super) attached: u64,
    /// The newest revision that the client was shown.
    pub(super) seen: Revision,
    /// The arrival times of the last request and the last answer, which later ones must not
    /// overtake.
    pub(super) there: Option<Instant>,
    pub(super) back: Option<Instant>,
    /// The arrival time of the last event, which later ones must not overtake.
    pub(super) told: Option<Instant>,
    /// The calls that wait for an answer.
    pub(super) pending: BTreeMap<u64, Pending>,
    pub(super) watching: BTreeMap<u64, Watching>,
    /// Notified when it breaks.
    pub(super) broken: std::sync::Arc<Notify>,
    /// The time to live with which the session was opened.
    pub(super) opened: Duration,
    /// The length of the log when its session ended, once that was noted.
    pub(super) ended: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) tell: oneshot::Sender<Answer>,
    pub(super) sent: Instant,
}

/// A request of a client.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) call: u64,
    pub(super) link: LinkId,
    pub(super) epoch: u64,
    pub(super) actor: u64,
    pub(super) server: usize,
    /// True if the request arrives although its connection is gone.
    pub(super) late: bool,
    pub(super) ask: Ask,
}

#[derive(Debug)]
pub(super) enum Ask {
    Open(Duration),
    /// Continues a session over a new connection.
    Attach,
    Beat,
    Read(Query),
    Watch(Query, Feed),
    Commit(Txn),
    Close,
}

impl Link {
    pub(super) fn new(actor: u64) -> Self {
        Self {
            actor,
            session: None,
            epoch: 0,
            server: None,
            is_up: false,
            attached: 0,
            seen: Revision::ZERO,
            there: None,
            back: None,
            told: None,
            pending: BTreeMap::new(),
            watching: BTreeMap::new(),
            broken: std::sync::Arc::default(),
            opened: Duration::ZERO,
            ended: None,
        }
    }

    /// The number of watches that have a reader.
    pub(super) fn watches(&mut self) -> usize {
        self.watching.retain(|_, watching| !watching.feed.is_over());
        self.watching.len()
    }
}

impl std::fmt::Display for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open(ttl) => write!(f, "open a session, time to live {ttl:?}"),
            Self::Attach => f.write_str("connect again"),
            Self::Beat => f.write_str("heartbeat"),
            Self::Read(query) => write!(f, "read {}", Asked(query)),
            Self::Watch(query, _) => write!(f, "watch {}", Asked(query)),
            Self::Commit(txn) => {
                let ops = txn.ops.iter().map(said).collect::<Vec<_>>().join(", ");
                let look = txn.look.as_ref().map(|look| {
                    let when = if txn.look_if_rejected { ", if rejected" } else { "" };
                    format!(", look at {}{when}", Asked(look))
                });
                write!(f, "{ops}{}", look.unwrap_or_default())
            }
            Self::Close => f.write_str("close the session"),
        }
    }
}
