//! [`Ticket`]: a ticket in a line, and how it waits until it is granted.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use synod_core::clock::{self, Instant, sleep, timeout};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Change, Event, Kind, Node, Query, View, Watch};
use tracing::Instrument;

use crate::line::contender::{Contender, contenders};
use crate::line::hold::Hold;
use crate::line::meter;
use crate::line::order::{self, Capacity, Claim, POSTED, Queue, Turn, shares, turn};
use crate::line::ticket_node::TicketNode;
use crate::line::{Form, Line, SIGHT};
use crate::mutant::mistake;

/// A ticket in a line. Dropping it removes it.
pub(crate) struct Ticket {
    line: Line,
    node: TicketNode,
    /// The view that its create returned, until it is evaluated.
    seen: Option<View>,
    since: Instant,
    /// How many calls to the store it took.
    asked: u32,
    /// Tickets that are shared although their names do not show it.
    sharing: Vec<Path>,
    /// Paths that a listing names although no node is there: containers, and earlier tickets that are gone. They were
    /// vacant after this ticket was created, so a node that is created there later is later in the line.
    vacant: Vec<Path>,
    /// Whether the line was searched for containers since the last change.
    swept: bool,
    /// Whether only the latest state counts: no earlier view, and no answer that lags.
    strict: bool,
    /// What was seen last: whether there is a later ticket, and how many permits there are.
    last: Last,
}

#[derive(Clone, Copy, Debug, Default)]
struct Last {
    followed: bool,
    permits: Option<u32>,
    /// Whether any name may be that of a container, and is not one that this library gives to tickets.
    suspects: bool,
    /// Whether any name may be that of a container.
    unsure: bool,
}

/// Why a wait ended without a grant.
enum WaitError {
    /// The ticket or its session is gone.
    Gone,
    Failed(Error),
}

/// The result of a wait for a change.
enum Waited {
    /// Something changed, or may have changed. With the watch that was used.
    Change(Option<Watch>),
    /// The wait ended, and no change is known.
    Nothing,
}

impl Line {
    /// A ticket that is granted, however long the wait takes.
    pub(crate) async fn enter(&self) -> Result<Ticket> {
        let mut ticket = self.enqueue().await?;
        ticket.called().await?;
        Ok(ticket)
    }

    /// A new ticket at the end of the line.
    pub(crate) async fn enqueue(&self) -> Result<Ticket> {
        mistake!(TicketPerSession: if let Some(node) = self.drawn_by_session().await? {
            return Ok(Ticket::new(self.clone(), node, None));
        });
        let (node, seen) = self.draw().await?;
        Ok(Ticket::new(self.clone(), node, seen))
    }

