//! The calls that enter a wait queue: with a wait, without a wait, or for the guard of any recipe;
//! and the calls of a [`Ticket`] that do not wait.

use std::time::Duration;

use futures_core::future::BoxFuture;
use synod_core::clock;
use synod_core::error::Result;
use synod_core::held::Held;
use synod_core::path::Path;
use synod_core::store::Query;

use crate::line::order::{Contender, Tickets, Turn, containers, contenders, shares, with_stats};
use crate::line::ticket::{Ticket, WaitError};
use crate::line::ticket_name::Claim;
use crate::line::{Line, meter};
use crate::mutant::mistake;

impl Line {
    /// Creates a ticket and waits until it is granted.
    pub(crate) async fn enter(&self) -> Result<Ticket> {
        if self.same_limit {
            // Boxed, so that the futures of other recipes stay small.
            return Box::pin(self.enter_with_same_limit()).await;
        }
        let mut ticket = self.enqueue().await?;
        ticket.granted().await?;
        Ok(ticket)
    }

    /// [`Line::enter`] that returns a guard of any recipe.
    pub(crate) fn held(self) -> BoxFuture<'static, Result<Box<dyn Held>>> {
        Box::pin(async move { Ok(Box::new(self.enter().await?.hold(())) as Box<dyn Held>) })
    }

    /// Creates a ticket at the end of the queue.
    pub(crate) async fn enqueue(&self) -> Result<Ticket> {
        mistake!(TicketPerSession: if let Some(node) = self.created_by_session().await? {
            return Ok(Ticket::new(self.clone(), node, None));
        });
        let (node, view) = self.create_ticket().await?;
        Ok(Ticket::new(self.clone(), node, view))
    }

    /// A ticket that is granted without a wait, or `None`. Reads the queue before it creates a
    /// ticket: a queue with a holder gets no ticket.
    pub(crate) async fn try_enter(&self) -> Result<Option<Ticket>> {
        let sharing = self.sharing_if_free().await?;
        mistake!(TriesByDrawing: let sharing = sharing.or(Some(Vec::new())));
        let Some(sharing) = sharing else { return Ok(None) };
        let mut ticket = self.enqueue().await?.sharing(sharing);
        if ticket.check_granted().await? {
            return Ok(Some(ticket));
        }
        ticket.leave().await;
        Ok(None)
    }

    /// `None` if a ticket that is created now would have to wait. Otherwise the earlier tickets
    /// that are shared although their names do not show it.
    async fn sharing_if_free(&self) -> Result<Option<Vec<Path>>> {
        let mut query = self.first_query();
        let mut view = self.client.read(query.clone()).await?;
        let queue = Tickets::of(&view);
        let is_blind = queue.entries().is_empty() || queue.has_suspects(clock::date());
        if query.window.take().is_some() && is_blind && !view.nodes.is_empty() {
            // Possibly no node in the window is a ticket: read the whole directory.
            view = self.client.read(query).await?;
        }
        if self.same_limit {
            Box::pin(self.check_limits(&view)).await?;
        }
        let claim = Claim::of_suffix(&self.form.suffix);
        let mut queue = Tickets::of(&view);
        if queue.turn_behind(claim, self.form.capacity) != Turn::Now {
            queue = self.without_containers(queue).await?;
        }
        let mut sharing = Vec::new();
        loop {
            match queue.turn_behind(claim, self.form.capacity) {
                Turn::Now => return Ok(Some(sharing)),
                Turn::After(ahead) if claim == Claim::Shared => {
                    let ahead = self.client.read(Query::node(ahead)).await?.into_node();
                    let Some(ahead) = ahead.filter(shares) else { return Ok(None) };
                    sharing.push(ahead.path);
                    queue = queue.sharing(&sharing);
                }
                _ => return Ok(None),
            }
        }
    }

    /// The first ticket in the queue, if any.
    pub(crate) async fn first(&self) -> Result<Option<Path>> {
        let view = self.client.read(Query::children(self.dir.clone()).names_only()).await?;
        let queue = self.without_containers(Tickets::of(&view)).await?;
        Ok(queue.entries().first().map(|first| first.path.clone()))
    }

    /// The queue without containers. Reads again only if any name may be the name of a container.
    async fn without_containers(&self, queue: Tickets) -> Result<Tickets> {
        if !queue.has_suspects(clock::date()) {
            return Ok(queue);
        }
        let view = self.client.read(with_stats(&self.dir)).await?;
        Ok(queue.without(&containers(&view).collect::<Vec<_>>()))
    }

    /// All contenders in the queue, in order.
    pub(crate) async fn contenders(&self) -> Result<Vec<Contender>> {
        let all = contenders(&self.client, &self.dir, self.form.capacity).await?;
        mistake!(VanishedIsError: crate::mutant::line::read_each(&self.client, &all).await?);
        Ok(all)
    }

    /// Measures a wait that ended without a call to the store.
    pub(crate) fn record_passed_on(&self, waited: Duration) {
        meter::granted(self.form.recipe, waited, 0);
    }
}

