//! The calls of a [`Ticket`] that do not wait: whether it is granted now, and which tickets are before it.

use std::time::Duration;

use synod_core::clock;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::Query;

use crate::line::containers::{containers, with_stats};
use crate::line::contender::{Contender, contenders};
use crate::line::downgrade::shares;
use crate::line::marks::Claim;
use crate::line::order::{Tickets, Turn};
use crate::line::ticket::{Ticket, WaitError};
use crate::line::{Line, meter};
use crate::mutant::mistake;

impl Line {
    /// The first ticket in the line, if there is any.
    pub(crate) async fn first(&self) -> Result<Option<Path>> {
        let view = self.client.read(Query::children(self.dir.clone()).names_only()).await?;
        let queue = self.past_containers(Tickets::of(&view)).await?;
        Ok(queue.entries().first().map(|first| first.path.clone()))
    }

    /// The line without containers, if any name in it may be the name of a container.
    async fn past_containers(&self, queue: Tickets) -> Result<Tickets> {
        if !queue.has_suspects(clock::date()) {
            return Ok(queue);
        }
        let view = self.client.read(with_stats(&self.dir)).await?;
        Ok(queue.without(&containers(&view).collect::<Vec<_>>()))
    }

    /// Measures a wait that ended without a call to the store.
    pub(crate) fn note_passed_on(&self, waited: Duration) {
        meter::granted(self.form.recipe, waited, 0);
    }

    /// A ticket that is granted at once, if one is. Looks before it creates a ticket, so that a taken line gets no
    /// ticket.
    pub(crate) async fn try_enter(&self) -> Result<Option<Ticket>> {
        let sharing = self.sharing_if_free().await?;
        mistake!(TriesByDrawing: let sharing = sharing.or(Some(Vec::new())));
        let Some(sharing) = sharing else { return Ok(None) };
        let mut ticket = self.enqueue().await?.sharing(sharing);
        if ticket.is_granted().await? {
            return Ok(Some(ticket));
        }
        ticket.leave().await;
        Ok(None)
    }

    /// `None` if a ticket that is created now would have to wait. Otherwise the earlier tickets that it would share
    /// with although their names do not show that they are shared.
    async fn sharing_if_free(&self) -> Result<Option<Vec<Path>>> {
        let mut query = self.first_look();
        let mut view = self.client.read(query.clone()).await?;
        let queue = Tickets::of(&view);
        let blind = queue.entries().is_empty() || queue.has_suspects(clock::date());
        if query.window.take().is_some() && blind && !view.nodes.is_empty() {
            // The nodes in the window may all be no tickets: read the whole directory.
            view = self.client.read(query).await?;
        }
        let claim = Claim::of_mark(&self.form.mark);
        let mut queue = Tickets::of(&view);
        if queue.turn_behind(claim, self.form.capacity) != Turn::Now {
            queue = self.past_containers(queue).await?;
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
}

impl Ticket {
    /// The contenders before it in the line now, in order; `None` if it is not in the line any more.
    pub(crate) async fn ahead(&self) -> Result<Option<Vec<Contender>>> {
        let line = &self.line;
        let mut all = contenders(line.client(), line.dir(), self.form().capacity).await?;
        let place = all.iter().position(|one| one.path == *self.node.path());
        Ok(place.map(|place| {
            all.truncate(place);
            all
        }))
    }

    /// Whether it is granted already, directly after its create.
    pub(crate) async fn is_granted(&mut self) -> Result<bool> {
        let granted = match self.turn_past_containers(false).await {
            Ok(turn) => turn == Turn::Now && self.is_certain(),
            Err(WaitError::Gone) => false,
            Err(WaitError::Failed(error)) => return Err(error),
        };
        if granted {
            self.note_granted();
        }
        Ok(granted)
    }

    /// Whether it is granted at this moment, whatever was seen before.
    pub(crate) async fn is_granted_now(&mut self) -> Result<bool> {
        mistake!(InterruptByOldLook: return self.is_granted().await);
        (self.seen, self.strict) = (None, true);
        let granted = self.is_granted().await;
        self.strict = false;
        granted
    }

    /// The ticket that it would have to wait for; `None` if it is granted. With `past_containers` all names are checked
    /// first, and not only suspects.
    pub(crate) async fn blocked_by(&mut self, past_containers: bool) -> Result<Option<Path>> {
        loop {
            match self.turn_past_containers(past_containers).await {
                Ok(Turn::Now) if self.is_certain() => {
                    self.note_granted();
                    return Ok(None);
                }
                Ok(Turn::Now) => self.rest().await,
                Ok(Turn::After(ahead)) => return Ok(Some(ahead)),
                Ok(Turn::Next | Turn::Gone) | Err(WaitError::Gone) => self.draw_again().await?,
                Err(WaitError::Failed(error)) => return Err(error),
            }
        }
    }

    /// Records that it was granted without a wait. A later waiter may rely on the notification all the same.
    fn note_granted(&self) {
        meter::granted(self.form().recipe, clock::elapsed(self.since), self.asked);
        mistake!(TryUntold: return);
        self.notify_later_waiters();
    }

    /// Removes the ticket. Returns when that is done, or when it continues in the background.
    pub(crate) async fn leave(self) {
        let path = self.node.path().clone();
        if let Err(error) = self.node.remove().await {
            tracing::debug!(ticket = %path, %error, "a place is given up in the background");
        }
    }

    /// [`Ticket::turn`], for a call that does not wait. Names that may be those of containers are checked first: all of
    /// them if `all`, otherwise only suspects.
    async fn turn_past_containers(&mut self, all: bool) -> Result<Turn, WaitError> {
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

    /// Finds out which names in the line are those of containers.
    pub(super) async fn sweep(&mut self) -> Result<(), WaitError> {
        let (session, all) = (self.node.session().clone(), with_stats(self.line.dir()));
        let query = self.line.fresh(all);
        let view = self.insist(|| session.read(query.clone())).await?;
        self.vacant.extend(containers(&view));
        self.swept = true;
        Ok(())
    }
}
