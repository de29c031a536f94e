//! [`Line`]: a wait queue, which is a directory of tickets in the order of their creation. It is
//! the base of locks, semaphores and elections.
//!
//! A recipe creates a ticket, waits until it is granted, and removes it. It creates a [`Line`] from
//! a client, a directory and a [`Form`], and uses
//!
//! - [`Line::enter`]: returns a granted [`Ticket`](ticket::Ticket). Without contention this is one
//!   round trip, as one commit creates the ticket and reads the queue;
//! - [`Line::enqueue`] and [`Ticket::granted`](ticket::Ticket::granted): the same in two steps;
//! - [`Line::try_enter`]: returns a ticket that was granted without a wait, or `None` without
//!   leaving a ticket;
//! - [`Ticket::hold`](ticket::Ticket::hold): the [`Hold`](hold::Hold) that the ticket becomes, for
//!   the recipe's user;
//! - [`Line::contenders`]: all contenders in the queue, in order.
//!
//! Code for a single recipe is part of that recipe.
//!
//! These rules hold for all recipes:
//!
//! - **A ticket ends with its owner.** It is ephemeral; its [`TicketNode`] removes it when dropped;
//!   and the session removes the ticket of a create that is dropped before its response. So every
//!   call here is cancel safe.
//! - **Only [`turn`](order::turn) decides on a grant.** It is a pure function of a view that
//!   contains the own ticket. An event never grants: it only causes the next read. A grant counts
//!   only while the session is certain.
//! - **A lost response creates no second ticket.** The session finds the ticket of a create by its
//!   name: see [`Session`](synod_core::session::Session#what-is-repeated).
//! - **Waiting costs little.** A waiter watches only its predecessor, and reads once when the
//!   predecessor is gone. A waiter or holder that stays for longer than a third of its session's
//!   TTL also watches its own ticket, in case another client removes it. The first waiter of a
//!   semaphore watches the whole directory. Every later waiter watches only its predecessor, which
//!   writes to its own ticket when it is granted.
//! - **A new session needs a new ticket.** A waiter whose session is lost creates another ticket in
//!   the next session. A [`Hold`](hold::Hold) does not: it is permanently lost.
//! - **A wait continues as long as its session lives**, even while the store does not respond. It
//!   fails when the store rejects a request, or when there is no next session within the client's
//!   time limit.
//!
//! # Decisions that are easy to undo by mistake
//!
//! - **One pure function grants** ([`turn`](order::turn)), from the names in one view. So the name
//!   of a ticket contains everything that the decision needs: the kind of the claim and the number
//!   of permits. No data of other tickets is read, except by a reader, which reads the ticket of
//!   the preceding writer, because that may have been downgraded.
//! - **A name identifies one ticket**, because it contains an id of 32 digits. So a delete or a
//!   check by path needs no version. Two kinds of tickets use the version that was read last: on
//!   etcd a ticket whose create was sent twice, and a ticket whose owner may downgrade.
//! - **A name is reused only on stores that append no digits, and only if that is safe.** etcd
//!   keeps every deleted name until compaction and scans them in each listing. The next ticket in
//!   the same session and the same second may have the last name again, if its create and its
//!   delete were each answered at the first attempt, and the name was never given to other code (by
//!   `path` of the guard, or in a guarded transaction). Tickets that other clients write to
//!   (elections, permits, read-write locks) always get a new name.
//! - **The suffixes of names are those of Curator, kazoo and etcd**, so that tickets of all
//!   libraries are in one queue. Names without a known suffix are ignored. The path `/locks/db` is
//!   `etcdctl lock /locks/db/`.
//! - **A waiter for permits relies on its predecessor for the notification** only if the
//!   predecessor will certainly send it: it was seen waiting, it has not written to its ticket yet,
//!   and its ticket is newer than the last change of the limit.
//! - **The limit of permits is a name in the directory of the tickets**, so one view shows both
//!   consistently.
//! - **A waiter watches its own ticket after a third of the session's TTL**: another client may
//!   delete it, and the wait would never end. It does not watch earlier, because most waits are
//!   shorter, and a lost session is reported anyway.
//! - **A waiter's reads may lag.** All tickets before its own were created first, and a session
//!   always sees its own writes. At worst a lagging view shows a contender that is gone, and a
//!   watch reports its deletion. The limit of permits is the exception.

use std::fmt;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::session::{Requests, Session};
use synod_core::store::{Lifetime, Outcome, Query, Sequence, Txn, View};

use crate::line::ticket_name::{Capacity, Claim, FreeNames, permits_suffix};
use crate::line::ticket_node::TicketNode;
use crate::mutant::mistake;
use crate::support::retry::RetryDelays;

