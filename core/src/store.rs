//! The floor: what a store is. A backend is an implementation of [`Backend`] and [`Store`].
//!
//! A backend opens sessions; a session reads, observes and commits. Nothing else. What follows is
//! the contract that recipes rely on; `synod-conformance` checks every line of it. A backend may
//! be stronger, silently.
//!
//! # The tree
//!
//! - A node has a path, data and a [`Stat`], and may have children.
//! - **Ancestors are never missing.** A create makes them as *containers*: places that exist
//!   exactly while something is below them. A container holds no data and reads as absent. Listings
//!   name it, with no stat. Nothing can be set there, and creating a node where a container has
//!   children is refused as [`RejectReason::Exists`]. An empty container gives way to a create; it may go
//!   at once or after a while, and until then a listing of its parent may name it and a delete of
//!   it may succeed.
//! - A node with children is not deleted: [`RejectReason::HasChildren`].
//! - Nothing is created below an ephemeral node, at any depth: [`RejectReason::BelowEphemeral`].
//! - A node with [`Lifetime::Ttl`] is gone when it was not written for its time, or later. Give it
//!   no children: a store may refuse them as [`RejectReason::BelowEphemeral`], and may not.
//! - Data of zero bytes is data: a node without any is not absent.
//!
//! # Reading
//!
//! - [`Freshness::Latest`] reflects every write that had been answered, to any client, before the read was
//!   called.
//! - [`Freshness::Local`] may lag, but never goes back within a session: it reflects at least the session's own
//!   writes, its earlier reads, and the events it was given, across reconnects too.
//! - A view is of one moment. Listings are complete and sorted by path; a windowed listing is
//!   sorted by sequence. A subtree names its own path only if a node is there, and below it every node and
//!   every container. A prefix is applied before a window: the window counts children with the prefix only.
//! - A store that needs several requests for a view reports its [`Progress`] after each, where the query
//!   [asks for it](Query::progress): what was read never falls while it reads. The client reports the end.
//!
//! # Writing
//!
//! - All writes go through [`Store::commit`]. A [`Txn`] applies whole or not at all, at one
//!   revision; its operations see the effects of those before them. One of checks alone changes
//!   nothing: if its [`Commit`] has a revision, the checks hold there, and every later change has a higher one.
//! - [`Outcome::Rejected`] names the *first* operation that could not be done, and why; nothing
//!   was changed. A sequential create whose final name is taken is rejected as [`RejectReason::Exists`].
//! - **A look** is answered as of the commit, or of the rejection: its view reflects at least the state that
//!   the commit left, or the state that rejected it. One of several nodes is of one moment, as a read of them is.
//! - An error with [`Effect::None`](crate::error::Effect::None) means that the write never happens,
//!   [`Effect::Unknown`](crate::error::Effect::Unknown) that it happens at most once, now or later. An error of a
//!   read or an observation names the path of its query, one of a transaction the path of its first operation,
//!   or another of its paths if the store knows which one failed.
//! - **Sequential creates**: the caller gives a path that no other caller gives (it ends in an id of its own
//!   choosing), and gives it again at most when all that it sent about the first node has come to its end. The
//!   store may add to the name, and gives the node a [`Sequence`]. Once any client saw a sequence, no lower one
//!   appears in that directory while the directory lives; there may be gaps. After a directory was empty its
//!   sequences may start again. When a store runs out of sequences it rejects the create as
//!   [`RejectReason::SequenceExhausted`], and later ones too.
//! - **Repeating a sequential create** whose effect is unknown makes no second node, if a
//!   [`Freshness::Latest`] read in the same session did not show the first. Where the store adds nothing
//!   to the name, one that comes late may make the node again when that was deleted: there a path never has
//!   the same version twice, in whatever incarnation.
//! - Writing to an ephemeral node leaves it with its owner.
//! - What [`Txn::validate`] refuses is refused before anything is sent, by every store.
//!
//! # Observing
//!
//! - [`Store::watch`] reads and watches as one step: every change after the view is reported, or
//!   [`Event::Resync`] is: also where the view and the changes come from two requests and the store forgot
//!   changes between them. A prefix may narrow what is observed, a window does not. A watch that asks for names
//!   only is notified of nodes that come and go; whether of writes to them, the store decides.
//! - Events are hints that carry facts. Changes of one path may join into one event, which then reports the
//!   last; an event may come late; a change that did not happen is never reported. A store may leave out that a
//!   container comes or goes: observe what is below it.
//! - A query [for hints](Query::hints) is as any other, and leaves it to the store whether it also reports what is no
//!   change of a node: that a container comes or goes, or that a check for an absent node was made at a path. After
//!   the last event of a path a [`Freshness::Local`] read in the same session shows what became of it.
//! - Between two events of one path revisions do not fall, and no change is reported twice without
//!   a `Resync` in between.
//! - A watch ends with exactly one [`Event::Ended`], then nothing. It keeps at most [`Feed::MAX_EVENTS`] events for a
//!   reader that does not take them.
//! - A watch [for one event](Query::once) reports the first like any other. After it, it may end with
//!   [`End::Delivered`], or go on; if the view shows no node, it may end so at once. Otherwise it
//!   does not end so before its first event.
//! - A watch [until a node goes](Query::until_gone) reports nothing else, and ends at once if the view shows no
//!   node.
//! - A read may return a change before a watch reports it: callers do not rely on their order.
//! - Dropping a [`Watch`] frees what the server keeps for it.
//!
//! # Sessions
//!
//! - [`Status::Live`] has the instant until which the session *certainly* lives at the server, counted from the
//!   sending of the last request whose answer proves that the part of the store that ends sessions extended
//!   this one: see [`certain_until`], and [`Heartbeats`] for servers that answer without their leader. Until
//!   the first heartbeat is answered that request is the one that opened the session. A session whose server
//!   does not answer is [`Status::Suspended`] before `until`, and lost when `until` has passed.
//! - [`Status::Lost`] is final: from then on every call on the session fails as
//!   [`SessionLost`](crate::error::ErrorKind::SessionLost), with nothing sent and none hanging.
//! - When the server ends a session, its ephemeral nodes go, all at one revision. No ephemeral node
//!   of an ended session appears later, and no later session has its [`SessionId`]. Another write that was on its way then may still happen:
//!   its effect is unknown.
//! - [`Store::close`] ends the session; when it returned without an error, its ephemeral nodes are gone. That holds
//!   for a second close and for a session that is lost, too: while its nodes may still be there, closing it fails
//!   with an unknown effect.
//! - Dropping a store without closing it leaves the session to its time to live. Its watches end at once and its
//!   status is [`Status::Lost`], as nothing renews the session any more.
//! - Every call returns or fails by itself: no call waits longer than the session's time to live. What bounds
//!   [`Backend::open`] is the store's choice; it depends on no session, and a busy machine opens slowly.
//! - Calls are cancel safe in the plain sense: a dropped call may have happened or not, and breaks
//!   nothing else.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::error::Result;

