//! [`Ticket`]: a place in a line, and how it waits there.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use synod_core::clock::{self, Instant, sleep, timeout};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::mutant::{self, Mutant};
use synod_core::path::Path;
use synod_core::store::{Change, Event, Kind, Node, Query, View, Watch};
use tracing::Instrument;

use crate::line::contender::{Contender, contenders};
use crate::line::hold::Hold;
use crate::line::meter;
use crate::line::order::{self, Capacity, Claim, POSTED, Queue, Turn, shares, turn};
use crate::line::ticket_node::TicketNode;
use crate::line::{Form, Line, SIGHT};

/// A place in a line. Dropping it gives it up.
pub(crate) struct Ticket {
    line: Line,
    node: TicketNode,
    /// What was seen as it was drawn, and not thought about yet.
    seen: Option<View>,
    since: Instant,
    /// How often the store was asked for it.
    asked: u32,
    /// Tickets that share though their names do not say so.
    sharing: Vec<Path>,
    /// Places ahead where no node is, though a listing names them: containers, and tickets that went meanwhile. They
    /// were empty after this ticket was drawn, so a node that is made there later stands behind it.
    vacant: Vec<Path>,
    /// Whether it was looked for containers since anything changed.
    swept: bool,
    /// Whether what was read before, or lags, does not count.
    strict: bool,
    /// What was seen last: whether a ticket is behind, and how many permits there are.
    last: Last,
}

#[derive(Clone, Copy, Debug, Default)]
struct Last {
    followed: bool,
    permits: Option<u32>,
    /// Whether any name may be that of a container, and is not of the kind that this library gives to tickets.
    suspects: bool,
    /// Whether any name may be that of a container.
    unsure: bool,
}

/// Why there is no waiting on.
enum WaitError {
    /// The ticket is gone, or its session is.
    Gone,
    Failed(Error),
}

/// What a wait came to.
enum Waited {
    /// Something changed, or may have. With what it was waited with.
    Change(Option<Watch>),
    /// It ended, and nothing says that anything changed.
    Nothing,
}

impl Line {
    /// A ticket that was called, however long that takes.
    pub(crate) async fn enter(&self) -> Result<Ticket> {
        let mut ticket = self.enqueue().await?;
        ticket.called().await?;
        Ok(ticket)
    }

    /// A place at the end of the line.
    pub(crate) async fn enqueue(&self) -> Result<Ticket> {
        let (node, seen) = self.draw().await?;
        Ok(Ticket::new(self.clone(), node, seen))
    }

