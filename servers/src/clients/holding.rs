//! The report of a process about a lock, permits or leadership that it held: [`Holding`].

use serde::{Deserialize, Serialize};

/// The kinds of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "holders and checks must know each of them")]
pub enum Room {
    /// A mutex.
    Mutex,
    /// A read-write lock; half of the holders read.
    RwLock,
    /// A semaphore with [`Room::shares`] permits.
    Semaphore,
    /// The lead of a leader latch.
    Latch,
}

impl Room {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Mutex, Self::RwLock, Self::Semaphore, Self::Latch];

    /// Returns the number of shares. All holders together have at most this number; an exclusive
    /// holder has all of them.
    pub fn shares(self) -> u32 {
        match self {
            Self::Mutex | Self::Latch => 1,
            Self::Semaphore => 2,
            Self::RwLock => 1_000,
        }
    }

    /// Returns `true` if all writers of the guarded node are exclusive holders.
    pub fn writers_are_alone(self) -> bool {
        self != Self::Semaphore
    }

    /// Returns three laws: no two hold it, tokens increase, and a former holder writes nothing.
    pub fn laws(self) -> [&'static str; 3] {
        match self {
            Self::Mutex => ["L-MX-1", "L-MX-3", "L-MX-5"],
            Self::RwLock => ["L-RW-1", "L-RW-8", "L-MX-5"],
            Self::Semaphore => ["L-SEM-1", "L-MX-3", "L-MX-5"],
            Self::Latch => ["L-EL-1", "L-EL-1", "L-EL-10"],
        }
    }
}

/// A lock that was held, for as long as its process considered it held without a break. It is
/// reported repeatedly, with the time of the last check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "it is written by several processes")]
pub struct Holding {
    /// The kind.
    pub room: Room,
    /// The path of the directory of its tickets.
    pub path: String,
    /// The part of [`Room::shares`].
    pub share: u32,
    /// The revision of its token.
    pub token: u64,
    /// The time of the question, for the first positive answer.
    pub asked: u64,
    /// The time of that answer.
    pub since: u64,
    /// The time of the question, for the last positive answer.
    pub certain: u64,
    /// The end of the holding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Ending>,
}

/// The end of a holding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "holders and scenes must know each of them")]
pub enum Ending {
    /// The lock was released.
    Over,
    /// The check failed.
    Lost,
    /// A guarded write was rejected, independently of the check.
    Refused,
}
