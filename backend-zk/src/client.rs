//! A client of ZooKeeper's protocol: one session, kept on any server that answers.
//!
//! A [`Connector`](connector::Connector) opens a session. Its [`Client`] sends a request when a
//! method is called, in the order of the calls, and returns the [`Answer`](answer::Answer) as a
//! future. When the last reference to the client is dropped, the session is ended.
//!
//! Guarantees to its callers:
//!
//! - **One task owns the session** (`session.rs`): it reads, writes, and sets up another connection
//!   when one is lost. It reports the loss to [`StateWatcher`]s and to persistent watchers before
//!   any answer on the next connection.
//! - **Answers and events arrive in the order of the server.** An answer out of order ends the
//!   connection, because its meaning is unknown.
//! - **A request is sent once.** Requests without an answer fail with [`ZkError::ConnectionLoss`],
//!   whether they were received or not.
//! - **No message of a server causes a panic**, or takes more memory than its own size.
//! - **Watches for one event are set again** on the next connection, in the same step as its first
//!   requests. Persistent watches are not: events may have been missed, so their users set them
//!   again, and read.

mod answer;
mod calls;
pub(crate) mod connector;
mod departure;
pub(crate) mod encryption;
mod event;
mod granted;
pub(crate) mod identity;
mod jute;
mod multi;
mod node;
mod outbox;
mod request;
#[cfg(feature = "sasl")]
mod sasl;
mod server_connection;
mod servers;
mod session;
mod start;
mod stream;
mod watcher;
mod watches;
mod zk_error;

pub(crate) use answer::{Answer, behind};
pub(crate) use calls::Client;
pub(crate) use departure::Credentials;
pub(crate) use event::{EventType, SessionState, StateWatcher, WatchedEvent};
pub(crate) use multi::{MultiReadResult, MultiWriteError, MultiWriteResult, MultiWriter};
pub(crate) use node::{AddWatchMode, CreateMode, CreateOptions, ZkStat};
pub(crate) use servers::{Server, with_last_resort};
pub(crate) use stream::connect;
pub(crate) use watcher::{OneshotWatcher, PersistentWatcher};
pub(crate) use zk_error::ZkError;