    /// A ticket that was called at once, if one is. Looks before it draws, so that a line that is taken
    /// sees nothing of it.
    pub(crate) async fn try_enter(&self) -> Result<Option<Ticket>> {
        let sharing = if mutant::is(Mutant::TriesByDrawing) {
            Vec::new()
        } else {
            let Some(sharing) = self.sharing_if_free().await? else { return Ok(None) };
            sharing
        };
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

    /// Knows that these share.
    fn sharing(self, sharing: Vec<Path>) -> Self {
        Self { sharing, ..self }
    }

    fn form(&self) -> &Form {
        self.line.form()
    }

    /// The contenders ahead of it now, in order; `None` if it is not in the line any more.
    pub(crate) async fn ahead(&self) -> Result<Option<Vec<Contender>>> {
        let line = &self.line;
        let mut all = contenders(line.client(), line.dir(), self.form().capacity).await?;
        let place = all.iter().position(|one| one.path == *self.node.path());
        Ok(place.map(|place| {
            all.truncate(place);
            all
        }))
    }

    /// Waits until it is called. If it goes with its session, or somebody removes it, another one is
    /// drawn, at the end of the line.
    pub(crate) async fn called(&mut self) -> Result<()> {
        let span = tracing::debug_span!(
            "waiting",
            recipe = self.form().recipe,
            path = %self.line.dir(),
            waited = tracing::field::Empty,
            calls = tracing::field::Empty,
        );
        let told = span.clone();
        // On the heap: whoever waits in many places at once should not carry all of this in each.
        Box::pin(async {
            loop {
                match self.called_in_session().await {
                    Ok(()) => break,
                    Err(WaitError::Gone) if mutant::is(Mutant::WaitsInOneSession) => {
                        return Err(Error::new(ErrorKind::SessionLost, "waiting in line"));
                    }
                    Err(WaitError::Gone) => self.draw_again().await?,
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

    /// Whether it is called already, as it is just drawn.
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

    /// Whether it is called at this moment, whatever was seen before.
    pub(crate) async fn is_called_now(&mut self) -> Result<bool> {
        if mutant::is(Mutant::InterruptByOldLook) {
            return self.is_called().await;
        }
        (self.seen, self.strict) = (None, true);
        let called = self.is_called().await;
        self.strict = false;
        called
    }

    /// The ticket that it would have to wait for; `None` if it is called.
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

    /// Takes note that it was called without waiting. A waiter behind it may rely on being notified all the same.
    fn note_called(&self) {
        meter::called(self.form().recipe, clock::elapsed(self.since), self.asked);
        if !mutant::is(Mutant::TryUntold) {
            self.tell_those_behind();
        }
    }

    /// Gives the place up, and waits until that is done, or goes on in the background.
    pub(crate) async fn leave(self) {
        let path = self.node.path().clone();
        if let Err(error) = self.node.remove().await {
            tracing::debug!(ticket = %path, %error, "a place is given up in the background");
        }
    }

    /// What it has become once it was called.
    pub(crate) fn hold<K>(self, kind: K) -> Hold<K> {
        let recipe = self.form().recipe;
        Hold::new(self.node, recipe, kind)
    }

    async fn draw_again(&mut self) -> Result<()> {
        tracing::debug!(ticket = %self.node.path(), "the ticket is gone; drawing another");
        let (node, seen) = self.line.draw().await?;
        let before = std::mem::replace(&mut self.node, node);
        if mutant::is(Mutant::OldTicketTrusted) {
            // What is trusted is not removed.
            std::mem::forget(before);
        }
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
            // What it was waited with goes behind the look, which is in a hurry.
            drop(spent.take());
            let waited = match turn {
                Turn::Now if self.is_certain() => {
                    self.tell_those_behind();
                    return Ok(());
                }
                Turn::Now => {
                    self.rest().await;
                    continue;
                }
                Turn::Gone => return Err(WaitError::Gone),
                Turn::After(ahead) => {
                    let waited = self.until_gone(&ahead, &mut line).await?;
                    if mutant::is(Mutant::PredecessorGoneIsTurn) {
                        return Ok(());
                    }
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

    /// [`Ticket::turn`], for what does not wait. A name that may be that of a container is looked at first.
    async fn turn_past_containers(&mut self) -> Result<Turn, WaitError> {
        let turn = self.turn().await?;
        let suspects = matches!(turn, Turn::After(_) | Turn::Next) && self.last.suspects;
        if !suspects || mutant::is(Mutant::ContainerIsTicket) {
            return Ok(turn);
        }
        self.sweep().await?;
        self.turn().await
    }

    /// Looks which names in the line are those of containers.
    async fn sweep(&mut self) -> Result<(), WaitError> {
        let (session, all) = (self.node.session().clone(), order::with_stats(self.line.dir()));
        let query = self.line.fresh(all);
        let view = self.insist(|| session.read(query.clone())).await?;
        self.vacant.extend(order::containers(&view));
        self.swept = true;
        Ok(())
    }

    /// Nothing counts but what is certain now.
    fn is_certain(&self) -> bool {
        self.node.session().is_certain() || mutant::is(Mutant::GrantsUncertain)
    }

    /// Whose turn it is now.
    async fn turn(&mut self) -> Result<Turn, WaitError> {
        let mut sight = SIGHT;
        let mut seen = self.seen.take();
        loop {
            let view = match seen.take() {
                Some(view) => view,
                None => match self.read(sight).await {
                    Err(WaitError::Failed(_)) if mutant::is(Mutant::LostReadIsEmpty) => {
                        return Ok(Turn::Now);
                    }
                    view => view?,
                },
            };
            let (turn, alone) = self.think(&view);
            let cut = !self.line.sees_all() && sight < usize::MAX && view.nodes.len() >= sight;
            if turn != Turn::Now || !cut || !alone {
                return Ok(turn);
            }
            // All that was seen ahead is no ticket.
            sight = usize::MAX;
        }
    }

    /// Whose turn it is, by what was seen, and whether no other ticket was.
    fn think(&mut self, view: &View) -> (Turn, bool) {
        let mut queue = Queue::of(view).sharing(&self.sharing).without(&self.vacant);
        if self.node.counts_by_version() {
            // Made again by a late sending, it is another.
            queue = queue.placed(self.node.path(), self.node.sequence());
        }
        let (me, mut capacity) = (self.node.path(), self.form().capacity);
        if let (Some(first), true) = (self.last.permits, mutant::is(Mutant::LimitRemembered)) {
            capacity = Capacity::Permits(first);
        }
        let followed = queue.goes_on_behind(me);
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

    /// Asks for as long as the session lives.
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
                ErrorKind::Unreachable if !mutant::is(Mutant::LostReadIsEmpty) => {
                    sleep(delays.next().unwrap_or_default()).await;
                }
                _ => return Err(WaitError::Failed(error)),
            }
        }
    }

    /// Waits until it may be worth to look again, as the one ahead went or was called; and with what it waited.
    async fn until_gone(
        &mut self,
        ahead: &Path,
        line: &mut Option<Watch>,
    ) -> Result<Waited, WaitError> {
        if mutant::is(Mutant::WatchesInTwoCalls) {
            let session = self.node.session().clone();
            let there = Query::node(ahead.clone()).names_only();
            if self.insist(|| session.read(there.clone())).await?.node().is_none() {
                return Ok(Waited::Change(None));
            }
        }
        // What one writes to his ticket matters where others may come in beside him.
        let wants_data = self.form().capacity != Capacity::One || self.may_share();
        let blind = mutant::is(Mutant::WaitsForTheAbsent) || mutant::is(Mutant::WatchesInTwoCalls);
        let mut query = Query::node(ahead.clone());
        if !wants_data {
            query = query.names_only();
        }
        // Nothing but what is waited for is told of it.
        query.once = !blind && !mutant::is(Mutant::DataWakes);
        let (view, mut watch) = self.observe(query).await?;
        let Some(node) = view.node() else {
            if blind {
                self.unless_lost(watch.next()).await?;
            } else if mutant::is(Mutant::ContainerIsTicket) {
                return Ok(Waited::Nothing);
            } else {
                self.vacant.push(ahead.clone());
            }
            return Ok(Waited::Change(Some(watch)));
        };
        if !self.is_ahead(node) {
            // By its place in the listing it is, so the next look says the same.
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

    /// Whether a ticket came before the own one. A draw whose answer was lost is repeated under its name if
    /// somebody removed what it had made: then it stands behind, and waits itself.
    fn is_ahead(&self, node: &Node) -> bool {
        node.stat.is_none_or(|stat| self.node.created().is_none_or(|own| stat.created < own))
    }

    /// Whether it matters if the one ahead has given up to be alone.
    fn may_share(&self) -> bool {
        let form = self.form();
        form.capacity == Capacity::One && Claim::of_mark(&form.mark) == Claim::Shared
    }

    /// Whether one who stands ahead waits himself, and will say so when he is called. Who said so already
    /// will not again; and who came before the number of permits was changed may have been called before
    /// that, with nobody behind to tell.
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
        Ok(changed_before || mutant::is(Mutant::LimitChangeIgnored))
    }

    /// Waits until something in the line is another than when it was looked at last.
    ///
    /// If nothing changes for long, it looks for containers: what counts for a ticket may never go.
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
        let sweeps = self.last.unsure && !self.swept && !mutant::is(Mutant::ContainerIsTicket);
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
            // What comes while the line is looked at again is reported, too.
            *kept = Some(line);
        }
        Ok(waited)
    }

    async fn observe(&mut self, query: Query) -> Result<(View, Watch), WaitError> {
        let session = self.node.session().clone();
        let query = self.line.fresh(query);
        self.insist(|| session.observe(query.clone())).await
    }

    /// Waits for something, for as long as the ticket is there.
    async fn unless_lost<T>(&self, wait: impl Future<Output = T>) -> Result<T, WaitError> {
        match select(pin!(wait), pin!(self.node.lost())).await {
            Either::Left((waited, _)) => Ok(waited),
            Either::Right(_) => Err(WaitError::Gone),
        }
    }

    /// Tells those behind who wait for it to be called, if there are any and it matters to them. In the
    /// background: whoever was called does not wait for it.
    fn tell_those_behind(&self) {
        let told = self.form().capacity != Capacity::One && self.last.followed;
        // One that counts only as it was last seen said so when it was drawn, for good.
        if told && !self.node.counts_by_version() && !mutant::is(Mutant::CallUntold) {
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

/// Whether somebody came, or wrote to his ticket: nobody has less ahead of him for that. A ticket that is made
/// again went before, of which the watch tells, too.
fn is_arrival(change: &Change) -> bool {
    let is_ticket = !change.path.name().starts_with(POSTED);
    is_ticket && matches!(change.kind, Kind::Created | Kind::Updated)
}
