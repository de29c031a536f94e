//! A line of the record of a run, and its parts: [`Entry`].

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::clients::deed::{Deed, Part};
use crate::clients::holding::{Holding, Room};
use synod_testkit::history::Value;

/// Returns the time in nanoseconds, by a clock that all processes of this machine share and that is
/// never set.
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

/// The kind of an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ev", rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "checkers must know each of them")]
pub enum What {
    /// A call is sent.
    Inv {
        /// The operation.
        op: Op,
    },
    /// A call is answered.
    Ok {
        /// The answer.
        answer: Answer,
    },
    /// A call certainly never happens.
    Fail {
        /// The kind of the error, and its text.
        why: String,
    },
    /// A call happens at most once, now or later.
    Info {
        /// The kind of the error, and its text.
        why: String,
    },
    /// An event of a watch.
    Event {
        /// The event.
        told: Told,
    },
    /// The state of a session, as a process reports it.
    Belief {
        /// `live`, `suspended` or `lost`.
        status: String,
        /// The time at which the session was last certain. The clock was read before the status.
        certain: Option<u64>,
    },
    /// The report of a process that it holds a lock.
    Holding {
        /// The claim to hold it.
        holding: Holding,
    },
    /// An action of a process on a queue or a crew.
    Deed {
        /// The action.
        #[serde(flatten)]
        deed: Deed,
    },
    /// A task of a process has panicked. The process ends.
    Panic {
        /// The message, and its place.
        why: String,
    },
    /// A fault is injected.
    Nemesis {
        /// The fault, and its target.
        what: String,
        /// The state of the injection.
        outcome: Installed,
    },
    /// The report of the servers about the end of the lease of a session if it is not renewed
    /// again.
    Lease {
        /// The minimum time until which it lives.
        until: u64,
    },
    /// One write, as the servers kept it.
    Truth {
        /// The write.
        fact: Fact,
    },
}

/// The state of the injection of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "it is, it is not, or it is unknown")]
pub enum Installed {
    /// The fault was injected.
    Installed,
    /// The fault could not be injected.
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
        /// The TTL in milliseconds.
        ttl: u64,
    },
    /// Closes the session, or the client of the recipes in which the process takes part.
    Close,
    /// Ends the process without closing the session.
    Exit,
    /// Creates a node.
    Create {
        /// The path.
        path: String,
        /// The data, which no other write contains.
        value: Value,
        /// `true` if the session owns it.
        ephemeral: bool,
    },
    /// Creates a sequential node, and repeats the create if the node is missing after a lost
    /// answer.
    Ticket {
        /// The path, with a unique id at the end.
        path: String,
        /// The data, which no other write contains.
        value: Value,
        /// `true` if the session owns it.
        ephemeral: bool,
    },
    /// Writes a node in any version.
    Set {
        /// The path.
        path: String,
        /// The new data, which no other write contains.
        value: Value,
    },
    /// Writes a node if it has the given version.
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
        /// `true` if the read may lag.
        local: bool,
    },
    /// Reads the children of a node.
    List {
        /// The path.
        path: String,
        /// `true` if the read may lag.
        local: bool,
    },
    /// Reads the children of a node, and reports their changes.
    Observe {
        /// The path.
        path: String,
    },
    /// Contends for a lock repeatedly from now on, with a client of the process, until that client
    /// is closed.
    Stand {
        /// The kind of lock.
        room: Room,
        /// The path.
        path: String,
        /// The node that the holder writes.
        data: String,
        /// The TTL of the client's sessions in milliseconds.
        ttl: u64,
    },
    /// Takes this part in a queue or a crew from now on, with a client of the process, until that
    /// client is closed.
    Serve {
        /// The part.
        part: Part,
        /// The path of the queue or the crew.
        path: String,
        /// The first of its items or tasks.
        first: Value,
        /// The number of items or tasks.
        count: u64,
        /// The TTL of the client's sessions in milliseconds.
        ttl: u64,
    },
    /// Does nothing. The answer shows that the process runs.
    Ping,
}

/// The answer to a call. Fields that do not apply are omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::exhaustive_structs, reason = "it is written by several processes")]
pub struct Answer {
    /// The reason of the store for a rejection; nothing was applied then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The revision of its commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The nodes that were read or created.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<Seen>,
    /// The TTL of a session in milliseconds.
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
    /// An event may have been missed.
    Resync,
    /// The result of the read after that.
    View {
        /// All nodes.
        nodes: Vec<Seen>,
    },
    /// The watch ended with its session.
    Ended,
    /// The watch ended with an error.
    Failed,
}

/// The kind of a change of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "a node is created, written and deleted")]
pub enum Kind {
    /// The node was created.
    Created,
    /// The node was written.
    Updated,
    /// The node was deleted.
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