mod enter;
pub(crate) mod hold;
mod limits;
pub(crate) mod meter;
pub(crate) mod order;
mod resume;
pub(crate) mod ticket;
pub(crate) mod ticket_name;
pub(crate) mod ticket_node;

/// The number of tickets that a waiter reads if its grant depends only on its predecessor: the
/// predecessor and its own.
pub(crate) const WINDOW: usize = 2;

/// A directory of tickets, with the form of one recipe's tickets. Creating it sends no request.
#[derive(Clone)]
pub(crate) struct Line {
    client: Client,
    dir: Path,
    form: Form,
    label: Bytes,
    /// True if a request fails when an earlier one names another limit.
    same_limit: bool,
}

/// The properties of a recipe's tickets.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    /// The recipe, in metrics and spans.
    pub(crate) recipe: &'static str,
    /// The name suffix of a ticket: see [`ticket_name`].
    pub(crate) suffix: String,
    /// The number of tickets or permits that the queue grants together.
    pub(crate) capacity: Capacity,
    /// True if a grant depends on more than the predecessor.
    pub(crate) whole: bool,
    /// True if a write to a ticket may reduce its claim.
    pub(crate) changes: bool,
    /// True if a ticket may reuse the name of a removed ticket, on stores that append no sequence
    /// to the name.
    pub(crate) renews: bool,
}

impl Line {
    pub(crate) fn new(client: &Client, dir: Path, form: Form) -> Self {
        Self { client: client.clone(), dir, form, label: Bytes::new(), same_limit: false }
    }

    /// Sets the label of the tickets, for people and programs that inspect the queue.
    pub(crate) fn labelled(mut self, label: Bytes) -> Self {
        self.label = label;
        self
    }

