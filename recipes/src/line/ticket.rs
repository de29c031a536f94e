//! [`Ticket`]: a ticket in a wait queue, and its wait until it is granted.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use synod_core::clock::{self, Instant, sleep, timeout};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Change, Event, Kind, Node, Query, View, Watch};
use tracing::Instrument;

use crate::line::hold::Hold;
use crate::line::order::{POSTED, Tickets, Turn, containers, shares, turn, with_stats};
use crate::line::ticket_name::Capacity;
use crate::line::ticket_node::TicketNode;
use crate::line::{Form, Line, WINDOW, meter};
use crate::mutant::mistake;

/// A ticket in a queue. Dropping it removes it.
pub(crate) struct Ticket {
    pub(super) line: Line,
    pub(super) node: TicketNode,
    /// The view that its create returned, until it is evaluated.
    pub(super) view: Option<View>,
    pub(super) since: Instant,
    /// The number of calls to the store.
    pub(super) calls: u32,
    /// Tickets that are shared although their names do not show it.
    sharing: Vec<Path>,
    /// Paths that a listing names although they have no node: containers, and removed tickets. They
    /// had no node after this ticket was created, so a node that is created at such a path is later
    /// in the queue.
    pub(super) vacant: Vec<Path>,
    /// True if the queue was searched for containers after its last change.
    pub(super) swept: bool,
    /// True if only the latest state may be used: no earlier view and no lagging response.
    pub(super) strict: bool,
    /// The facts that are kept from the last view.
    pub(super) last: Last,
}

/// Facts of a view of the queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Last {
    /// True if there is a later ticket.
    pub(super) followed: bool,
    /// The number of permits that exist.
    pub(super) permits: Option<u32>,
    /// True if any name may be a container, and this library has not given it to a ticket recently.
    pub(super) suspects: bool,
    /// True if any name may be a container.
    pub(super) unsure: bool,
}

/// The end of a wait without a grant.
pub(super) enum WaitError {
    /// The ticket or its session has ended.
    Gone,
    Failed(Error),
}

/// The result of a wait for a change.
pub(super) enum Waited {
    /// Something may have changed. Contains the watch that was used.
    Change(Option<Watch>),
    /// The wait ended without a known change.
    Nothing,
}

impl Ticket {
    pub(super) fn new(line: Line, node: TicketNode, view: Option<View>) -> Self {
        mistake!(LookIgnored: let view = None);
        let (since, last) = (clock::now(), Last::default());
        let (sharing, vacant) = (Vec::new(), Vec::new());
        Self {
            line,
            node,
            view,
            since,
            calls: 1,
            sharing,
            vacant,
            swept: false,
            strict: false,
            last,
        }
    }

    /// The same ticket, with these earlier tickets known to be shared.
    pub(super) fn sharing(self, sharing: Vec<Path>) -> Self {
        Self { sharing, ..self }
    }

    pub(super) fn form(&self) -> &Form {
        self.line.form()
    }

    /// Waits until it is granted. If its session is lost, or another client removes it, another
    /// ticket is created at the end of the queue.
    pub(crate) async fn granted(&mut self) -> Result<()> {
        let span = tracing::debug_span!(
            "waiting",
            recipe = self.form().recipe,
            path = %self.line.dir(),
            waited = tracing::field::Empty,
            calls = tracing::field::Empty,
        );
        let (wait, _waiter) = (span.clone(), meter::Waiter::new(self.form().recipe));
        // Boxed, so that the future of a caller with many waits stays small.
        Box::pin(async {
            loop {
                match self.granted_in_session().await {
                    Ok(()) => break,
                    Err(WaitError::Gone) => {
                        mistake!(WaitsInOneSession: return Err(self.node.was_lost()));
                        self.create_again().await?;
                    }
                    Err(WaitError::Failed(error)) => return Err(error),
                }
            }
            let (waited, calls) = (clock::elapsed(self.since), self.calls);
            meter::granted(self.form().recipe, waited, calls);
            wait.record("waited", tracing::field::debug(waited)).record("calls", calls);
            tracing::debug!(ticket = %self.node.path(), "granted");
            Ok(())
        })
        .instrument(span)
        .await
    }

    /// Converts the granted ticket to a hold.
    pub(crate) fn hold<K>(self, kind: K) -> Hold<K> {
        let recipe = self.form().recipe;
        Hold::new(self.node, recipe, kind)
    }

