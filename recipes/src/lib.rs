//! The recipes that applications use, in modules by kind.
//!
//! A recipe is created from a [`Client`](synod_core::client::Client) and a path, sends nothing
//! until it is used, and has the same meaning on every store. All clients that use the same path
//! share the recipe there, in any process. The documentation of its type lists its guarantees, its
//! assumptions, its cost in calls to the store, each one round trip, as counted by the conformance
//! cases, and the programs of other libraries that can share its path. `tests/interop/` tests these
//! with Curator 5.4, kazoo 2.10, etcdctl and etcd's Go package.
//!
//! A wait has no time limit; [`within`] sets one. [`inspect()`](lock::inspect()) shows the holders
//! and the waiters of a lock or an election, and
//! [`request_release()`](lock::request_release()) requests that a holder releases.
//!
//! Every guard implements [`Held`] and [`Release`], with two exceptions. A
//! [`MultiGuard`](lock::MultiGuard) has several paths, each with its own token: each of its
//! [`guards`](lock::MultiGuard::guards) implements the traits. A
//! [`Leadership`](election::Leadership) is only [`Held`]: the candidacy or the work that it belongs
//! to releases it.
//!
//! The recipes use only the public interface of `synod-core`, so other crates can add recipes in
//! the same way.
//!
//! # The list
//!
//! **Locks**
//!
//! | | |
//! |---|---|
//! | [`Mutex`](lock::Mutex) | a lock that all clients of the same path share: one holder at a time, in the order of the requests |
//! | [`RwLock`](lock::RwLock) | a lock that many readers or one writer can hold, granted in the order of the requests |
//! | [`Semaphore`](lock::Semaphore) | a limited number of permits, granted in the order of the requests |
//! | [`ReentrantMutex`](lock::ReentrantMutex) | a mutex that its owner can lock again while it holds the lock, at no cost |
//! | [`MultiLock`](lock::MultiLock) | the mutexes at several paths, locked together: all of them, or none |
//! | [`UnfairLock`](lock::UnfairLock) | a lock without an order of grants, for low contention |
//! | [`CohortMutex`](lock::CohortMutex) | a mutex that passes between tasks of this process without a call to the store, a bounded number of times in a row |
//! | [`Lease`](lock::Lease) | an exclusive right until a date, which outlives its session and its process: a job that runs once an hour, whichever machine starts it |
//!
//! **Elections**
//!
//! | | |
//! |---|---|
//! | [`LeaderLatch`](election::LeaderLatch) | an election in which a client is a candidate from `join` until it leaves, and leads whenever its turn comes |
//! | [`LeaderSelector`](election::LeaderSelector) | an election for exclusive work: the leader runs it, and the other candidates wait for their turn |
//! | [`Election`](election::Election) | an election in which the leader publishes a value that every client can observe |
//!
//! **Values**
//!
//! | | |
//! |---|---|
//! | [`Counter`](value::Counter) | a number that all clients of the same path can change: 64 bits, signed or unsigned, or 32 bits signed |
//! | [`AtomicValue`](value::AtomicValue) | a value of any type that all clients of the same path can change, stored as JSON |
//! | [`Ids`](value::Ids) | unique numbers for all clients of the same path, without a request for each number |
//!
//! **Values with a copy in each client**
//!
//! | | |
//! |---|---|
//! | [`SharedValue`](value::SharedValue) | a value that all clients of the same path share, with a local copy in each; stored as JSON |
//! | [`SharedCount`](value::SharedCount) | a 32-bit number that all clients of the same path share, with a local copy in each |
//!
//! **Local copies in memory**
//!
//! | | |
//! |---|---|
//! | [`Cache`](cache::Cache) | a local copy of a node, of its children, or of a whole subtree, with its changes as events |
//! | [`Watched`](cache::Watched) | a value of any type that other programs write, such as configuration, kept current in memory |
//!
//! **Presence**
//!
//! | | |
//! |---|---|
//! | [`PersistentNode`](presence::PersistentNode) | a node that exists as long as its owner keeps it, ephemeral or with a time to live: for programs that others have to find |
//! | [`Group`](presence::Group) | the members of a group: programs that are alive now, each with some data |
//! | [`Discovery`](discovery::Discovery) | the services below a path and their instances, each with an address and a payload |
//! | [`HashRing`](partition::HashRing) | the mapping of keys to the members of a group: consistent hashing, the same in every client |
//! | [`Partition`](partition::Partition) | a set of items divided among the present members; each item has one member at a time |
//!
//! **Queues**
//!
//! | | |
//! |---|---|
//! | [`Queue`](queue::Queue) | items that wait for consumers, in order: taken, or claimed and acknowledged; with or without a capacity |
//! | [`CompatQueue`](queue::CompatQueue) | a queue shared with programs of Curator, of kazoo or of etcd's recipes for Go |
//!
//! **Work**
//!
//! | | |
//! |---|---|
//! | [`Crew`](crew::Crew) | a master that assigns tasks to workers and returns results to the submitters: a job queue for programs that share a store anyway |
//! | [`Schedule`](schedule::Schedule) | work at dates, every hour or by a cron expression, with one run a date on all machines |
//!
//! **Others**
//!
//! | | |
//! |---|---|
//! | [`Transaction`](transaction::Transaction) | a closure that reads and writes any number of nodes in isolation: software transactional memory, like etcd's `concurrency.NewSTM` |
//! | [`Barrier`](barrier::Barrier) | a barrier that all clients of the same path share: while it is set, every `wait` blocks |
//! | [`CountDown`](barrier::CountDown) | a latch that all clients of the same path share: `wait` returns when a given number of parties have counted down |
//! | [`DoubleBarrier`](barrier::DoubleBarrier) | a barrier at which a fixed number of members enter together and leave together, repeatedly |
//!
//! # Spans and metrics
//!
//! Every wait is a `tracing` span at the level of debug. It has the recipe and the path, and at its
//! end its duration (`waited`) and, except for an unfair lock, the number of its calls to the store
//! (`calls`). Every hold is a span, too. It has the recipe, the path, the ticket and the token, and
//! at its end its duration (`held`). `path` is the path of the recipe, and `ticket` is the node of
//! the waiter or holder there. A latch logs in a span with its label, within the span of the caller
//! of `join`. A value with local copies is followed in a span with the recipe and the path, which
//! logs values that cannot be read. With the feature `metrics` there are histograms in addition to
//! those of [`trace`](synod_core::layer::trace), each with the recipe as its label:
//!
//! | metric | value |
//! |---|---|
//! | `synod_wait_seconds` | the time from the request to the grant |
//! | `synod_wait_calls` | the number of calls to the store for it |
//! | `synod_hold_seconds` | the time from the grant to the release, or to the drop after a loss |
//! | `synod_change_seconds` | the time from the call of a change to its response |
//! | `synod_change_tries` | the number of attempted writes for it |
//! | `synod_change_batch` | the number of changes that one write made |
//!
//! The gauge `synod_waiters` is the number of calls of this process that wait until the store
//! grants them. The counter `synod_retries_total` counts failed attempts at an item of a queue or a
//! task of a crew that are repeated. Both have the recipe as their label.
//!
//! [`Queue::stats`](queue::Queue::stats) records gauges with the path of the queue as a label:
//! `synod_queue_items`, with the state (`ready`, `delayed`, `claimed` or `dead`) as another label,
//! and `synod_queue_oldest_seconds`.

mod atomic_value;
pub mod barrier;
pub mod cache;
mod cell;
mod cohort_mutex;
mod compat_queue;
mod count_down;
mod counter;
pub mod crew;
pub mod discovery;
mod double_barrier;
pub mod election;
mod group;
mod hash_ring;
mod ids;
mod inspect;
mod keeper;
pub mod layout;
mod leader_latch;
mod leader_selector;
mod lease;
mod line;
pub mod lock;
mod mirror;
mod multi_lock;
mod mutant;
mod mutex;
pub mod partition;
mod persistent_node;
pub mod presence;
pub mod queue;
mod reentrant_mutex;
mod request_release;
mod rwlock;
pub mod schedule;
mod semaphore;
mod shared_count;
mod shared_value;
mod support;
pub mod transaction;
mod unfair_lock;
pub mod value;
mod watched;

pub use synod_core::held::{Held, Release, Token};

pub use crate::support::wait::within;
