//! A complete store in a directory, for the processes of one machine: SQLite keeps the data, and
//! the kernel keeps the sessions.
//!
//! | file | contents |
//! |---|---|
//! | `store.db`, and `-wal` and `-shm` beside it | the nodes, the sessions, the last changes, the revision |
//! | `turn` | locked by the process that writes |
//! | `seats/ID.*` | the lock, two FIFOs and the heartbeats of each process |
//!
//! # Writing
//!
//! A thread takes the turn, applies all transactions that wait in one transaction of SQLite, and
//! then wakes the observers whose watches may cover a change, by a byte in the FIFO of their seat.
//! A transaction that writes only
//! ephemeral nodes is not synced to the disk: a loss of power ends all sessions anyway. A synced
//! commit has all commits before it, so a loss of power takes only the last ephemeral writes.
//! Revisions are reserved by synced commits, so none of them comes again.
//!
//! # Observing
//!
//! Each seat has a thread that waits for its FIFO, reads the changes after the last revision that
//! it has seen, and gives them to its watches. The byte is written after the commit, and the
//! changes are read after the byte was taken, so no change is missed. If the writer dies between
//! its commit and the byte, its death wakes the same observers. If it is stopped there, a tick
//! finds the change within a second.
//!
//! # Sessions
//!
//! A session is a row in the database, which belongs to a seat. It ends in one of these ways:
//!
//! - Its owner closes it.
//! - Its process ends. The kernel closes the FIFO of the seat, which wakes all others. That is only
//!   a hint: the session ends if the lock of the seat is granted, which is the proof.
//! - Its process is stopped for longer than the time to live, so that it sends no heartbeat.
//! - Its owner drops it, and the time to live passes.
//!
//! On systems other than Linux the crate is empty.

#![cfg(target_os = "linux")]

mod backend;
mod backup;
mod care;
mod changes;
mod checkpoint;
mod database;
mod engine;
mod fault;
mod filter;
mod heart;
mod job;
mod lookout;
mod machine;
mod meta;
mod options;
mod owner;
mod peers;
mod place;
mod query;
mod queue;
mod report;
mod seat;
mod seat_id;
mod sessions;
mod shared;
mod store;
mod tree;
mod watches;
mod writer;
mod writing;

pub use backend::FileBackend;
pub use options::FileOptions;
pub use report::{FileProcess, FileProcessState, FileReport, FileSessionEnd};