    /// Makes a request fail when an earlier one names another limit.
    pub(crate) fn requiring_same_limit(mut self) -> Self {
        self.same_limit = true;
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

    /// Returns `true` if a retry of the request may succeed after this failure.
    pub(crate) fn is_transient(&self, error: &Error) -> bool {
        mistake!(OutageEndsIt: return false);
        self.client.is_transient(error)
    }

    /// The delays between the attempts of a request that is repeated until it succeeds.
    pub(crate) fn delays(&self) -> RetryDelays {
        RetryDelays::forever(self.client.random())
    }

    /// Returns the same queue, for tickets of another form.
    pub(crate) fn with_form(&self, form: Form) -> Self {
        Self { form, ..self.clone() }
    }

    /// Creates a ticket in the current session and reads the queue: one round trip.
    ///
    /// The view may contain containers, whose names look like tickets. They can only delay a grant,
    /// never cause one, so only a ticket that would have to wait searches for them: see
    /// [`order::containers`].
    async fn create_ticket(&self) -> Result<(TicketNode, Option<View>)> {
        loop {
            let session = self.client.session().await?;
            mistake!(OldTicketTrusted: if let Some(node) = self.created_before(&session).await? {
                return Ok((node, None));
            });
            let (path, is_reused) = self.free_path(&session)?;
            let txn = Txn::new()
                .create_sequential(path.clone(), self.label.clone(), Lifetime::Session)
                .look(self.first_query());
            // `commit_tracked` resolves a lost response: it finds the node of the create by its
            // unique name. `requests` tells whether an earlier request of this create may still be
            // in flight.
            let (outcome, requests) = match session.commit_tracked(txn).await {
                // If the request created a node, the node is removed with the session.
                Err(error) if error.kind() == ErrorKind::SessionLost => continue,
                outcome => {
                    mistake!(RefusalSwallowed: if outcome.is_err() { continue });
                    outcome?
                }
            };
            // Another client may have created a node under a name that this session used before and
            // freed. The next attempt uses another name.
            if is_reused && outcome.rejected().is_some() {
                continue;
            }
            let mut commit = outcome.required()?;
            let created = commit.results.pop().ok_or_else(ticket_node::missing_create_result)?;
            let node = TicketNode::new(session, created)?;
            // A store that appends a sequence to the name never uses a path twice. On a store that
            // keeps the given name, a request in flight may create the node again after its
            // removal: the path alone does not identify the ticket then.
            let has_given_name = *node.path() == path;
            let node = self.identified(node, has_given_name, requests);
            // Later waiters for permits must not rely on this ticket for a notification if it is
            // identified by its version.
            if self.write_if_versioned(&node).await? {
                return Ok((node, commit.look));
            }
        }
    }

    /// The path of a new ticket, and whether an earlier ticket of this session had it.
    fn free_path(&self, session: &Session) -> Result<(Path, bool)> {
        let names = self.form.renews.then(|| session.local::<FreeNames>());
        let used = names.and_then(|names| names.take(&self.dir, &self.form.suffix));
        // A name contains the time of the request, so it is reused only within the same second.
        let used = used.filter(|path| ticket_name::is_of_second(path.name(), Some(clock::date())));
        match used {
            Some(path) => Ok((path, true)),
            None => Ok((self.dir.join(&self.unique_name(session))?, false)),
        }
    }

    /// A unique name, in the format of Curator.
    fn unique_name(&self, session: &Session) -> String {
        let suffix = &self.form.suffix;
        mistake!(TicketWithoutId: return suffix.clone());
        format!("_c_{}-{suffix}", ticket_name::dated(&session.random().id(), Some(clock::date())))
    }

    /// The ticket, identified by its path alone or by its version as well.
    fn identified(&self, node: TicketNode, has_given_name: bool, requests: Requests) -> TicketNode {
        let in_doubt = has_given_name && !requests.is_settled();
        mistake!(LateTwinTrusted: if in_doubt { return node });
        if in_doubt || self.form.changes {
            node.versioned()
        } else if has_given_name && self.form.renews {
            node.renewable()
        } else {
            node
        }
    }

    /// Writes to a ticket for permits that is identified by its version. Returns false if the
    /// ticket is gone.
    ///
    /// Other tickets for permits are written to in the background when they are granted, to notify
    /// later waiters. A write changes the version, which checks of this ticket expect, so this
    /// ticket is written here, before anything depends on the version. The next ticket sees that it
    /// was written, and watches the whole queue.
    async fn write_if_versioned(&self, node: &TicketNode) -> Result<bool> {
        if self.form.capacity == Capacity::One || !node.is_versioned() {
            return Ok(true);
        }
        mistake!(DoubtUntold: return Ok(true));
        match node.write(self.label.clone()).await {
            Err(error) if error.kind() == ErrorKind::SessionLost => Ok(false),
            written => Ok(matches!(written?, Outcome::Committed(_))),
        }
    }

    /// The query of the transaction that creates the ticket.
    fn first_query(&self) -> Query {
        let query = Query::children(self.dir.clone()).names_only();
        if self.reads_all() { query } else { query.newest(WINDOW) }
    }

    /// The query of a later read: the last `window` tickets up to the own ticket.
    fn later_query(&self, own: Sequence, window: usize) -> Query {
        let query = Query::children(self.dir.clone()).names_only();
        if self.reads_all() || window == usize::MAX {
            return query;
        }
        query.newest_before(window, Sequence::new(own.get().saturating_add(1)))
    }

    /// Returns the query with the freshness that a ticket needs after its create.
    ///
    /// All tickets before it existed before its create, and tickets are only removed; and a
    /// response is never older than the session's own writes. So at worst a lagging response shows
    /// tickets that were already removed, and the session will be notified of their removal. The
    /// number of permits may change, however.
    fn fresh(&self, query: Query) -> Query {
        if self.form.capacity == Capacity::Posted { query } else { query.local() }
    }

    fn reads_all(&self) -> bool {
        mistake!(WatchesFirst: return true);
        mistake!(SortsByName: return true);
        self.form.whole
    }
}

impl Form {
    /// Tickets of a lock that can be shared. The suffix decides whether a ticket is shared or
    /// exclusive.
    pub(crate) fn shared(recipe: &'static str, suffix: &str) -> Self {
        Self::of(recipe, suffix.to_owned(), Capacity::One, true)
    }

    /// Tickets that each claim this number of permits together.
    pub(crate) fn permits(recipe: &'static str, permits: u32, capacity: Capacity) -> Self {
        Self::of(recipe, permits_suffix(permits, capacity), capacity, true)
    }

    /// Exclusive tickets with this suffix, granted one at a time, in order.
    pub(crate) fn exclusive(recipe: &'static str, suffix: &str) -> Self {
        Self::of(recipe, suffix.to_owned(), Capacity::One, false)
    }

    fn of(recipe: &'static str, suffix: String, capacity: Capacity, whole: bool) -> Self {
        Self { recipe, suffix, capacity, whole, changes: false, renews: false }
    }

    /// Allows writes to tickets of this form that reduce their claim.
    pub(crate) fn changing(self) -> Self {
        mistake!(WriterForEver: return self);
        Self { changes: true, ..self }
    }

    /// Allows tickets of this form to reuse the names of removed tickets.
    pub(crate) fn renewing(self) -> Self {
        Self { renews: true, ..self }
    }

    /// Returns `true` if the ticket is granted when its predecessor downgrades.
    fn may_share(&self) -> bool {
        self.capacity == Capacity::One && Claim::of_suffix(&self.suffix) == Claim::Shared
    }
}

/// Shows only the directory: the label belongs to the application.
impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.dir, f)
    }
}
