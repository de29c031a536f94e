//! [`Task`]: a task for a racer.

use std::fmt;
use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A kind of work that is repeated.
///
/// A lap is the work of one client before it starts again. It must be the same in all languages:
/// docs/benchmarks.md has the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums, reason = "a racer matches all")]
pub enum Work {
    /// Reads a node as this session last saw it.
    GetLocal,
    /// Reads the current state of a node.
    Get,
    /// Replaces the data of a node.
    Set,
    /// Replaces the data of a node, by a request that is refused if the node is missing.
    SetIfThere,
    /// Creates an ephemeral node that must not exist, then deletes it.
    CreateDelete,
    /// Takes an uncontended lock, and releases it.
    Lock,
    /// Takes a lock that all clients want, and releases it.
    LockContended,
    /// Waits for a lock, until all earlier waiters have had it.
    Drain,
    /// Takes a lock that only other tasks of one process want, and releases it.
    LockTasks,
    /// Takes one of a few permits that all clients want, and releases it.
    Semaphore,
    /// Takes a lock that all clients want, nine times of ten shared with other readers.
    ReadWrite,
    /// Adds 1 to a counter that all clients change.
    Increment,
    /// Adds 1 to a counter that the tasks of one process change.
    IncrementTasks,
    /// Takes a hundred unique numbers, which is a block of them.
    Ids,
    /// Adds 1 to each of a few nodes, in one transaction of a function that reads all of them. All
    /// clients want the same nodes.
    Transaction,
    /// Puts an item into a queue that all clients use, and takes one.
    QueueTake,
    /// Puts an item into a queue that all clients use, claims one, and acknowledges it.
    QueueAck,
    /// Puts a bunch of items into a queue of its own, and takes as many.
    QueueBunches,
    /// Submits a task to a crew, and waits for its result. There is one worker for each client, and
    /// one master.
    CrewTasks,
    /// Leaves a partition of many items, and waits until the other members have all of them.
    Partition,
    /// Enters a double barrier and leaves it, as all clients do. A lap is a round of all of them.
    DoubleBarrier,
    /// Sets a shared value, and waits until the copy of another session shows it.
    SharedValue,
    /// Fills a cache with ten thousand nodes.
    CacheSmall,
    /// Fills a cache with a hundred thousand nodes.
    CacheLarge,
    /// The same once, in a process that has just begun: the memory that a cache needs.
    CacheMemory,
    /// Changes one of ten thousand nodes, and waits until the cache of another session shows it.
    CacheSeen,
    /// Keeps a cache of ten thousand nodes equal, of which another process changes a thousand a
    /// second. A lap is a change.
    CacheChanges,
    /// Puts an item into a queue in which many wait, and takes the first.
    QueueLong,
    /// The same with a few waiting items, in the same store.
    QueueShort,
    /// Changes a node and waits until another session gets the event.
    Observe,
    /// Resigns, and waits until another session leads, which became a candidate just before.
    Resign,
    /// The same, with another session that has been a candidate for a while.
    ResignLate,
    /// Leads, and does not stop while its process lives. A lap of the race begins when the leader's
    /// process is killed, and ends when another process leads.
    Lead,
    /// Works for a crew, and does not stop while its process lives. A lap begins when the process
    /// is killed, and ends when its task was done by another worker.
    CrewWorker,
    /// Is the master of a crew, and does not stop while its process lives. A lap begins when the
    /// process is killed, and ends when a task was done that the next master has assigned.
    CrewMaster,
    /// Is an instance of a service while its process lives. A lap begins when the process is
    /// killed, and ends when all clients of another process know that it is gone.
    Instance,
}

/// The number of permits in [`Work::Semaphore`].
pub const PERMITS: usize = 4;

/// Count of numbers that are reserved at a time in [`Work::Ids`], and taken in a lap.
pub const BLOCK: NonZeroU64 = NonZeroU64::new(100).unwrap();

/// The number of nodes in [`Work::Transaction`].
pub const NODES: usize = 4;

/// Number of items that [`Work::QueueBunches`] puts and takes.
pub const BUNCH: NonZeroUsize = NonZeroUsize::new(20).unwrap();

/// The number of items in [`Work::Partition`].
pub const ITEMS: usize = 1_000;

/// The quantity that a race over some work compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a table matches all")]
pub enum Measure {
    /// Laps per second.
    Rate,
    /// The median time of a lap.
    Latency,
    /// The CPU time of a lap.
    Effort,
    /// The memory.
    Memory,
}

