//! [`Ticket`]: a ticket in a line, and how it waits until it is granted.

use std::fmt;
use std::pin::pin;

use futures_core::future::BoxFuture;
use futures_util::future::{Either, select};
use synod_core::clock::{self, Instant, sleep};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::held::Held;
use synod_core::path::Path;
use synod_core::store::{Event, Node, Query, View, Watch};
use tracing::Instrument;

use crate::line::downgrade::shares;
use crate::line::form::Form;
use crate::line::hold::Hold;
use crate::line::marks::Capacity;
use crate::line::meter;
use crate::line::order::{Tickets, Turn, turn};
use crate::line::ticket_node::TicketNode;
use crate::line::{Line, SIGHT};
use crate::mutant::mistake;

/// A ticket in a line. Dropping it removes it.
pub(crate) struct Ticket {
    pub(super) line: Line,
    pub(super) node: TicketNode,
    /// The view that its create returned, until it is evaluated.
    pub(super) seen: Option<View>,
    pub(super) since: Instant,
    /// How many calls to the store it took.
    pub(super) asked: u32,
    /// Tickets that are shared although their names do not show it.
    sharing: Vec<Path>,
    /// Paths that a listing names although no node is there: containers, and earlier tickets that are gone. They were
    /// vacant after this ticket was created, so a node that is created there later is later in the line.
    pub(super) vacant: Vec<Path>,
    /// Whether the line was searched for containers since the last change.
    pub(super) swept: bool,
    /// Whether only the latest state counts: no earlier view, and no answer that lags.
    pub(super) strict: bool,
    /// What was seen last: whether there is a later ticket, and how many permits there are.
    pub(super) last: Last,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Last {
    pub(super) followed: bool,
    pub(super) permits: Option<u32>,
    /// Whether any name may be that of a container, and is not one that a ticket of this library was given lately.
    pub(super) suspects: bool,
    /// Whether any name may be that of a container.
    pub(super) unsure: bool,
}

/// Why a wait ended without a grant.
pub(super) enum WaitError {
    /// The ticket or its session is gone.
    Gone,
    Failed(Error),
}

/// The result of a wait for a change.
pub(super) enum Waited {
    /// Something changed, or may have changed. With the watch that was used.
    Change(Option<Watch>),
    /// The wait ended, and no change is known.
    Nothing,
}

impl Line {
    /// A ticket that is granted, however long the wait takes.
    pub(crate) async fn enter(&self) -> Result<Ticket> {
        let mut ticket = self.enqueue().await?;
        ticket.granted().await?;
        Ok(ticket)
    }

    /// [`Line::enter`], as a guard of any recipe.
    pub(crate) fn held(self) -> BoxFuture<'static, Result<Box<dyn Held>>> {
        Box::pin(async move { Ok(Box::new(self.enter().await?.hold(())) as Box<dyn Held>) })
    }

    /// A new ticket at the end of the line.
    pub(crate) async fn enqueue(&self) -> Result<Ticket> {
        mistake!(TicketPerSession: if let Some(node) = self.drawn_by_session().await? {
            return Ok(Ticket::new(self.clone(), node, None));
        });
        let (node, seen) = self.draw().await?;
        Ok(Ticket::new(self.clone(), node, seen))
    }
}

impl Ticket {
    fn new(line: Line, node: TicketNode, seen: Option<View>) -> Self {
        mistake!(LookIgnored: let seen = None);
        let (since, last) = (clock::now(), Last::default());
        let (sharing, vacant) = (Vec::new(), Vec::new());
        Self {
            line,
            node,
            seen,
            since,
            asked: 1,
            sharing,
            vacant,
            swept: false,
            strict: false,
            last,
        }
    }

    /// The same ticket, with the knowledge that these tickets are shared.
    pub(super) fn sharing(self, sharing: Vec<Path>) -> Self {
        Self { sharing, ..self }
    }

    pub(super) fn form(&self) -> &Form {
        self.line.form()
    }

