//! [`Job`] and [`Rival`]: the work of the processes, and the ways to do it.

use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use crate::racer::Failure;

/// The work of the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "every kind is matched")]
pub enum Job {
    /// All take one lock in turn.
    Lock,
    /// One writes, another measures the time until it sees the data.
    Wake,
    /// The holder of a lock is killed; another one waits for it.
    Death,
    /// Each puts an item, and takes one.
    QueueTake,
    /// Each puts an item, claims one, and acknowledges it.
    QueueAck,
    /// Each adds one to a number.
    Counter,
    /// A cache is filled with ten thousand nodes.
    CacheSmall,
    /// A cache is filled with a hundred thousand nodes.
    CacheLarge,
}

/// A way to do the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "every kind is matched")]
pub enum Rival {
    /// The recipes of synod on the store in a directory.
    Directory,
    /// The recipes of synod on ZooKeeper.
    Zookeeper,
    /// The recipes of synod on etcd.
    Etcd,
    /// A lock of a file, as `flock(1)` takes it.
    Flock,
    /// A lock of a record of a file.
    Fcntl,
    /// Tables of SQLite. Who waits polls once a millisecond.
    Table,
}

/// The names of all jobs, as in the tables.
pub(super) const JOBS: [(Job, &str); 8] = [
    (Job::Lock, "lock"),
    (Job::Wake, "wake"),
    (Job::Death, "death"),
    (Job::QueueTake, "queue-take"),
    (Job::QueueAck, "queue-ack"),
    (Job::Counter, "counter"),
    (Job::CacheSmall, "cache-small"),
    (Job::CacheLarge, "cache-large"),
];

pub(super) const RIVALS: [(Rival, &str); 6] = [
    (Rival::Directory, "directory"),
    (Rival::Zookeeper, "zookeeper"),
    (Rival::Etcd, "etcd"),
    (Rival::Flock, "flock"),
    (Rival::Fcntl, "fcntl"),
    (Rival::Table, "table"),
];

impl Job {
    /// The numbers of processes for which it is measured.
    pub(super) fn processes(self) -> &'static [usize] {
        match self {
            Self::Lock => &[1, 2, 8, 64],
            Self::Wake | Self::Death => &[2],
            Self::QueueTake | Self::QueueAck => &[1, 4],
            Self::Counter => &[1, 8],
            Self::CacheSmall | Self::CacheLarge => &[1],
        }
    }

    /// The number of nodes in a cache.
    pub(super) fn nodes(self) -> usize {
        match self {
            Self::CacheSmall => 10_000,
            Self::CacheLarge => 100_000,
            _ => 0,
        }
    }
}

impl Rival {
    /// Returns `true` if there is such a way.
    pub(super) fn does(self, job: Job) -> bool {
        match self {
            Self::Directory | Self::Zookeeper | Self::Etcd => true,
            Self::Flock | Self::Fcntl => matches!(job, Job::Lock | Job::Death),
            // Nobody notices the death of a holder that is a row.
            Self::Table => !matches!(job, Job::Death | Job::CacheSmall | Job::CacheLarge),
        }
    }
}

fn name<T: PartialEq>(all: &[(T, &'static str)], one: &T) -> &'static str {
    all.iter().find(|(other, _)| other == one).map_or("", |(_, name)| name)
}

fn named<T: Copy>(all: &[(T, &'static str)], text: &str) -> Result<T, Failure> {
    let found = all.iter().find(|(_, name)| *name == text);
    found.map(|(one, _)| *one).ok_or_else(|| format!("nothing is named {text:?}").into())
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name(&JOBS, self))
    }
}

impl FromStr for Job {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        named(&JOBS, text)
    }
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name(&RIVALS, self))
    }
}

impl FromStr for Rival {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        named(&RIVALS, text)
    }
}

/// Adds one to the number in a file, in two steps: two processes at once would lose an addition.
pub(super) fn add_one(file: &Path) -> Result<(), Failure> {
    let sum = number(file)? + 1;
    Ok(fs::write(file, sum.to_string())?)
}

/// Reads the number in a file: zero if it is missing.
pub(super) fn number(file: &Path) -> Result<u64, Failure> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(text.parse()?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error.into()),
    }
}
