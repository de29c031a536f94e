//! [`Entry`]: one line of the record of what happened, and what stands in it.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::fault::holding::{Holding, Room};
use crate::history::Value;

/// The nanoseconds of a clock that all processes of this machine share and nobody sets.
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
    /// In which process. Zero is the one that tells the others what to do.
    pub p: usize,
    /// In which session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s: Option<u64>,
    /// Of which call.
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
    /// Somebody calls.
    Inv {
        /// What for.
        op: Op,
    },
    /// He is answered.
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
    /// A watch tells something.
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
    /// Something is done to somebody.
    Nemesis {
        /// What, and to whom.
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
#[expect(clippy::exhaustive_enums, reason = "it is, it is not, or nobody knows")]
pub enum Installed {
    /// It is.
    Installed,
    /// It is not, as it had no place.
    Skipped,
    /// Nobody knows. No verdict follows from such a run.
    Indeterminate,
}

/// What a process can be told to do.
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
        /// What it holds: nobody else writes this.
        value: Value,
        /// Whether it goes with the session.
        ephemeral: bool,
    },
    /// Creates a sequential node, and again if it is not seen after a lost answer.
    Ticket {
        /// Where, up to and with an id of its own.
        path: String,
        /// What it holds: nobody else writes this.
        value: Value,
        /// Whether it goes with the session.
        ephemeral: bool,
    },
    /// Writes a node, whatever it holds.
    Set {
        /// Where.
        path: String,
        /// What it shall hold: nobody else writes this.
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
        /// What it shall hold: nobody else writes this.
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
    /// Reads the children of a node, and tells what becomes of them.
    Observe {
        /// Where.
        path: String,
    },
    /// Stands in a line from now on, again and again, with a client of the process, until it is told to
    /// close that.
    Stand {
        /// For what.
        room: Room,
        /// Where.
        path: String,
        /// The node that whoever holds it writes.
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
    /// At which revision it was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The nodes that are there, or were made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<Seen>,
    /// The time to live of a session in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
}

/// A node, as somebody saw it.
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
    /// With whose session it goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<u64>,
}

/// What a watch tells.
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
        /// When, if the store tells.
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
#[expect(clippy::exhaustive_structs, reason = "whoever reads what servers keep makes them")]
pub struct Fact {
    /// When in the store's own order.
    pub revision: u64,
    /// Which node.
    pub path: String,
    /// What became of it.
    pub kind: Kind,
    /// What it holds, if that is a number.
    pub value: Option<Value>,
    /// With whose session it goes, or went.
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
