//! The contract of a backend: an implementation of [`Backend`] and [`Store`].
//!
//! A backend opens sessions; a session reads, observes and commits. The following sections are the
//! contract that recipes rely on; `synod-conformance` checks every line of it. A backend may give
//! stronger guarantees.
//!
//! # The tree
//!
//! - A node has a path, data and a [`Stat`], and may have children.
//! - **Ancestors always exist.** A create also creates the missing ancestors, as *containers*: a
//!   container exists exactly while a node is below it. It holds no data and reads as absent.
//!   Listings name it, without a stat. A set of a container fails, and the create of a node where a
//!   container has children is rejected as [`RejectReason::Exists`]. An empty container does not
//!   block a create. It may be removed immediately or after a delay; until then a listing of its
//!   parent may name it and a delete of it may succeed.
//! - A node with children cannot be deleted: [`RejectReason::HasChildren`].
//! - Nothing can be created below an ephemeral node, at any depth:
//!   [`RejectReason::BelowEphemeral`].
//! - A node with [`Lifetime::Ttl`] is removed once it has not been written for its TTL, or later.
//!   Give it no children: a store may reject them as [`RejectReason::BelowEphemeral`].
//! - Data of zero bytes is data: a node with empty data is not absent.
//!
//! # Reading
//!
//! - [`Freshness::Latest`] reflects every write that had been answered, to any client, before the
//!   read was called.
//! - [`Freshness::Local`] may lag, but never goes back within a session: it reflects at least the
//!   session's own writes, its earlier reads, and the events that it received, across reconnects
//!   too.
//! - A view is a consistent snapshot. Listings are complete and sorted by path; a windowed listing
//!   is sorted by sequence. A subtree names its own path only if a node exists there, and below it
//!   every node and every container. A prefix is applied before a window: the window counts only
//!   children with the prefix.
//! - A store that needs several requests for a view reports its [`Progress`] after each, if the
//!   query [requests it](Query::progress). The number of nodes read never decreases during a query.
//!   The client reports completion.
//!
//! # Writing
//!
//! - All writes use [`Store::commit`]. A [`Txn`] is applied completely or not at all, at one
//!   revision; each operation sees the effects of the operations before it. A transaction of checks
//!   only changes nothing: if its [`Commit`] has a revision, the checks hold at that revision, and
//!   every later change has a higher one.
//! - [`Outcome::Rejected`] names the *first* operation that failed, and the reason; nothing was
//!   changed. A sequential create whose final name is taken is rejected as
//!   [`RejectReason::Exists`].
//! - **A follow-up query** is answered as of the commit, or of the rejection: its view reflects at
//!   least the state that the commit left, or the state that caused the rejection. A view of
//!   several nodes is a consistent snapshot, as for a read.
//! - An error with [`Effect::None`](crate::error::Effect::None) means that the write never happens,
//!   [`Effect::Unknown`](crate::error::Effect::Unknown) that it happens at most once, now or later.
//!   An error of a read or an observation names the path of its query. An error of a transaction
//!   names the path of its first operation, or another of its paths if the store knows which
//!   operation failed.
//! - **Sequential creates**: the caller passes a path that no other caller passes (it ends in an id
//!   that the caller chose). It passes the same path again only after every request about the first
//!   node has completed. The store may append to the name, and gives the node a [`Sequence`]. Once
//!   any client saw a sequence, no lower one appears in that directory while the directory exists;
//!   there may be gaps. After a directory was empty its sequences may start again. A store that has
//!   no sequences left rejects the create as [`RejectReason::SequenceExhausted`], and later ones
//!   too.
//! - **Repeating a sequential create** whose effect is unknown creates no second node, if a
//!   [`Freshness::Latest`] read in the same session did not show the first. A store that appends no
//!   sequence to names (etcd) may apply a delayed request after the node was deleted, and so create
//!   it again. Such a store must never reuse a version of a path, even across incarnations.
//! - A write to an ephemeral node does not change its owner.
//! - Every store rejects what [`Txn::validate`] rejects, before it sends anything.
//!
//! # Observing
//!
//! - [`Store::watch`] reads and watches in one step: every change after the view is reported, or
//!   [`Event::Resync`] is. That holds even if the view and the changes come from two requests and
//!   the store discarded changes between them. A prefix may narrow what is observed, but a window
//!   does not. A watch of names only is notified of created and deleted nodes; the store decides
//!   whether it is also notified of writes to them.
//! - Events are hints that carry facts. Changes of one path may be merged into one event, which
//!   then reports the last; an event may be delayed; a change that did not happen is never
//!   reported. A store may omit the event that a container was created or removed: observe the
//!   nodes below it.
//! - A query [for hints](Query::hints) permits the store to report also what is not a change of a
//!   node: that a container was created or removed, or that an absent node was checked at a path.
//!   After the last event of a path, a [`Freshness::Local`] read in the same session shows the
//!   result.
//! - Revisions do not decrease between two events of one path, and no change is reported twice
//!   without a `Resync` in between.
//! - A watch ends with exactly one [`Event::Ended`], and then reports nothing. It keeps at most
//!   [`Feed::MAX_EVENTS`] events for a reader that does not take them.
//! - A watch [for one event](Query::once) reports the first like any other. After that event it may
//!   end with [`End::Delivered`], or continue; if the view shows no node, it may end so
//!   immediately. Otherwise it does not end so before its first event.
//! - A watch [until a node is deleted](Query::until_gone) reports only that, and ends immediately
//!   if the view shows no node.
//! - A read may return a change before a watch reports it: callers do not rely on their order.
//! - Dropping a [`Watch`] frees its resources at the server.
//!
//! # Sessions
//!
//! - [`Status::Live`] has the instant until which the session *certainly* lives at the server. It
//!   is counted from the sending of the last request whose answer proves that the part of the store
//!   that ends sessions extended this one: see [`certain_until`], and [`Heartbeats`] for servers
//!   that answer without their leader. Until the first heartbeat is answered that request is the
//!   one that opened the session. A session whose server does not answer is [`Status::Suspended`]
//!   before `until`, and lost when `until` has passed.
//! - [`Status::Lost`] is final: from then on every call on the session fails as
//!   [`SessionLost`](crate::error::ErrorKind::SessionLost), without waiting and with nothing sent.
//! - When the server ends a session, it removes all its ephemeral nodes at one revision. No
//!   ephemeral node of an ended session appears later, and no later session has its [`SessionId`].
//!   Another write that was in flight at that time may still be applied: its effect is unknown.
//! - [`Store::close`] ends the session; when it returned without an error, its ephemeral nodes are
//!   gone. That holds for a second close and for a lost session, too: while its nodes may still
//!   exist, closing it fails with an unknown effect.
//! - A store may support that a session is [handed over](HandOver): it then offers this in its
//!   [`SessionInfo`]. [`Backend::open`] with [`SessionOptions::resume`] continues such a session,
//!   which is certain only from an answer to a request of the new owner, and fails as
//!   [`SessionLost`](crate::error::ErrorKind::SessionLost) if the store has ended it. Another store
//!   ignores that option.
//! - If a store is dropped without a close, its session expires after its TTL. Its watches end
//!   immediately and its status is [`Status::Lost`], as nothing renews the session now.
//! - No call waits longer than the TTL of the session. The store chooses the time limit of
//!   [`Backend::open`], which has no session yet.
//! - Calls are cancel safe: a dropped call may have been applied or not, and has no other effect.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::error::Result;

