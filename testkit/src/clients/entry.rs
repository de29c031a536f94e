//! [`Entry`]: one line of the record of a run, and its parts.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::clients::deed::{Deed, Part};
use crate::clients::holding::{Holding, Room};
use crate::history::Value;

/// The nanoseconds of a clock that all processes of this machine share and that is never set.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default()
}

/// One event of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "it is written by several processes")]
pub struct Entry {
    /// The time, by [`now`]: before a call is sent, after an answer has arrived.
    pub t: u64,
    /// The process. Zero is the controller.
    pub p: usize,
    /// The session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s: Option<u64>,
    /// The call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The event.
    #[serde(flatten)]
    pub what: What,
}

/// The kind of event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ev", rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "checkers must know each of them")]
pub enum What {
    /// A process calls.
    Inv {
        /// The operation.
        op: Op,
    },
    /// The call is answered.
    Ok {
        /// The answer.
        answer: Answer,
    },
    /// It certainly never happens.
    Fail {
        /// The kind of the error, and its text.
        why: String,
    },
    /// It happens at most once, now or later.
    Info {
        /// The kind of the error, and its text.
        why: String,
    },
    /// An event of a watch.
    Event {
        /// The event.
        told: Told,
    },
    /// The belief of a process about its session.
    Belief {
        /// `live`, `suspended` or `lost`.
        status: String,
        /// When it last found that the session was certain. The clock was read before.
        certain: Option<u64>,
    },
    /// The belief of a process to hold something.
    Holding {
        /// The belief.
        holding: Holding,
    },
    /// What a process did with a queue or a crew.
    Deed {
        /// What.
        #[serde(flatten)]
        deed: Deed,
    },
    /// A task of a process has panicked. The process ends.
    Panic {
        /// What it said, and where.
        why: String,
    },
    /// A fault is injected.
    Nemesis {
        /// The fault, and its target.
        what: String,
        /// Whether it took place.
        outcome: Installed,
    },
    /// The servers report how long the session's lease lives if it is not renewed again.
    Lease {
        /// It lives at least until then.
        until: u64,
    },
    /// One write, as the servers kept it.
    Truth {
        /// The write.
        fact: Fact,
    },
}

/// Whether a fault took place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "it is, it is not, or it is unknown")]
pub enum Installed {
    /// It did.
    Installed,
    /// It did not, because it could not be placed.
    Skipped,
    /// Unknown. No verdict follows from such a run.
    Indeterminate,
}

/// The operations that a process can execute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "workers and checkers must know each of them")]
pub enum Op {
    /// Opens a session. The previous one is dropped.
    Open {
        /// Its time to live in milliseconds.
        ttl: u64,
    },
    /// Closes the session, or the client of what the process contends for or takes part in.
    Close,
    /// Ends the process without closing the session.
    Exit,
    /// Creates a node.
    Create {
        /// The path.
        path: String,
        /// The data, which no other write contains.
        value: Value,
        /// Whether the session owns it.
        ephemeral: bool,
    },
    /// Creates a sequential node, and again if it is missing after a lost answer.
    Ticket {
        /// The path, with an id of its own at the end.
        path: String,
        /// The data, which no other write contains.
        value: Value,
        /// Whether the session owns it.
        ephemeral: bool,
    },
    /// Writes a node in any version.
    Set {
        /// The path.
        path: String,
        /// The new data, which no other write contains.
        value: Value,
    },
    /// Writes a node if it has a certain version.
    Cas {
        /// The path.
        path: String,
        /// The data in that version.
        from: Value,
        /// The version.
        version: u64,
        /// The new data, which no other write contains.
        value: Value,
    },
    /// Removes a node.
    Delete {
        /// The path.
        path: String,
    },
    /// Reads a node.
    Read {
        /// The path.
        path: String,
        /// Whether it may lag.
        local: bool,
    },
    /// Reads the children of a node.
    List {
        /// The path.
        path: String,
        /// Whether it may lag.
        local: bool,
    },
    /// Reads the children of a node, and reports their changes.
    Observe {
        /// The path.
        path: String,
    },
    /// Contends for a lock from now on, again and again, with a client of the process, until that
    /// is closed.
    Stand {
        /// The kind of lock.
        room: Room,
        /// The path.
        path: String,
        /// The node that the holder writes.
        data: String,
        /// The time to live of the client's sessions in milliseconds.
        ttl: u64,
    },
    /// Takes this part in a queue or a crew from now on, with a client of the process, until that is
    /// closed.
    Serve {
        /// The part.
        part: Part,
        /// The path of the queue or the crew.
        path: String,
        /// The first of its items or tasks.
        first: Value,
        /// How many there are.
        count: u64,
        /// The time to live of the client's sessions in milliseconds.
        ttl: u64,
    },
    /// Does nothing. The answer shows that the process runs.
    Ping,
}

/// The answer to a call. Fields that do not apply are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::exhaustive_structs, reason = "it is written by several processes")]
pub struct Answer {
    /// Why the store rejected it; then nothing was applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The revision of its commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The nodes that were read or created.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<Seen>,
    /// The time to live of a session in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
}

/// A node as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::exhaustive_structs, reason = "it is written by several processes")]
pub struct Seen {
    /// The path.
    pub path: String,
    /// The data, if it is a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Its version.
    pub version: u64,
    /// The revision of its creation.
    pub created: u64,
    /// The revision of its last write.
    pub modified: u64,
    /// Its sequence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// The session that owns it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<u64>,
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "told", rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "checkers must know each of them")]
pub enum Told {
    /// A node was created, written or deleted.
    Changed {
        /// The path.
        path: String,
        /// The kind of change.
        kind: Kind,
        /// The revision, if the store reports it.
        revision: Option<u64>,
    },
    /// Something may have been missed.
    Resync,
    /// The result of the read after that.
    View {
        /// All nodes.
        nodes: Vec<Seen>,
    },
    /// It ended with its session.
    Ended,
    /// It ended with an error.
    Failed,
}

/// How a node changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "a node is created, written and deleted")]
pub enum Kind {
    /// It was created.
    Created,
    /// It was written.
    Updated,
    /// It was deleted.
    Deleted,
}

/// One write, as the servers kept it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "readers of what servers keep make them")]
pub struct Fact {
    /// The revision.
    pub revision: u64,
    /// The path.
    pub path: String,
    /// The kind of change.
    pub kind: Kind,
    /// The data, if it is a number.
    pub value: Option<Value>,
    /// The session that owns it, or owned it.
    pub owner: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::deed::Effect;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let op = Op::Cas { path: "/r/1".into(), from: 1, version: u64::MAX, value: 2 };
        let told =
            Told::Changed { path: "/r/1".into(), kind: Kind::Updated, revision: Some(u64::MAX) };
        for what in [
            What::Inv { op },
            What::Event { told },
            What::Belief { status: "live".into(), certain: Some(1) },
            What::Deed { deed: Deed::Took { item: Some(1), effect: Effect::Done } },
            What::Deed { deed: Deed::Rests },
            What::Nemesis { what: "kill 0".into(), outcome: Installed::Skipped },
        ] {
            let entry = Entry { t: now(), p: 1, s: Some(u64::MAX), id: None, what };
            let line = serde_json::to_string(&entry).expect("it is plain");
            assert_eq!(serde_json::from_str::<Entry>(&line).expect("it was written so"), entry);
        }
    }

    #[test]
    fn the_clock_goes_on() {
        let before = now();
        assert!(before > 0 && now() >= before);
    }
}
