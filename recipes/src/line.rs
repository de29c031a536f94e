//! The stair under everything that stands in line: a directory of tickets that belong to sessions, in
//! order of creation. Draw one, wait to be called, leave.
//!
//! A recipe makes a [`Line`] of a client, a directory and a [`Form`], and gets from it
//!
//! - [`Line::enter`]: a [`Ticket`](ticket::Ticket) that was called; uncontended in one round trip, as the draw and the
//!   first look are one commit;
//! - [`Line::enqueue`] and [`Ticket::called`](ticket::Ticket::called): the same in two steps;
//! - [`Line::try_enter`]: a ticket that was called at once, or nothing, and then nothing is left;
//! - [`Ticket::hold`](ticket::Ticket::hold): the [`Hold`](hold::Hold) that it becomes, which is what the recipe's user gets;
//! - [`Line::contenders`]: all contenders in the line, in order.
//!
//! What serves one recipe alone is part of that recipe.
//!
//! What holds for all of them:
//!
//! - **A ticket is gone when its owner is.** It is ephemeral; its [`TicketNode`] removes it when dropped; and a
//!   draw that is dropped half-way is taken back by the session. So every call here is cancel safe.
//! - **A turn is decided by [`turn`](order::turn) alone**, a pure function, from a view in which the own
//!   ticket was seen. Never from an event: an event only says that it is time to look again. And it counts
//!   only while the session certainly lives.
//! - **Waiting costs little.** Who waits watches the one ticket right ahead of him. When it goes he looks
//!   once. Whoever stands or holds for longer than a third of his session's time watches his own ticket, too,
//!   in case somebody takes it away. Who waits for permits and has only such
//!   ahead who are in, watches the line; all behind him watch the one right ahead, who says that he was
//!   called by writing to his ticket.
//! - **Another session, another ticket.** Who waits when his session is lost draws again in the next one.
//!   A [`Hold`](hold::Hold) does not: what it held is lost for good.
//! - **A wait goes on as long as its session lives**, also while the store does not answer. It fails when
//!   the store refuses, or there is no next session within the client's deadline.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::mutant::{self, Mutant};
use synod_core::path::Path;
use synod_core::retry::{Delays, Retry};
use synod_core::session::Session;
use synod_core::store::{Done, Lifetime, Node, Outcome, Query, Sequence, Txn, View};

use crate::line::contender::Contender;
use crate::line::names::Names;
use crate::line::order::{Capacity, Claim, Queue, Turn};
use crate::line::ticket_node::TicketNode;

pub(crate) mod contender;
pub(crate) mod hold;
pub(crate) mod limit;
pub(crate) mod order;
pub(crate) mod ticket;
pub(crate) mod ticket_node;

mod names;
mod seen_version;
mod ticket_name;

#[cfg(feature = "metrics")]
mod meter;
#[cfg(not(feature = "metrics"))]
mod unmetered;
#[cfg(not(feature = "metrics"))]
use unmetered as meter;

/// How many tickets are looked at where the one right ahead is enough: that one, and the own.
pub(crate) const SIGHT: usize = 2;

/// What the tickets of a recipe are like.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    /// The recipe, in metrics and spans.
    pub(crate) recipe: &'static str,
    /// What the name of a ticket ends in; one of those that [`order`] knows.
    pub(crate) mark: String,
    /// How many can be in at once, for those who come for permits.
    pub(crate) capacity: Capacity,
    /// Whether a turn depends on more than the ticket right ahead.
    pub(crate) whole: bool,
    /// Whether a ticket may come to stand for less, by what is written to it.
    pub(crate) changes: bool,
    /// Whether a ticket may have the name of one that is gone, where the store adds nothing to it.
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
    /// To share, or not, with whoever else comes.
    pub(crate) fn shared(recipe: &'static str, mark: &str) -> Self {
        Self::of(recipe, mark.to_owned(), Capacity::One, true)
    }

    /// So many permits at once.
    pub(crate) fn permits(recipe: &'static str, permits: u32, capacity: Capacity) -> Self {
        Self::of(recipe, order::permits_mark(permits, capacity), capacity, true)
    }

    /// Everybody alone, in order: under this mark.
    pub(crate) fn alone(recipe: &'static str, mark: &str) -> Self {
        Self::of(recipe, mark.to_owned(), Capacity::One, false)
    }

    fn of(recipe: &'static str, mark: String, capacity: Capacity, whole: bool) -> Self {
        Self { recipe, mark, capacity, whole, changes: false, renews: false }
    }

    /// Tickets of this form may come to stand for less.
    pub(crate) fn changing(self) -> Self {
        Self { changes: true, ..self }
    }

    /// Tickets of this form may have the names of those that are gone.
    pub(crate) fn renewing(self) -> Self {
        Self { renews: true, ..self }
    }
}

