//! [`Entry`]: one line of the record of what happened, and what stands in it.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::fault::holding::{Holding, Room};
use crate::history::Value;

/// The nanoseconds of a clock that all processes of this machine share and that is never set.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default()
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "it is written by several processes")]
pub struct Entry {
    /// When, by [`now`]: before a call is sent, after an answer is there.
    pub t: u64,
    /// The process. Zero is the controller.
    pub p: usize,
    /// The session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s: Option<u64>,
    /// The call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ev", rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "checkers must know each of them")]
pub enum What {
    /// A process calls.
    Inv {
        /// What for.
        op: Op,
    },
    /// The call is answered.
    Ok {
        /// What.
        answer: Answer,
    },
    /// It certainly never happens.
    Fail {
        /// The kind of the error, and what it says.
        why: String,
    },
    /// It happens at most once, now or later.
    Info {
        /// The kind of the error, and what it says.
        why: String,
    },
    /// An event of a watch.
    Event {
        /// What.
        told: Told,
    },
    /// What a process believes of its session.
    Belief {
        /// `live`, `suspended` or `lost`.
        status: String,
        /// When it last found that the session certainly lives. The clock was read before.
        certain: Option<u64>,
    },
    /// What a process believes to hold.
    Holding {
        /// That.
        holding: Holding,
    },
    /// A fault is injected.
    Nemesis {
        /// The fault, and its target.
        what: String,
        /// Whether it was.
        outcome: Installed,
    },
    /// What the servers kept of one write.
    Truth {
        /// That.
        fact: Fact,
    },
}

/// Whether a fault is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "it is, it is not, or it is unknown")]
pub enum Installed {
    /// It is.
    Installed,
    /// It is not, as it had no place.
    Skipped,
    /// Unknown. No verdict follows from such a run.
    Indeterminate,
}

/// The operations that a process can execute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "workers and checkers must know each of them")]
pub enum Op {
    /// Opens a session. The one before is let go.
    Open {
        /// Its time to live in milliseconds.
        ttl: u64,
    },
    /// Closes it, or the client that stands in lines.
    Close,
    /// Ends without a word to the server.
    Exit,
    /// Creates a node.
    Create {
        /// Where.
        path: String,
        /// The data, which no other write contains.
        value: Value,
        /// Whether it goes with the session.
        ephemeral: bool,
    },
    /// Creates a sequential node, and again if it is not seen after a lost answer.
    Ticket {
        /// Where, up to and with an id of its own.
        path: String,
        /// The data, which no other write contains.
        value: Value,
        /// Whether it goes with the session.
        ephemeral: bool,
    },
    /// Writes a node, whatever it holds.
    Set {
        /// Where.
        path: String,
        /// The new data, which no other write contains.
        value: Value,
    },
    /// Writes a node if it is in a version.
    Cas {
        /// Where.
        path: String,
        /// What it holds in that version.
        from: Value,
        /// That version.
        version: u64,
        /// The new data, which no other write contains.
        value: Value,
    },
    /// Removes a node.
    Delete {
        /// Where.
        path: String,
    },
    /// Reads a node.
    Read {
        /// Where.
        path: String,
        /// Whether it may lag.
        local: bool,
    },
    /// Reads the children of a node.
    List {
        /// Where.
        path: String,
        /// Whether it may lag.
        local: bool,
    },
    /// Reads the children of a node, and reports their changes.
    Observe {
        /// Where.
        path: String,
    },
    /// Contends for a lock from now on, again and again, with a client of the process, until that
    /// is closed.
    Stand {
        /// For what.
        room: Room,
        /// Where.
        path: String,
        /// The node that the holder writes.
        data: String,
        /// The time to live of the client's sessions in milliseconds.
        ttl: u64,
    },
    /// Does nothing. It is answered when the process runs.
    Ping,
}

/// What a call is answered. What it has nothing to say of is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::exhaustive_structs, reason = "it is written by several processes")]
pub struct Answer {
    /// Why the store refused; then nothing was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The revision of its commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The nodes that are there, or were made.
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
    /// Where it is.
    pub path: String,
    /// What it holds, if that is a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Its version.
    pub version: u64,
    /// When it was made.
    pub created: u64,
    /// When it was last written.
    pub modified: u64,
    /// Its place among tickets.
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
    /// A node came, changed or went.
    Changed {
        /// Which.
        path: String,
        /// How.
        kind: Kind,
        /// The revision, if the store reports it.
        revision: Option<u64>,
    },
    /// Something may have been missed.
    Resync,
    /// What was read after that.
    View {
        /// All of them.
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
#[expect(clippy::exhaustive_enums, reason = "a node comes, changes and goes")]
pub enum Kind {
    /// It came.
    Created,
    /// It was written.
    Updated,
    /// It went.
    Deleted,
}

/// One write, as the servers kept it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "readers of what servers keep make them")]
pub struct Fact {
    /// When in the store's own order.
    pub revision: u64,
    /// Which node.
    pub path: String,
    /// What became of it.
    pub kind: Kind,
    /// What it holds, if that is a number.
    pub value: Option<Value>,
    /// The session that owns it, or owned it.
    pub owner: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let op = Op::Cas { path: "/r/1".into(), from: 1, version: u64::MAX, value: 2 };
        let told =
            Told::Changed { path: "/r/1".into(), kind: Kind::Updated, revision: Some(u64::MAX) };
        for what in [
            What::Inv { op },
            What::Event { told },
            What::Belief { status: "live".into(), certain: Some(1) },
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
