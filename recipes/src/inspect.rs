//! [`inspect`]: the holders and the waiters at a path. [`is_ticket`] finds such paths.

use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::Node;

use crate::line::order::{Contender, Entry, contenders};
use crate::line::ticket_name::Capacity;

#[cfg_attr(not(doctest), doc = include_str!("../docs/inspect.md"))]
///
/// # Errors
///
/// The errors common to all calls of a [`Client`].
///
/// # Cancel safety
///
/// Cancel safe: it only reads.
pub async fn inspect(client: &Client, path: impl Into<Path>) -> Result<Vec<Contender>> {
    contenders(client, &path.into(), Capacity::One).await
}

/// Returns `true` if a node of a listing has the name of a ticket, of this library or of another
/// one: the node above it is then a lock, a semaphore or an election.
///
/// The node comes from a view of children, which may be of [names only](synod_core::store::Query):
/// a program can search a tree for locks and [`inspect`] each. A container can also have the name
/// of a ticket; [`inspect`] skips it.
///
/// # Examples
///
/// ```rust
/// use synod_core::path;
/// use synod_core::store::{Node, Sequence};
/// use synod_recipes::lock::is_ticket;
///
/// let numbered = |name| Node::new(name).with_sequence(Some(Sequence::new(7)));
/// assert!(is_ticket(&numbered(path!("/locks/db/lock-0000000007"))));
/// assert!(!is_ticket(&numbered(path!("/mails/item-0000000007"))));
/// assert!(!is_ticket(&Node::new(path!("/locks/db"))));
/// ```
pub fn is_ticket(child: &Node) -> bool {
    Entry::of(child).is_some()
}