mod facts;
mod heartbeat;
mod judge;
mod life;
mod node;
mod progress;
mod query;
mod session;
mod txn;
mod watching;

pub use facts::{Facts, Found, TryFacts};
pub use heartbeat::Heartbeats;
pub use judge::{judge, try_judge};
pub use life::Life;
pub use node::{Node, Revision, Sequence, SessionId, Stat, Version};
pub use progress::{Loaded, Progress};
pub use query::{Detail, Freshness, Query, Scope, View, Window};
pub use session::{
    Feature, Limits, SessionEnd, SessionInfo, SessionOptions, Status, certain_until, clamp_ttl,
};
pub use txn::{
    Commit, Expect, Lifetime, Op, OpResult, Outcome, RejectReason, Rejected, SEQUENCE_SUFFIX_LEN,
    Txn,
};
pub use watching::{Change, End, Event, Feed, Kind, Watch};

/// Opens sessions on one store.
#[async_trait]
pub trait Backend: Debug + Send + Sync + 'static {
    /// Opens a session. It is [`Status::Live`] when this returns.
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>>;
}

/// One session on one store. The [module](self) has the contract.
#[async_trait]
pub trait Store: Debug + Send + Sync + 'static {
    /// The id of this session, its time to live, and what its store can and cannot do.
    fn session(&self) -> &SessionInfo;

    /// Whether the session lives, and until when for certain. The receiver always holds the
    /// latest.
    fn status(&self) -> watch::Receiver<Status>;

    /// Answers a query.
    async fn read(&self, query: Query) -> Result<View>;

    /// Answers a query, and reports every change of what it covers from then on.
    ///
    /// The freshness of the query is that of the view. A window does not narrow what is observed.
    async fn watch(&self, query: Query) -> Result<(View, Watch)>;

    /// Applies a transaction, whole or not at all.
    async fn commit(&self, txn: Txn) -> Result<Outcome>;

    /// Ends the session. Closing twice is no error, if the first close was none.
    async fn close(&self) -> Result<()>;
}

#[async_trait]
impl<B: Backend + ?Sized> Backend for Arc<B> {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        (**self).open(options).await
    }
}
