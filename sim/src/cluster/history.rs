//! The history of a simulated store: its commits, and the sessions that ended.

use std::time::Duration;

use synod_core::path::Path;
use synod_core::store::{Change, SessionId};

/// One commit of the leader.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// The time since the beginning.
    pub at: Duration,
    /// The changes, each with its revision and the node as of then.
    pub changes: Vec<Change>,
    /// The paths among them that a sequential create produced.
    pub drawn: Vec<Path>,
    /// The author.
    pub by: By,
}

/// The author of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum By {
    /// This process.
    Process(u64),
    /// The store itself, for example when a session expires.
    Store,
    /// A client that the processes of the simulation do not know.
    Stranger,
}

/// A session that the store has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Death {
    /// The session.
    pub session: SessionId,
    /// The process that had opened it.
    pub actor: u64,
    /// The time of the end, since the beginning.
    pub at: Duration,
    /// True if the session expired because its heartbeats stopped.
    pub silent: bool,
}

/// An event for the runner of the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Alarm {
    /// A session has ended.
    Died,
    /// This process crashes now.
    Crash(u64),
    /// The user's task in this process is dropped now.
    UserDies(u64),
}