impl Line {
    pub(crate) fn new(client: &Client, dir: Path, form: Form) -> Self {
        Self { client: client.clone(), dir, form, label: Bytes::new() }
    }

    /// What the tickets hold: for people and programs that look at the line.
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
        passes && !self.client.is_closed() && !mutant::is(Mutant::OutageEndsIt)
    }

    /// How long to wait between the tries of what is repeated until it succeeds.
    pub(crate) fn delays(&self) -> Delays {
        Retry::forever().delays(self.client.chance())
    }

    /// Measures a wait that ended without a call to the store.
    pub(crate) fn note_passed_on(&self, waited: Duration) {
        meter::called(self.form.recipe, waited, 0);
    }

    /// Everybody in it, in order.
    pub(crate) async fn contenders(&self) -> Result<Vec<Contender>> {
        let all = contender::contenders(&self.client, &self.dir, self.form.capacity).await?;
        if mutant::is(Mutant::VanishedIsError) {
            for one in &all {
                let gone = || Error::new(ErrorKind::Refused, "reading a candidate").at(&one.path);
                self.client.get(&one.path).await?.ok_or_else(gone)?;
            }
        }
        Ok(all)
    }

    /// The first ticket in the line, if there is any.
    pub(crate) async fn first(&self) -> Result<Option<Path>> {
        let view = self.client.read(Query::children(self.dir.clone()).names_only()).await?;
        let queue = self.past_containers(Queue::of(&view)).await?;
        Ok(queue.entries().first().map(|first| first.path.clone()))
    }

    /// The line without containers, if any name in it may be that of one.
    async fn past_containers(&self, queue: Queue) -> Result<Queue> {
        if !queue.has_suspects() || mutant::is(Mutant::ContainerIsTicket) {
            return Ok(queue);
        }
        let view = self.client.read(order::with_stats(&self.dir)).await?;
        Ok(queue.without(&order::containers(&view).collect::<Vec<_>>()))
    }

    /// `None` if whoever came now would have to wait; otherwise those with whom he would share though their
    /// names do not say so.
    async fn sharing_if_free(&self) -> Result<Option<Vec<Path>>> {
        let mut query = self.first_look();
        let mut view = self.client.read(query.clone()).await?;
        let queue = Queue::of(&view);
        let blind = queue.is_empty() || queue.has_suspects();
        if query.window.take().is_some() && blind && !view.nodes.is_empty() {
            // Nothing but what others keep there, so far.
            view = self.client.read(query).await?;
        }
        let claim = Claim::of_mark(&self.form.mark);
        let mut queue = Queue::of(&view);
        if queue.turn_behind(claim, self.form.capacity) != Turn::Now {
            queue = self.past_containers(queue).await?;
        }
        let mut sharing = Vec::new();
        loop {
            match queue.turn_behind(claim, self.form.capacity) {
                Turn::Now => return Ok(Some(sharing)),
                Turn::After(ahead) if claim == Claim::Shared => {
                    let ahead = self.client.read(Query::node(ahead)).await?.into_node();
                    let Some(ahead) = ahead.filter(order::shares) else { return Ok(None) };
                    sharing.push(ahead.path);
                    queue = queue.sharing(&sharing);
                }
                _ => return Ok(None),
            }
        }
    }

    /// Draws a ticket in the session that lives, and looks at the line: one round trip.
    async fn draw(&self) -> Result<(TicketNode, Option<View>)> {
        loop {
            let session = self.client.session().await?;
            let adopts =
                mutant::is(Mutant::TicketPerSession) || mutant::is(Mutant::OldTicketTrusted);
            if adopts && let Some(node) = self.drawn_before(&session).await? {
                return Ok((node, None));
            }
            let names = self.form.renews.then(|| session.local::<Names>());
            let used = names.and_then(|names| names.take(&self.dir, &self.form.mark));
            // It says since when he stands there, who has it.
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
                // What it made, if anything, goes with the session.
                Err(error) if error.kind() == ErrorKind::SessionLost => continue,
                Err(_) if mutant::is(Mutant::RefusalSwallowed) => continue,
                outcome => outcome?,
            };
            if used && outcome.rejected().is_some() {
                continue;
            }
            let mut commit = outcome.required()?;
            let done = commit.done.pop().ok_or_else(ticket_node::untold)?;
            let mut node = TicketNode::new(session, done)?;
            let given = *node.path() == path;
            let in_doubt = given && !requests.is_settled();
            let changes = self.form.changes && !mutant::is(Mutant::WriterForEver);
            let trusted = in_doubt && mutant::is(Mutant::LateTwinTrusted);
            if (in_doubt || changes) && !trusted {
                node = node.counting_by_version();
                if !self.is_settled(&node).await? {
                    continue;
                }
            } else if given && !in_doubt && self.form.renews {
                node = node.renewable();
            }
            return Ok((node, commit.look.filter(|_| !mutant::is(Mutant::LookIgnored))));
        }
    }

    /// Whoever comes for permits writes to his ticket when he is called, in the background, for those behind. One that
    /// was drawn in doubt is checked by its version, so it is written to at once: who comes behind it looks at the
    /// whole line. False if it is gone already.
    async fn is_settled(&self, node: &TicketNode) -> Result<bool> {
        let untold = mutant::is(Mutant::DoubtUntold);
        if self.form.capacity == Capacity::One || !node.counts_by_version() || untold {
            return Ok(true);
        }
        match node.write(self.label.clone()).await {
            Err(error) if error.kind() == ErrorKind::SessionLost => Ok(false),
            written => Ok(matches!(written?, Outcome::Committed(_))),
        }
    }

    /// The ticket that somebody drew in this session, or in the one before: two mistakes.
    async fn drawn_before(&self, session: &Session) -> Result<Option<TicketNode>> {
        let view = session.read(Query::children(self.dir.clone())).await?;
        let is_own = |node: &Node| {
            if mutant::is(Mutant::OldTicketTrusted) {
                return !self.label.is_empty() && node.data == self.label;
            }
            node.stat.and_then(|it| it.owner) == Some(session.info().id)
        };
        let own = view.nodes.into_iter().find(is_own).and_then(|node| {
            let done = Done::new(node.path).with_stat(node.stat?).with_sequence(node.sequence?);
            Some(TicketNode::new(session.clone(), done))
        });
        own.transpose()
    }

    /// A name that nobody else gives, as Curator writes them.
    fn name(&self, session: &Session) -> String {
        let mark = &self.form.mark;
        if mutant::is(Mutant::TicketWithoutId) {
            return mark.clone();
        }
        let now = Some(clock::date()).filter(|_| !mutant::is(Mutant::SinceUntold));
        format!("_c_{}-{mark}", ticket_name::dated(&session.chance().id(), now))
    }

    /// What is looked at as the ticket is drawn.
    fn first_look(&self) -> Query {
        let query = Query::children(self.dir.clone()).names_only();
        if self.sees_all() { query } else { query.newest(SIGHT) }
    }

    /// What is looked at later: the last `sight` tickets up to the own one.
    fn look(&self, own: Sequence, sight: usize) -> Query {
        let query = Query::children(self.dir.clone()).names_only();
        if self.sees_all() || sight == usize::MAX {
            return query;
        }
        query.newest_before(sight, Sequence::new(own.get().saturating_add(1)))
    }

    /// How fresh an answer must be for somebody whose ticket is drawn.
    ///
    /// All tickets ahead of it were there before it was, and tickets only go away; and what a session is
    /// answered is never older than what it did. So an answer that lags shows at most somebody who is gone
    /// already, of which the session is still to be told. How many permits there are may change, however.
    fn fresh(&self, query: Query) -> Query {
        if self.form.capacity == Capacity::Posted { query } else { query.local() }
    }

    fn sees_all(&self) -> bool {
        self.form.whole || mutant::is(Mutant::WatchesFirst) || mutant::is(Mutant::SortsByName)
    }
}

/// By its directory: whatever shows a line shows what it is for, and not what people said of themselves.
impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.dir, f)
    }
}
