//! [`Line`]: a directory of tickets in the order of their creation, the base of locks, semaphores and elections.
//!
//! A recipe creates a ticket, waits until it is granted, and removes it. It makes a [`Line`] of a client, a
//! directory and a [`Form`], and gets from it
//!
//! - [`Line::enter`]: a [`Ticket`](ticket::Ticket) that was granted. Without contention this is one round trip, as
//!   the create and the first look are one commit;
//! - [`Line::enqueue`] and [`Ticket::called`](ticket::Ticket::called): the same in two steps;
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
//! - **Waiting costs little.** A waiter watches only its predecessor, and looks once when the predecessor is gone.
//!   A waiter or holder that stays for longer than a third of its session's time to live also watches its own
//!   ticket, in case another client removes it. The first waiter of a semaphore watches the whole directory. Every
//!   later waiter watches only its predecessor, which writes to its own ticket when it is granted.
//! - **A new session needs a new ticket.** A waiter whose session is lost creates another ticket in the next session.
//!   A [`Hold`](hold::Hold) does not: what it held is lost for good.
//! - **A wait continues as long as its session lives**, also while the store does not answer. It fails when
//!   the store refuses, or when there is no next session within the client's deadline.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::retry::{Delays, Retry};
use synod_core::session::{Requests, Session};
use synod_core::store::{Lifetime, Outcome, Query, Sequence, Txn, View};

use crate::line::contender::Contender;
use crate::line::marks::Capacity;
use crate::line::names::Names;
use crate::line::order::Queue;
use crate::line::ticket_node::TicketNode;
use crate::mutant::mistake;

mod asking;
pub(crate) mod contender;
pub(crate) mod hold;
pub(crate) mod limit;
pub(crate) mod marks;
pub(crate) mod order;
mod permits;
pub(crate) mod ticket;
pub(crate) mod ticket_node;

mod names;
mod seen_version;
pub(crate) mod ticket_name;

#[cfg(feature = "metrics")]
mod meter;
#[cfg(not(feature = "metrics"))]
mod unmetered;
#[cfg(not(feature = "metrics"))]
use unmetered as meter;

/// How many tickets a waiter reads if only its predecessor matters: the predecessor and its own.
pub(crate) const SIGHT: usize = 2;

/// The properties of a recipe's tickets.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    /// The recipe, in metrics and spans.
    pub(crate) recipe: &'static str,
    /// The end of the name of a ticket: one of [`marks`].
    pub(crate) mark: String,
    /// How much the line grants at once, if its tickets are for permits.
    pub(crate) capacity: Capacity,
    /// Whether a grant depends on more than the predecessor.
    pub(crate) whole: bool,
    /// Whether a write to a ticket may reduce its claim.
    pub(crate) changes: bool,
    /// Whether a ticket may reuse the name of a removed ticket, on stores that append no sequence to the name.
    pub(crate) renews: bool,
}

/// A directory of tickets, as one recipe sees it. Costs nothing to make.
#[derive(Clone)]
pub(crate) struct Line {
    client: Client,
    dir: Path,
    form: Form,
    label: Bytes,
}

impl Form {
    /// Tickets of a lock that can be shared. The mark decides whether these are shared or exclusive.
    pub(crate) fn shared(recipe: &'static str, mark: &str) -> Self {
        Self::of(recipe, mark.to_owned(), Capacity::One, true)
    }

    /// Tickets that each claim so many permits at once.
    pub(crate) fn permits(recipe: &'static str, permits: u32, capacity: Capacity) -> Self {
        Self::of(recipe, marks::permits_mark(permits, capacity), capacity, true)
    }

    /// Exclusive tickets with this mark, granted one at a time, in order.
    pub(crate) fn alone(recipe: &'static str, mark: &str) -> Self {
        Self::of(recipe, mark.to_owned(), Capacity::One, false)
    }

    fn of(recipe: &'static str, mark: String, capacity: Capacity, whole: bool) -> Self {
        Self { recipe, mark, capacity, whole, changes: false, renews: false }
    }

    /// A write to a ticket of this form may reduce its claim.
    pub(crate) fn changing(self) -> Self {
        mistake!(WriterForEver: return self);
        Self { changes: true, ..self }
    }

    /// Tickets of this form may reuse the names of removed tickets.
    pub(crate) fn renewing(self) -> Self {
        Self { renews: true, ..self }
    }
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

