//! [`Line`]: a directory of tickets in the order of their creation, the base of locks, semaphores and elections.
//!
//! A recipe creates a ticket, waits until it is granted, and removes it. It makes a [`Line`] of a client, a
//! directory and a [`Form`], and gets from it
//!
//! - [`Line::enter`]: a [`Ticket`](ticket::Ticket) that was granted. Without contention this is one round trip, as
//!   the create and the first look are one commit;
//! - [`Line::enqueue`] and [`Ticket::granted`](ticket::Ticket::granted): the same in two steps;
//! - [`Line::try_enter`]: a ticket that was granted at once, or `None`, and then no ticket is left;
//! - [`Ticket::hold`](ticket::Ticket::hold): the [`Hold`](hold::Hold) that it becomes, which the recipe's user gets;
//! - [`Line::contenders`]: all contenders in the line, in order.
//!
//! Code that serves one recipe alone is part of that recipe.
//!
//! What holds for all recipes:
//!
//! - **A ticket ends with its owner.** It is ephemeral; its [`TicketNode`] removes it when dropped; and the session
//!   discards the ticket of a create that is dropped half-way. So every call here is cancel safe.
//! - **Only [`turn`](order::turn) decides on a grant.** It is a pure function of a view in which the own ticket was
//!   seen. An event never grants: it only causes the next look. A grant counts only while the session is certain.
//! - **A lost answer makes no second ticket.** The session finds the ticket of a create by its name: see
//!   [`Session`](synod_core::session::Session#what-is-repeated).
//! - **Waiting costs little.** A waiter watches only its predecessor, and looks once when the predecessor is gone.
//!   A waiter or holder that stays for longer than a third of its session's time to live also watches its own
//!   ticket, in case another client removes it. The first waiter of a semaphore watches the whole directory. Every
//!   later waiter watches only its predecessor, which writes to its own ticket when it is granted.
//! - **A new session needs a new ticket.** A waiter whose session is lost creates another ticket in the next session.
//!   A [`Hold`](hold::Hold) does not: what it held is lost for good.
//! - **A wait continues as long as its session lives**, also while the store does not answer. It fails when
//!   the store refuses, or when there is no next session within the client's deadline.

use std::fmt;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::error::{ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Lifetime, Query, Sequence, Txn, View};

use crate::line::form::Form;
use crate::line::marks::Capacity;
use crate::line::ticket_node::TicketNode;
use crate::mutant::mistake;

mod asking;
pub(crate) mod contender;
pub(crate) mod hold;
pub(crate) mod item_wait;
pub(crate) mod limit;
pub(crate) mod marks;
pub(crate) mod order;
mod permits;
pub(crate) mod ticket;
pub(crate) mod ticket_node;

mod containers;
pub(crate) mod downgrade;
pub(crate) mod form;
mod free_path;
mod identity;
mod names;
mod permit_order;
mod retrying;
mod seen_version;
mod stay;
pub(crate) mod ticket_name;
mod written;

#[cfg(feature = "metrics")]
pub(crate) mod meter;
#[cfg(not(feature = "metrics"))]
pub(crate) mod unmetered;
#[cfg(not(feature = "metrics"))]
pub(crate) use unmetered as meter;

/// How many tickets a waiter reads if only its predecessor matters: the predecessor and its own.
pub(crate) const SIGHT: usize = 2;

/// A directory of tickets, as one recipe sees it. Costs nothing to make.
#[derive(Clone)]
pub(crate) struct Line {
    client: Client,
    dir: Path,
    form: Form,
    label: Bytes,
}

impl Line {
    pub(crate) fn new(client: &Client, dir: Path, form: Form) -> Self {
        Self { client: client.clone(), dir, form, label: Bytes::new() }
    }

    /// Sets the label of the tickets, for people and programs that inspect the line.
    pub(crate) fn labelled(mut self, label: Bytes) -> Self {
        self.label = label;
        self
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn label(&self) -> &Bytes {
        &self.label
    }

    pub(crate) fn form(&self) -> &Form {
        &self.form
    }

    /// The same line, for tickets of another form.
    pub(crate) fn with_form(&self, form: Form) -> Self {
        Self { form, ..self.clone() }
    }

    /// Creates a ticket in the current session, and looks at the line: one round trip.
    async fn draw(&self) -> Result<(TicketNode, Option<View>)> {
        loop {
            let session = self.client.session().await?;
            mistake!(OldTicketTrusted: if let Some(node) = self.drawn_before(&session).await? {
                return Ok((node, None));
            });
            let (path, used) = self.free_path(&session)?;
            let txn = Txn::new()
                .create_sequential(path.clone(), self.label.clone(), Lifetime::Session)
                .look(self.first_look());
            let (outcome, requests) = match session.commit_tracked(txn).await {
                // If the request created a node, the node is removed with the session.
                Err(error) if error.kind() == ErrorKind::SessionLost => continue,
                outcome => {
                    mistake!(RefusalSwallowed: if outcome.is_err() { continue });
                    outcome?
                }
            };
            if used && outcome.rejected().is_some() {
                continue;
            }
            let mut commit = outcome.required()?;
            let done = commit.results.pop().ok_or_else(ticket_node::missing_create_result)?;
            let node = TicketNode::new(session, done)?;
            let as_given = *node.path() == path;
            let node = self.counted(node, as_given, requests);
            if self.is_settled(&node).await? {
                return Ok((node, commit.look));
            }
        }
    }

    /// The look of the transaction that creates the ticket.
    fn first_look(&self) -> Query {
        let query = Query::children(self.dir.clone()).names_only();
        if self.sees_all() { query } else { query.newest(SIGHT) }
    }

    /// The query of a later look: the last `sight` tickets up to the own one.
    fn look(&self, own: Sequence, sight: usize) -> Query {
        let query = Query::children(self.dir.clone()).names_only();
        if self.sees_all() || sight == usize::MAX {
            return query;
        }
        query.newest_before(sight, Sequence::new(own.get().saturating_add(1)))
    }

    /// The query with the freshness that a ticket needs after its create.
    ///
    /// All tickets before it in the line existed before its create, and tickets are only removed; and an answer to a
    /// session is never older than the session's own writes. So an answer that lags shows at most some tickets that are
    /// gone already, and the session will be notified of their removal. The number of permits may change, however.
    fn fresh(&self, query: Query) -> Query {
        if self.form.capacity == Capacity::Posted { query } else { query.local() }
    }

    fn sees_all(&self) -> bool {
        mistake!(WatchesFirst: return true);
        mistake!(SortsByName: return true);
        self.form.whole
    }
}

/// Shows the directory only: the label is the application's text.
impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.dir, f)
    }
}