impl Ticket {
    /// The contenders that are before it in the queue, in order; `None` if it is no longer in the
    /// queue.
    pub(crate) async fn ahead(&self) -> Result<Option<Vec<Contender>>> {
        let line = &self.line;
        let mut all = contenders(line.client(), line.dir(), self.form().capacity).await?;
        let place = all.iter().position(|one| one.path == *self.node.path());
        Ok(place.map(|place| {
            all.truncate(place);
            all
        }))
    }

    /// Returns `true` if the ticket was granted by its create.
    pub(crate) async fn check_granted(&mut self) -> Result<bool> {
        let granted = match self.turn_among_tickets(false).await {
            Ok(turn) => turn == Turn::Now && self.is_certain(),
            Err(WaitError::Gone) => false,
            Err(WaitError::Failed(error)) => return Err(error),
        };
        if granted {
            self.record_granted();
        }
        Ok(granted)
    }

    /// Returns `true` if the ticket is granted at this moment, regardless of earlier views.
    pub(crate) async fn check_granted_now(&mut self) -> Result<bool> {
        mistake!(InterruptByOldLook: return self.check_granted().await);
        (self.view, self.strict) = (None, true);
        let granted = self.check_granted().await;
        self.strict = false;
        granted
    }

    /// The ticket that it would have to wait for; `None` if it is granted. First checks which names
    /// are containers: all names if `all_names`, otherwise only the suspects.
    pub(crate) async fn blocked_by(&mut self, all_names: bool) -> Result<Option<Path>> {
        loop {
            match self.turn_among_tickets(all_names).await {
                Ok(Turn::Now) if self.is_certain() => {
                    self.record_granted();
                    return Ok(None);
                }
                Ok(Turn::Now) => self.rest().await,
                Ok(Turn::After(ahead)) => return Ok(Some(ahead)),
                Ok(Turn::Next | Turn::Gone) | Err(WaitError::Gone) => self.create_again().await?,
                Err(WaitError::Failed(error)) => return Err(error),
            }
        }
    }

    /// Records a grant without a wait. A later waiter may still rely on the notification.
    fn record_granted(&self) {
        meter::granted(self.form().recipe, clock::elapsed(self.since), self.calls);
        mistake!(TryUntold: return);
        self.notify_later_waiters();
    }

    /// Removes the ticket. Returns when it is removed, or when the removal continues in the
    /// background.
    pub(crate) async fn leave(self) {
        let path = self.node.path().clone();
        if let Err(error) = self.node.remove().await {
            tracing::debug!(ticket = %path, %error, "the ticket will be removed in the background");
        }
    }

    /// [`Ticket::turn`], for a call that does not wait. First checks which names are containers:
    /// all names if `all`, otherwise only the suspects.
    async fn turn_among_tickets(&mut self, all: bool) -> Result<Turn, WaitError> {
        if all && !self.swept {
            self.sweep().await?;
        }
        let turn = self.turn().await?;
        let suspects = matches!(turn, Turn::After(_) | Turn::Next) && self.last.suspects;
        if !suspects || self.swept {
            return Ok(turn);
        }
        self.sweep().await?;
        self.turn().await
    }
}