mod extension;
mod facts;
mod handover;
mod heartbeat;
mod judge;
mod life;
mod node;
mod progress;
mod query;
mod servers;
mod session;
#[cfg(unix)]
mod session_files;
mod txn;
mod watching;

pub use extension::Extension;
pub use facts::{Facts, Found, TryFacts};
pub use handover::{HandOver, SessionHandover};
pub use heartbeat::Heartbeats;
pub use judge::{judge, try_judge};
pub use life::Life;
pub use node::{Node, Revision, Sequence, SessionId, Stat, Version};
pub use progress::{Loaded, Progress};
pub use query::{Detail, Freshness, Query, Scope, View, Window};
pub use servers::{ServerList, ServerSource, ServersFile};
pub use session::{
    CurrentServer, Feature, Limits, SessionEnd, SessionInfo, SessionOptions, Status, certain_until,
    clamp_ttl,
};
#[cfg(unix)]
pub use session_files::SessionFiles;
pub use txn::{
    Commit, Expect, Lifetime, Op, OpResult, Outcome, RejectReason, Rejected, SEQUENCE_SUFFIX_LEN,
    Txn,
};
pub use watching::{Change, End, Event, Feed, Kind, Watch};

/// A store on which sessions can be opened.
#[async_trait]
pub trait Backend: Debug + Send + Sync + 'static {
    /// Opens a session. It is [`Status::Live`] when this returns.
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>>;
}

/// One session on one store. The [module](self) has the contract.
#[async_trait]
pub trait Store: Debug + Send + Sync + 'static {
    /// Returns the id of this session, its TTL, and the limits and features of its store.
    fn session(&self) -> &SessionInfo;

    /// Returns whether the session lives, and until when it certainly does. The receiver always
    /// holds the latest status.
    fn status(&self) -> watch::Receiver<Status>;

    /// Answers a query.
    async fn read(&self, query: Query) -> Result<View>;

    /// Answers a query, and reports every later change of the nodes that it covers.
    ///
    /// The freshness of the query applies to the view. A window does not narrow what is observed.
    async fn watch(&self, query: Query) -> Result<(View, Watch)>;

    /// Applies a transaction, completely or not at all.
    async fn commit(&self, txn: Txn) -> Result<Outcome>;

    /// Ends the session. A second close succeeds if the first did.
    async fn close(&self) -> Result<()>;
}

#[async_trait]
impl<B: Backend + ?Sized> Backend for Arc<B> {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        (**self).open(options).await
    }
}