/// A kind of work, by a number of clients, for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "a line of the protocol")]
pub struct Task {
    /// The kind of work.
    pub work: Work,
    /// The number of clients.
    pub clients: usize,
    /// The duration, unless `laps` is given.
    #[serde(default)]
    pub millis: u64,
    /// Number of laps that each client does; zero if `millis` is given.
    #[serde(default)]
    pub laps: u64,
    /// `true` if this process survives when another one that does the same work is killed.
    #[serde(default)]
    pub heir: bool,
    /// Number of nodes to cache.
    #[serde(default)]
    pub nodes: usize,
    /// Number of items that wait in a queue from the beginning.
    #[serde(default)]
    pub waiting: usize,
}

impl Work {
    /// All kinds, in the order of the table.
    pub const ALL: [Self; 36] = [
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
        Self::Increment,
        Self::IncrementTasks,
        Self::Ids,
        Self::Transaction,
        Self::QueueTake,
        Self::QueueAck,
        Self::QueueBunches,
        Self::CrewTasks,
        Self::Partition,
        Self::DoubleBarrier,
        Self::SharedValue,
        Self::CacheSmall,
        Self::CacheLarge,
        Self::CacheMemory,
        Self::CacheSeen,
        Self::CacheChanges,
        Self::QueueLong,
        Self::QueueShort,
        Self::Observe,
        Self::Resign,
        Self::ResignLate,
        Self::Lead,
        Self::CrewWorker,
        Self::CrewMaster,
        Self::Instance,
    ];

    /// Decides which racer is faster.
    pub fn measure(self) -> Measure {
        match self {
            // Between the laps, clients have to get into position.
            Self::Partition
            | Self::SharedValue
            | Self::CacheSmall
            | Self::CacheLarge
            | Self::CacheSeen
            | Self::Observe
            | Self::Resign
            | Self::ResignLate => Measure::Latency,
            Self::CacheMemory => Measure::Memory,
            Self::CacheChanges => Measure::Effort,
            _ if self.kills() => Measure::Latency,
            _ => Measure::Rate,
        }
    }

    /// Returns `true` if the work ends with the process that does it, which is killed.
    pub fn kills(self) -> bool {
        matches!(self, Self::Lead | Self::CrewWorker | Self::CrewMaster | Self::Instance)
    }

    /// Returns the number of nodes to cache.
    pub fn nodes(self) -> usize {
        match self {
            Self::CacheSmall | Self::CacheSeen | Self::CacheChanges => 10_000,
            Self::CacheLarge | Self::CacheMemory => 100_000,
            _ => 0,
        }
    }

    /// Returns the number of items that wait in a queue from the beginning.
    pub fn waiting(self) -> usize {
        match self {
            Self::QueueLong => 100_000,
            Self::QueueShort => 100,
            _ => 0,
        }
    }

    /// Returns `true` if the requests of the work are counted: they are few enough not to take
    /// minutes, and no other process sends any meanwhile.
    pub fn is_counted(self) -> bool {
        let many = matches!(
            self,
            Self::QueueLong | Self::CacheLarge | Self::CacheMemory | Self::CacheChanges
        );
        !many && !self.kills()
    }
}

impl Task {
    /// A task that lasts for this time.
    pub fn lasting(work: Work, clients: usize, time: Duration) -> Self {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self { millis, ..Self::laps(work, clients, 0) }
    }

    /// A task of this many laps per client.
    pub fn laps(work: Work, clients: usize, laps: u64) -> Self {
        let (nodes, waiting) = (work.nodes(), work.waiting());
        Self { work, clients, millis: 0, laps, heir: false, nodes, waiting }
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
            Self::Increment => "increment",
            Self::IncrementTasks => "increment, one process",
            Self::Ids => "ids, a hundred",
            Self::Transaction => "transaction",
            Self::QueueTake => "queue, put and take",
            Self::QueueAck => "queue, put and acknowledge",
            Self::QueueBunches => "queue, bunches of 20",
            Self::CrewTasks => "crew, a task",
            Self::Partition => "partition settles",
            Self::DoubleBarrier => "double barrier",
            Self::SharedValue => "shared value",
            Self::CacheSmall => "cache of 10,000",
            Self::CacheLarge => "cache of 100,000",
            Self::CacheMemory => "cache of 100,000, memory",
            Self::CacheSeen => "cache of 10,000, set to seen",
            Self::CacheChanges => "cache of 10,000, 1,000 changes/s",
            Self::QueueLong => "queue of 100,000",
            Self::QueueShort => "queue of 100",
            Self::Observe => "observe",
            Self::Resign => "leader resigns",
            Self::ResignLate => "leader resigns, later",
            Self::Lead => "leader is killed",
            Self::CrewWorker => "worker is killed",
            Self::CrewMaster => "master is killed",
            Self::Instance => "instance is killed",
        })
    }
}