    /// Waits until it is granted. If its session is lost, or another client removes it, another ticket is
    /// created at the end of the line.
    pub(crate) async fn granted(&mut self) -> Result<()> {
        let span = tracing::debug_span!(
            "waiting",
            recipe = self.form().recipe,
            path = %self.line.dir(),
            waited = tracing::field::Empty,
            calls = tracing::field::Empty,
        );
        let told = span.clone();
        // On the heap, so that the future of a caller with many waits stays small.
        Box::pin(async {
            loop {
                match self.granted_in_session().await {
                    Ok(()) => break,
                    Err(WaitError::Gone) => {
                        mistake!(WaitsInOneSession: return Err(self.node.was_lost()));
                        self.draw_again().await?;
                    }
                    Err(WaitError::Failed(error)) => return Err(error),
                }
            }
            let (waited, asked) = (clock::elapsed(self.since), self.asked);
            meter::granted(self.form().recipe, waited, asked);
            told.record("waited", tracing::field::debug(waited)).record("calls", asked);
            tracing::debug!(ticket = %self.node.path(), "granted");
            Ok(())
        })
        .instrument(span)
        .await
    }

    /// The hold that it becomes once it is granted.
    pub(crate) fn hold<K>(self, kind: K) -> Hold<K> {
        let recipe = self.form().recipe;
        Hold::new(self.node, recipe, kind)
    }

    pub(super) async fn draw_again(&mut self) -> Result<()> {
        tracing::debug!(ticket = %self.node.path(), "the ticket is gone; drawing another");
        let (node, seen) = self.line.draw().await?;
        // What is trusted is not removed.
        mistake!(OldTicketTrusted: crate::mutant::line::keep(&self.node));
        self.node = node;
        self.seen = seen;
        self.asked += 1;
        self.vacant.clear();
        self.swept = false;
        Ok(())
    }

    async fn granted_in_session(&mut self) -> Result<(), WaitError> {
        let (mut line_watch, mut used_watch, mut delays) = (None, None, None);
        loop {
            let turn = self.turn().await?;
            // The used watch is dropped only after the look, which is urgent.
            drop(used_watch.take());
            let waited = match turn {
                Turn::Now if self.is_certain() => {
                    self.notify_later_waiters();
                    return Ok(());
                }
                Turn::Now => {
                    self.rest().await;
                    continue;
                }
                Turn::Gone => return Err(WaitError::Gone),
                Turn::After(ahead) => {
                    let waited = self.until_gone(&ahead, &mut line_watch).await?;
                    mistake!(PredecessorGoneIsTurn: return Ok(()));
                    waited
                }
                Turn::Next => self.until_anything(&mut line_watch).await?,
            };
            match waited {
                Waited::Change(watch) => (used_watch, delays) = (watch, None),
                Waited::Nothing => {
                    let delays = delays.get_or_insert_with(|| self.node.delays());
                    sleep(delays.next().unwrap_or_default()).await;
                }
            }
        }
    }

    /// Whether the session is certain now. A grant counts only then.
    pub(super) fn is_certain(&self) -> bool {
        mistake!(GrantsUncertain: return true);
        self.node.session().is_certain()
    }

    /// What the ticket does next.
    pub(super) async fn turn(&mut self) -> Result<Turn, WaitError> {
        let mut sight = SIGHT;
        let mut seen = self.seen.take();
        loop {
            let view = if let Some(view) = seen.take() {
                view
            } else {
                let view = self.read(sight).await;
                mistake!(LostReadIsEmpty: if let Err(WaitError::Failed(_)) = view {
                    return Ok(Turn::Now);
                });
                view?
            };
            let (turn, alone) = self.think(&view);
            let cut = !self.line.sees_all() && sight < usize::MAX && view.nodes.len() >= sight;
            if turn != Turn::Now || !cut || !alone {
                return Ok(turn);
            }
            // No other node in the window is a ticket: read the whole line.
            sight = usize::MAX;
        }
    }

    /// What the ticket does next, according to the view, and whether the view has no other ticket.
    pub(super) fn think(&mut self, view: &View) -> (Turn, bool) {
        let mut queue = Tickets::of(view).sharing(&self.sharing).without(&self.vacant);
        if self.node.counts_by_version() {
            // If a late request created the node again, that is another ticket.
            queue = queue.placed(self.node.path(), self.node.sequence());
        }
        let (me, capacity) = (self.node.path(), self.form().capacity);
        mistake!(LimitRemembered: let capacity = {
            self.last.permits.map_or(capacity, Capacity::Permits)
        });
        let followed = queue.has_later_ticket(me);
        let (suspects, unsure) = (queue.has_suspects(clock::date()), queue.is_unsure());
        let last = Last { followed, permits: queue.permits(capacity), suspects, unsure };
        let turn = turn(&queue, me, capacity);
        self.last = last;
        (turn, queue.entries().len() <= 1)
    }