    /// Whether a later try may succeed after this failure: the store did not answer, or there was no session in time.
    pub(crate) fn may_pass(&self, error: &Error) -> bool {
        let passes = matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::SessionLost);
        mistake!(OutageEndsIt: let passes = false);
        passes && !self.client.is_closed()
    }

    /// How long to wait between the tries of what is repeated until it succeeds.
    pub(crate) fn delays(&self) -> Delays {
        Retry::forever().delays(self.client.chance())
    }

    /// Measures a wait that ended without a call to the store.
    pub(crate) fn note_passed_on(&self, waited: Duration) {
        meter::called(self.form.recipe, waited, 0);
    }

    /// All contenders in the line, in order.
    pub(crate) async fn contenders(&self) -> Result<Vec<Contender>> {
        let all = contender::contenders(&self.client, &self.dir, self.form.capacity).await?;
        mistake!(VanishedIsError: crate::mutant::line::read_each(&self.client, &all).await?);
        Ok(all)
    }

    /// The first ticket in the line, if there is any.
    pub(crate) async fn first(&self) -> Result<Option<Path>> {
        let view = self.client.read(Query::children(self.dir.clone()).names_only()).await?;
        let queue = self.past_containers(Queue::of(&view)).await?;
        Ok(queue.entries().first().map(|first| first.path.clone()))
    }

    /// The line without containers, if any name in it may be the name of a container.
    async fn past_containers(&self, queue: Queue) -> Result<Queue> {
        if !queue.has_suspects(clock::date()) {
            return Ok(queue);
        }
        let view = self.client.read(order::with_stats(&self.dir)).await?;
        Ok(queue.without(&order::containers(&view).collect::<Vec<_>>()))
    }

    /// Creates a ticket in the current session, and looks at the line: one round trip.
    async fn draw(&self) -> Result<(TicketNode, Option<View>)> {
        loop {
            let session = self.client.session().await?;
            mistake!(OldTicketTrusted: if let Some(node) = self.drawn_before(&session).await? {
                return Ok((node, None));
            });
            let names = self.form.renews.then(|| session.local::<Names>());
            let used = names.and_then(|names| names.take(&self.dir, &self.form.mark));
            // A name contains the time of the request, so it is reused only within the same second.
            let used =
                used.filter(|path| ticket_name::is_of_second(path.name(), Some(clock::date())));
            let (path, used) = match used {
                Some(path) => (path, true),
                None => (self.dir.join(&self.name(&session))?, false),
            };
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
            let done = commit.done.pop().ok_or_else(ticket_node::missing_create_result)?;
            let node = TicketNode::new(session, done)?;
            let as_given = *node.path() == path;
            let node = self.counted(node, as_given, requests);
            if self.is_settled(&node).await? {
                return Ok((node, commit.look));
            }
        }
    }

    /// The ticket with the way in which it is distinguished from other nodes at its path. That depends on whether the
    /// store kept the name as it was given, and on whether a request of the create may still take effect.
    fn counted(&self, node: TicketNode, as_given: bool, requests: Requests) -> TicketNode {
        let in_doubt = as_given && !requests.is_settled();
        mistake!(LateTwinTrusted: if in_doubt { return node });
        if in_doubt || self.form.changes {
            node.counting_by_version()
        } else if as_given && self.form.renews {
            node.renewable()
        } else {
            node
        }
    }

    /// A ticket for permits is written to when it is granted, in the background, to notify later waiters. A ticket
    /// whose create is in doubt is checked by its version, so it is written to at once: the ticket after it then looks
    /// at the whole line. Returns false if the ticket is gone already.
    async fn is_settled(&self, node: &TicketNode) -> Result<bool> {
        if self.form.capacity == Capacity::One || !node.counts_by_version() {
            return Ok(true);
        }
        mistake!(DoubtUntold: return Ok(true));
        match node.write(self.label.clone()).await {
            Err(error) if error.kind() == ErrorKind::SessionLost => Ok(false),
            written => Ok(matches!(written?, Outcome::Committed(_))),
        }
    }

    /// A unique name, in the format of Curator.
    fn name(&self, session: &Session) -> String {
        let mark = &self.form.mark;
        mistake!(TicketWithoutId: return mark.clone());
        format!("_c_{}-{mark}", ticket_name::dated(&session.chance().id(), Some(clock::date())))
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