    pub(super) async fn create_again(&mut self) -> Result<()> {
        tracing::debug!(ticket = %self.node.path(), "the ticket is gone; creating another");
        let (node, view) = self.line.create_ticket().await?;
        // The mistake relies on the former ticket, so the ticket must not be removed.
        mistake!(OldTicketTrusted: crate::mutant::line::keep(&self.node));
        self.node = node;
        self.view = view;
        self.calls += 1;
        self.vacant.clear();
        self.swept = false;
        Ok(())
    }

    async fn granted_in_session(&mut self) -> Result<(), WaitError> {
        let (mut line_watch, mut used_watch, mut delays) = (None, None, self.node.delays());
        loop {
            let turn = self.turn().await?;
            // The used watch is dropped only after the read, which is urgent.
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
                Waited::Change(watch) => {
                    used_watch = watch;
                    delays.reset();
                }
                Waited::Nothing => {
                    delays.wait().await;
                }
            }
        }
    }

    /// Returns `true` if the session is certain now. A grant counts only while it is certain.
    pub(super) fn is_certain(&self) -> bool {
        mistake!(GrantsUncertain: return true);
        self.node.session().is_certain()
    }

    /// The next step of the ticket.
    pub(super) async fn turn(&mut self) -> Result<Turn, WaitError> {
        let mut window = WINDOW;
        let mut first = self.view.take();
        loop {
            let view = if let Some(view) = first.take() {
                view
            } else {
                let view = self.read(window).await;
                mistake!(LostReadIsEmpty: if let Err(WaitError::Failed(_)) = view {
                    return Ok(Turn::Now);
                });
                view?
            };
            if self.line.same_limit {
                Box::pin(self.check_limits(&view)).await?;
            }
            let (turn, is_alone) = self.evaluate(&view);
            let is_cut =
                !self.line.reads_all() && window < usize::MAX && view.nodes.len() >= window;
            if turn != Turn::Now || !is_cut || !is_alone {
                return Ok(turn);
            }
            // No other node in the window is a ticket: read the whole queue.
            window = usize::MAX;
        }
    }

    /// The next step of the ticket according to the view, and `true` if the view has no other
    /// ticket.
    pub(super) fn evaluate(&mut self, view: &View) -> (Turn, bool) {
        let mut queue = Tickets::of(view).sharing(&self.sharing).without(&self.vacant);
        if self.node.is_versioned() {
            // If a delayed request created the node again, it is another ticket.
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

    async fn read(&mut self, window: usize) -> Result<View, WaitError> {
        let mut query = self.line.later_query(self.node.sequence(), window);
        if !self.strict {
            query = self.line.fresh(query);
        }
        let session = self.node.session().clone();
        self.insist(|| session.read(query.clone())).await
    }

    /// Repeats a request as long as the session lives.
    pub(super) async fn insist<T, F>(
        &mut self,
        mut request: impl FnMut() -> F,
    ) -> Result<T, WaitError>
    where
        F: Future<Output = Result<T>>,
    {
        let mut delays = self.node.delays();
        loop {
            self.calls += 1;
            let error = match request().await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            match error.kind() {
                ErrorKind::SessionLost => return Err(WaitError::Gone),
                ErrorKind::Unreachable => {
                    mistake!(LostReadIsEmpty: return Err(WaitError::Failed(error)));
                    delays.wait().await;
                }
                _ => return Err(WaitError::Failed(error)),
            }
        }
    }

    /// Waits until another read may have a different result, because the predecessor is gone or was
    /// granted.
    async fn until_gone(
        &mut self,
        ahead: &Path,
        line_watch: &mut Option<Watch>,
    ) -> Result<Waited, WaitError> {
        mistake!(WatchesInTwoCalls: {
            self.unless_lost(crate::mutant::line::next_event_if_there(self.node.session(), ahead)).await?;
        });
        // The data of the predecessor is needed if this ticket can be granted while the predecessor
        // exists.
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
            // The listing shows it as an earlier ticket, so the next read would have the same
            // result.
            return Ok(Waited::Nothing);
        }
        if self.form().may_share() && shares(node) {
            self.sharing.push(ahead.clone());
            return Ok(Waited::Change(Some(watch)));
        }
        if self.form().capacity != Capacity::One && !self.will_notify(node).await? {
            drop(watch);
            return self.until_anything(line_watch).await;
        }
        Ok(match self.unless_lost(watch.next()).await? {
            Some(Event::Ended(_)) | None => Waited::Nothing,
            Some(_) => Waited::Change(Some(watch)),
        })
    }

    /// Returns `true` if the predecessor is waiting and will write to its ticket when it is
    /// granted. A predecessor that has written already does not write again. A predecessor that was
    /// created before the number of permits changed may have been granted before that change, when
    /// there was no later waiter to notify.
    pub(super) async fn will_notify(&mut self, ahead: &Node) -> Result<bool, WaitError> {
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

    /// Waits until the queue differs from the last view.
    ///
    /// If nothing changes for a third of the TTL, this searches for containers: a container that is
    /// mistaken for a ticket may never be removed.
    pub(super) async fn until_anything(
        &mut self,
        kept: &mut Option<Watch>,
    ) -> Result<Waited, WaitError> {
        let mut line_watch = if let Some(watch) = kept.take() {
            watch
        } else {
            let all = Query::children(self.line.dir().clone()).names_only();
            let (view, watch) = self.watch(all).await?;
            if !matches!(self.evaluate(&view).0, Turn::Next | Turn::After(_)) {
                self.view = Some(view);
                return Ok(Waited::Change(None));
            }
            watch
        };
        let sweeps = self.last.unsure && !self.swept;
        let limit = match self.node.session().info().ttl / 3 {
            _ if sweeps && self.last.suspects => Duration::ZERO,
            long if sweeps => long,
            _ => Duration::MAX,
        };
        let changed = async {
            loop {
                match line_watch.next().await {
                    Some(Event::Changed(change)) if is_arrival(&change) => {}
                    Some(Event::Ended(_)) | None => return Waited::Nothing,
                    _ => return Waited::Change(None),
                }
            }
        };
        let Ok(waited) = self.unless_lost(timeout(limit, changed)).await? else {
            *kept = Some(line_watch);
            self.sweep().await?;
            return Ok(Waited::Change(None));
        };
        if matches!(waited, Waited::Change(_)) {
            self.swept = false;
            // The watch also reports a change during the next read.
            *kept = Some(line_watch);
        }
        Ok(waited)
    }

    /// Notifies the later waiters of the grant, if there are any that need it. This happens in the
    /// background: the holder does not wait for it.
    pub(super) fn notify_later_waiters(&self) {
        let notifies = self.form().capacity != Capacity::One && self.last.followed;
        // A ticket that is identified by its version was written to after its create, and is not
        // written to again.
        mistake!(CallUntold: let notifies = false);
        if notifies && !self.node.is_versioned() {
            let (path, label) = (self.node.path().clone(), self.line.label().clone());
            self.node.session().rewrite(path, label);
        }
    }

    /// Returns `true` if a ticket was created before the own one. If the response to a create was
    /// lost and another client removed the node, the create is repeated under the same name: then
    /// the ticket is later in the queue, and has to wait.
    fn is_ahead(&self, node: &Node) -> bool {
        node.stat.is_none_or(|stat| self.node.created().is_none_or(|own| stat.created < own))
    }

    pub(super) async fn watch(&mut self, query: Query) -> Result<(View, Watch), WaitError> {
        let session = self.node.session().clone();
        let query = self.line.fresh(query);
        self.insist(|| session.watch(query.clone())).await
    }

    /// Reads which names in the queue are containers.
    pub(super) async fn sweep(&mut self) -> Result<(), WaitError> {
        let (session, all) = (self.node.session().clone(), with_stats(self.line.dir()));
        let query = self.line.fresh(all);
        let view = self.insist(|| session.read(query.clone())).await?;
        self.vacant.extend(containers(&view));
        self.swept = true;
        Ok(())
    }

    /// Waits for `wait`, as long as the ticket exists.
    pub(super) async fn unless_lost<T>(
        &self,
        wait: impl Future<Output = T>,
    ) -> Result<T, WaitError> {
        match select(pin!(wait), pin!(self.node.lost())).await {
            Either::Left((waited, _)) => Ok(waited),
            Either::Right(_) => Err(WaitError::Gone),
        }
    }

    /// Pauses, so that the session may become certain again, or be lost.
    pub(super) async fn rest(&self) {
        let session = self.node.session();
        let pause = session.info().ttl / 20;
        let _either = select(pin!(sleep(pause)), pin!(session.lost())).await;
    }
}

/// Returns `true` if a ticket was created or written to: neither can cause a grant. If a ticket is
/// created again, it was removed before, and the watch reports that, too.
fn is_arrival(change: &Change) -> bool {
    let is_ticket = !change.path.name().starts_with(POSTED);
    is_ticket && matches!(change.kind, Kind::Created | Kind::Updated)
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("path", self.node.path()).finish_non_exhaustive()
    }
}