    async fn read(&mut self, sight: usize) -> Result<View, WaitError> {
        let mut query = self.line.look(self.node.sequence(), sight);
        if !self.strict {
            query = self.line.fresh(query);
        }
        let session = self.node.session().clone();
        self.insist(|| session.read(query.clone())).await
    }

    /// Repeats a request for as long as the session lives.
    pub(super) async fn insist<T, F>(&mut self, mut ask: impl FnMut() -> F) -> Result<T, WaitError>
    where
        F: Future<Output = Result<T>>,
    {
        let mut delays = self.node.delays();
        loop {
            self.asked += 1;
            let error = match ask().await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            match error.kind() {
                ErrorKind::SessionLost => return Err(WaitError::Gone),
                ErrorKind::Unreachable => {
                    mistake!(LostReadIsEmpty: return Err(WaitError::Failed(error)));
                    sleep(delays.next().unwrap_or_default()).await;
                }
                _ => return Err(WaitError::Failed(error)),
            }
        }
    }

    /// Waits until another look may have another result, as the predecessor is gone or was granted.
    async fn until_gone(
        &mut self,
        ahead: &Path,
        line_watch: &mut Option<Watch>,
    ) -> Result<Waited, WaitError> {
        mistake!(WatchesInTwoCalls: {
            self.unless_lost(crate::mutant::line::next_event_if_there(self.node.session(), ahead)).await?;
        });
        // The data of the predecessor matters if this ticket can be granted while the predecessor exists.
        let wants_data = self.form().capacity != Capacity::One || self.form().may_share();
        let mut query = Query::node(ahead.clone());
        if !wants_data {
            query = query.names_only();
        }
        // One event is enough for this wait.
        query.once = true;
        mistake!(DataWakes: query.once = false);
        let (view, mut watch) = self.watch(query).await?;
        let Some(node) = view.node() else {
            mistake!(WaitsForTheAbsent: {
                self.unless_lost(crate::mutant::line::next_event(self.node.session(), ahead)).await?;
            });
            mistake!(ContainerIsTicket: return Ok(Waited::Nothing));
            self.vacant.push(ahead.clone());
            return Ok(Waited::Change(Some(watch)));
        };
        if !self.is_ahead(node) {
            // According to the listing it is earlier, so the next look has the same result.
            return Ok(Waited::Nothing);
        }
        if self.form().may_share() && shares(node) {
            self.sharing.push(ahead.clone());
            return Ok(Waited::Change(Some(watch)));
        }
        if self.form().capacity != Capacity::One && !self.will_tell(node).await? {
            drop(watch);
            return self.until_anything(line_watch).await;
        }
        Ok(match self.unless_lost(watch.next()).await? {
            Some(Event::Ended(_)) | None => Waited::Nothing,
            Some(_) => Waited::Change(Some(watch)),
        })
    }

    /// Whether a ticket was created before the own one. If the answer to a create was lost and another client removed
    /// the node, the create is repeated under the same name: then the ticket is later in the line, and waits itself.
    fn is_ahead(&self, node: &Node) -> bool {
        node.stat.is_none_or(|stat| self.node.created().is_none_or(|own| stat.created < own))
    }

    pub(super) async fn watch(&mut self, query: Query) -> Result<(View, Watch), WaitError> {
        let session = self.node.session().clone();
        let query = self.line.fresh(query);
        self.insist(|| session.watch(query.clone())).await
    }

    /// Waits for `wait`, for as long as the ticket exists.
    pub(super) async fn unless_lost<T>(
        &self,
        wait: impl Future<Output = T>,
    ) -> Result<T, WaitError> {
        match select(pin!(wait), pin!(self.node.lost())).await {
            Either::Left((waited, _)) => Ok(waited),
            Either::Right(_) => Err(WaitError::Gone),
        }
    }

    /// Lets some time pass in which the session may become certain again, or be lost.
    pub(super) async fn rest(&self) {
        let session = self.node.session();
        let pause = session.info().ttl / 20;
        let _either = select(pin!(sleep(pause)), pin!(session.lost())).await;
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("path", self.node.path()).finish_non_exhaustive()
    }
}
