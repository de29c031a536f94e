//! [`Task`]: what a racer is told to do.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What is done, again and again.
///
/// A lap of each is what one client does before it does it again. What a lap is in other languages
/// must be the same: docs/benchmarks.md has the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums, reason = "who measures one matches all")]
pub enum Work {
    /// Reads a node as this session last heard of it.
    GetLocal,
    /// Reads a node as it is now.
    Get,
    /// Replaces the data of a node.
    Set,
    /// Replaces the data of a node, by a request that also is refused if there is none.
    SetIfThere,
    /// Creates a node that must not be there and goes with the session, then deletes it.
    CreateDelete,
    /// Takes a lock that nobody else wants, and releases it.
    Lock,
    /// Takes a lock that all others want, and releases it.
    LockContended,
    /// Waits in line for a lock, until all in front have had it.
    Drain,
    /// Takes a lock that only other tasks of one process want, and releases it.
    LockTasks,
    /// Takes one of a few permits that all others want, and gives it back.
    Semaphore,
    /// Takes a lock that all others want, nine times of ten with others who only read.
    ReadWrite,
    /// Changes a node and waits until another session has heard of it.
    Observe,
    /// Stops leading, and waits until another session leads that stood in line just before.
    Resign,
    /// The same, and the other session has stood in line for a while.
    ResignLate,
    /// Leads, and does not stop while its process lives. A lap of the race, which ends the process of
    /// whoever leads, is from then on until another process leads.
    Lead,
}

/// How many permits [`Work::Semaphore`] has.
pub const PERMITS: usize = 4;

/// What a race over some work is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there is no third")]
pub enum Measure {
    /// How many laps are done in a second.
    Rate,
    /// How long half of the laps take at most.
    Latency,
}

/// Some work, by so many at a time, for so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "a line of the protocol")]
pub struct Task {
    /// What is done.
    pub work: Work,
    /// By how many at a time.
    pub clients: usize,
    /// For how long, if it does not say how many laps.
    #[serde(default)]
    pub millis: u64,
    /// How many laps each client does; none if it says for how long.
    #[serde(default)]
    pub laps: u64,
}

impl Work {
    /// All of it, in the order of the table.
    pub const ALL: [Self; 15] = [
        Self::GetLocal,
        Self::Get,
        Self::Set,
        Self::SetIfThere,
        Self::CreateDelete,
        Self::Lock,
        Self::LockContended,
        Self::Drain,
        Self::LockTasks,
        Self::Semaphore,
        Self::ReadWrite,
        Self::Observe,
        Self::Resign,
        Self::ResignLate,
        Self::Lead,
    ];

    /// What decides who is faster.
    pub fn measure(self) -> Measure {
        match self {
            // Between the laps somebody has to come into position.
            Self::Observe | Self::Resign | Self::ResignLate | Self::Lead => Measure::Latency,
            _ => Measure::Rate,
        }
    }
}

impl Task {
    /// Until that much time is over.
    pub fn lasting(work: Work, clients: usize, time: Duration) -> Self {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self { work, clients, millis, laps: 0 }
    }

    /// So many laps of each.
    pub fn laps(work: Work, clients: usize, laps: u64) -> Self {
        Self { work, clients, millis: 0, laps }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::GetLocal => "get local",
            Self::Get => "get",
            Self::Set => "set",
            Self::SetIfThere => "set if there",
            Self::CreateDelete => "create+delete",
            Self::Lock => "lock, alone",
            Self::LockContended => "lock, contended",
            Self::Drain => "lock, drain",
            Self::LockTasks => "lock, one process",
            Self::Semaphore => "semaphore",
            Self::ReadWrite => "read-write lock",
            Self::Observe => "observe",
            Self::Resign => "leader resigns",
            Self::ResignLate => "leader resigns, later",
            Self::Lead => "leader is killed",
        })
    }
}