    /// A ticket that is granted at once, if one is. Looks before it creates a ticket, so that a taken line gets no
    /// ticket.
    pub(crate) async fn try_enter(&self) -> Result<Option<Ticket>> {
        let sharing = self.sharing_if_free().await?;
        mistake!(TriesByDrawing: let sharing = sharing.or(Some(Vec::new())));
        let Some(sharing) = sharing else { return Ok(None) };
        let mut ticket = self.enqueue().await?.sharing(sharing);
        if ticket.is_called().await? {
            return Ok(Some(ticket));
        }
        ticket.leave().await;
        Ok(None)
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
    fn sharing(self, sharing: Vec<Path>) -> Self {
        Self { sharing, ..self }
    }

    fn form(&self) -> &Form {
        self.line.form()
    }

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

    /// Waits until it is granted. If its session is lost, or another client removes it, another ticket is
    /// created at the end of the line.
    pub(crate) async fn called(&mut self) -> Result<()> {
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
                match self.called_in_session().await {
                    Ok(()) => break,
                    Err(WaitError::Gone) => {
                        mistake!(WaitsInOneSession: return Err(self.node.was_lost()));
                        self.draw_again().await?;
                    }
                    Err(WaitError::Failed(error)) => return Err(error),
                }
            }
            let (waited, asked) = (clock::elapsed(self.since), self.asked);
            meter::called(self.form().recipe, waited, asked);
            told.record("waited", tracing::field::debug(waited)).record("calls", asked);
            tracing::debug!(ticket = %self.node.path(), "called");
            Ok(())
        })
        .instrument(span)
        .await
    }

    /// Whether it is granted already, directly after its create.
    pub(crate) async fn is_called(&mut self) -> Result<bool> {
        let called = match self.turn_past_containers().await {
            Ok(turn) => turn == Turn::Now && self.is_certain(),
            Err(WaitError::Gone) => false,
            Err(WaitError::Failed(error)) => return Err(error),
        };
        if called {
            self.note_called();
        }
        Ok(called)
    }

    /// Whether it is granted at this moment, whatever was seen before.
    pub(crate) async fn is_called_now(&mut self) -> Result<bool> {
        mistake!(InterruptByOldLook: return self.is_called().await);
        (self.seen, self.strict) = (None, true);
        let called = self.is_called().await;
        self.strict = false;
        called
    }

    /// The ticket that it would have to wait for; `None` if it is granted.
    pub(crate) async fn blocked_by(&mut self) -> Result<Option<Path>> {
        loop {
            match self.turn_past_containers().await {
                Ok(Turn::Now) if self.is_certain() => {
                    self.note_called();
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
    fn note_called(&self) {
        meter::called(self.form().recipe, clock::elapsed(self.since), self.asked);
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

    /// The hold that it becomes once it is granted.
    pub(crate) fn hold<K>(self, kind: K) -> Hold<K> {
        let recipe = self.form().recipe;
        Hold::new(self.node, recipe, kind)
    }

    async fn draw_again(&mut self) -> Result<()> {
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

    async fn called_in_session(&mut self) -> Result<(), WaitError> {
        let (mut line, mut spent, mut delays) = (None, None, None);
        loop {
            let turn = self.turn().await?;
            // The used watch is dropped only after the look, which is urgent.
            drop(spent.take());
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
                    let waited = self.until_gone(&ahead, &mut line).await?;
                    mistake!(PredecessorGoneIsTurn: return Ok(()));
                    waited
                }
                Turn::Next => self.until_anything(&mut line).await?,
            };
            match waited {
                Waited::Change(watch) => (spent, delays) = (watch, None),
                Waited::Nothing => {
                    let delays = delays.get_or_insert_with(|| self.node.delays());
                    sleep(delays.next().unwrap_or_default()).await;
                }
            }
        }
    }

    /// [`Ticket::turn`], for a call that does not wait. Names that may be those of containers are checked first.
    async fn turn_past_containers(&mut self) -> Result<Turn, WaitError> {
        let turn = self.turn().await?;
        let suspects = matches!(turn, Turn::After(_) | Turn::Next) && self.last.suspects;
        if !suspects {
            return Ok(turn);
        }
        self.sweep().await?;
        self.turn().await
    }

    /// Finds out which names in the line are those of containers.
    async fn sweep(&mut self) -> Result<(), WaitError> {
        let (session, all) = (self.node.session().clone(), order::with_stats(self.line.dir()));
        let query = self.line.fresh(all);
        let view = self.insist(|| session.read(query.clone())).await?;
        self.vacant.extend(order::containers(&view));
        self.swept = true;
        Ok(())
    }

    /// Whether the session is certain now. A grant counts only then.
    fn is_certain(&self) -> bool {
        mistake!(GrantsUncertain: return true);
        self.node.session().is_certain()
    }

    /// What the ticket does next.
    async fn turn(&mut self) -> Result<Turn, WaitError> {
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
    fn think(&mut self, view: &View) -> (Turn, bool) {
        let mut queue = Queue::of(view).sharing(&self.sharing).without(&self.vacant);
        if self.node.counts_by_version() {
            // If a late request created the node again, that is another ticket.
            queue = queue.placed(self.node.path(), self.node.sequence());
        }
        let (me, capacity) = (self.node.path(), self.form().capacity);
        mistake!(LimitRemembered: let capacity = {
            self.last.permits.map_or(capacity, Capacity::Permits)
        });
        let followed = queue.has_later_ticket(me);
        let (suspects, unsure) = (queue.has_suspects(), queue.is_unsure());
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
    async fn insist<T, F>(&mut self, mut ask: impl FnMut() -> F) -> Result<T, WaitError>
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
        line: &mut Option<Watch>,
    ) -> Result<Waited, WaitError> {
        mistake!(WatchesInTwoCalls: {
            self.unless_lost(crate::mutant::line::next_event_if_there(self.node.session(), ahead)).await?;
        });
        // The data of the predecessor matters if this ticket can be granted while the predecessor exists.
        let wants_data = self.form().capacity != Capacity::One || self.may_share();
        let mut query = Query::node(ahead.clone());
        if !wants_data {
            query = query.names_only();
        }
        // One event is enough for this wait.
        query.once = true;
        mistake!(DataWakes: query.once = false);
        let (view, mut watch) = self.observe(query).await?;
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
        if self.may_share() && shares(node) {
            self.sharing.push(ahead.clone());
            return Ok(Waited::Change(Some(watch)));
        }
        if self.form().capacity != Capacity::One && !self.will_tell(node).await? {
            drop(watch);
            return self.until_anything(line).await;
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

    /// Whether it matters that the predecessor may downgrade.
    fn may_share(&self) -> bool {
        let form = self.form();
        form.capacity == Capacity::One && Claim::of_mark(&form.mark) == Claim::Shared
    }

    /// Whether the predecessor waits itself, and will write to its ticket when it is granted. One that has written
    /// already does not write again. One that was created before the number of permits was changed may have been
    /// granted before that change, when there was no later waiter to notify.
    async fn will_tell(&mut self, ahead: &Node) -> Result<bool, WaitError> {
        let Some(stat) = ahead.stat else { return Ok(false) };
        if stat.modified != stat.created {
            return Ok(false);
        }
        let (Capacity::Posted, Some(permits)) = (self.form().capacity, self.last.permits) else {
            return Ok(true);
        };
        let Ok(posted) = self.line.dir().join(&format!("{POSTED}{permits}")) else {
            return Ok(false);
        };
        let session = self.node.session().clone();
        let query = Query::node(posted).names_only();
        let view = self.insist(|| session.read(query.clone())).await?;
        let changed = view.node().and_then(|node| node.stat).map(|stat| stat.created);
        let changed_before = changed.is_some_and(|changed| changed < stat.created);
        mistake!(LimitChangeIgnored: let changed_before = true);
        Ok(changed_before)
    }

    /// Waits until something in the line differs from the last look.
    ///
    /// If nothing changes for long, it searches for containers: a container that counts as a ticket may never go.
    async fn until_anything(&mut self, kept: &mut Option<Watch>) -> Result<Waited, WaitError> {
        let mut line = if let Some(line) = kept.take() {
            line
        } else {
            let all = Query::children(self.line.dir().clone()).names_only();
            let (view, line) = self.observe(all).await?;
            if !matches!(self.think(&view).0, Turn::Next | Turn::After(_)) {
                self.seen = Some(view);
                return Ok(Waited::Change(None));
            }
            line
        };
        let sweeps = self.last.unsure && !self.swept;
        let limit = match self.node.session().info().ttl / 3 {
            _ if sweeps && self.last.suspects => Duration::ZERO,
            long if sweeps => long,
            _ => Duration::MAX,
        };
        let changed = async {
            loop {
                match line.next().await {
                    Some(Event::Changed(change)) if is_arrival(&change) => {}
                    Some(Event::Ended(_)) | None => return Waited::Nothing,
                    _ => return Waited::Change(None),
                }
            }
        };
        let Ok(waited) = self.unless_lost(timeout(limit, changed)).await? else {
            *kept = Some(line);
            self.sweep().await?;
            return Ok(Waited::Change(None));
        };
        if matches!(waited, Waited::Change(_)) {
            self.swept = false;
            // The watch also reports what changes during the next look.
            *kept = Some(line);
        }
        Ok(waited)
    }

    async fn observe(&mut self, query: Query) -> Result<(View, Watch), WaitError> {
        let session = self.node.session().clone();
        let query = self.line.fresh(query);
        self.insist(|| session.observe(query.clone())).await
    }

    /// Waits for `wait`, for as long as the ticket exists.
    async fn unless_lost<T>(&self, wait: impl Future<Output = T>) -> Result<T, WaitError> {
        match select(pin!(wait), pin!(self.node.lost())).await {
            Either::Left((waited, _)) => Ok(waited),
            Either::Right(_) => Err(WaitError::Gone),
        }
    }

    /// Notifies the later waiters of the grant, if there are any and it matters to them. This happens in the
    /// background: the holder does not wait for it.
    fn notify_later_waiters(&self) {
        let told = self.form().capacity != Capacity::One && self.last.followed;
        // A ticket that is checked by its version was written to when it was created, once for all.
        mistake!(CallUntold: let told = false);
        if told && !self.node.counts_by_version() {
            let (path, label) = (self.node.path().clone(), self.line.label().clone());
            self.node.session().rewrite(path, label);
        }
    }

    /// Lets some time pass in which the session may become certain again, or be lost.
    async fn rest(&self) {
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

/// Whether a ticket was created or written to: neither brings any waiter closer to its grant. If a ticket is created
/// again, it was removed before, which the watch reports, too.
fn is_arrival(change: &Change) -> bool {
    let is_ticket = !change.path.name().starts_with(POSTED);
    is_ticket && matches!(change.kind, Kind::Created | Kind::Updated)
}
