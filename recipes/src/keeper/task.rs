//! [`KeeperTask`]: the task that creates the node of a keeper, recreates it after every loss, and removes
//! it at the end. It runs any [`Keeping`] until a [`CloseRequest`].

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::clock::{self, Instant, sleep};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{
    Commit, Expect, Lifetime, Node, Outcome, Query, RejectReason, Revision, SessionId, Stat, Txn,
};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::keeper::doubts::Doubts;
use crate::keeper::failures::{
    DOING, OTHER_CLIENT, OTHER_OWNER, in_doubt, is_about_data, nothing_is_below, refused,
};
use crate::keeper::node::{Cause, Kept, Mine, Occupant, Occupied, OwnNodes, Shown};
use crate::keeper::state::{KeeperShared, Lasts};
use crate::mutant::mistake;
use crate::support::retry::{RetryDelays, call_delays};

/// The number of previous sessions that a keeper records.
const MAX_SESSIONS: usize = 16;

/// The number of times that a keeper waits for the removal of a node by an owner of its session
/// that has abandoned it.
const MAX_WAITS: u32 = 16;

/// Creates and watches the node of a keeper.
pub(super) struct KeeperTask {
    client: Client,
    path: Path,
    occupied: Occupied,
    shared: Arc<KeeperShared>,
    /// The owner, as long as it wants the node.
    owner: Weak<()>,
    kept: Option<Kept>,
    doubts: Doubts,
    /// The sessions in which it has sent a create.
    sessions: Vec<SessionId>,
    /// The last node that it had.
    last: Option<Revision>,
    /// The number of remaining waits for the removal of a node by the owner that has abandoned it.
    waits_left: u32,
}

impl KeeperTask {
    pub(super) fn new(
        client: &Client,
        path: &Path,
        occupied: Occupied,
        shared: Arc<KeeperShared>,
        owner: Weak<()>,
    ) -> Self {
        let (client, path) = (client.clone(), path.clone());
        let (doubts, sessions, waits_left) = (Doubts::default(), Vec::new(), MAX_WAITS);
        let (kept, last) = (None, None);
        Self { client, path, occupied, shared, owner, kept, doubts, sessions, last, waits_left }
    }

    /// Waits for an event of the node or its session, or for other data.
    async fn wait(&mut self, close: &mut CloseRequest) -> Result<()> {
        let Some(kept) = &mut self.kept else { return Ok(()) };
        match close.or(kept.cause(&self.shared)).await {
            None | Some(Cause::Wanted) => {}
            Some(Cause::Lost) => {
                self.lost();
                close.pause(&self.client).await;
            }
            Some(Cause::Changed) => kept.is_read = false,
            Some(Cause::Outage) => {
                kept.is_read = false;
                self.doubts.record_outage();
                close.pause(&self.client).await;
            }
        }
        Ok(())
    }

    /// Creates the node in the live session.
    async fn create(&mut self, close: &mut CloseRequest) -> Result<()> {
        let Some(session) = close.or(self.client.session()).await else { return Ok(()) };
        let session = session?;
        self.doubts.forget_ended(&self.client, &session).await;
        self.record_session(session.info().id);
        let wanted = self.shared.wanted();
        let txn = Txn::new().create(&self.path, wanted.data.clone(), Lifetime::Session);
        // Until the response is recorded, no job of the session mistakes the node for one that was
        // created late.
        let own = session.local::<OwnNodes>();
        let _in_flight = own.creating(&self.path);
        match session.commit_tracked(txn).await {
            Ok((Outcome::Committed(commit), requests)) => {
                if !requests.is_settled() {
                    self.doubts.add(&session);
                }
                let stat = stat_of(commit)?;
                // The effect of the create of this node is known; another one may be unresolved.
                own.add(stat.created, &self.owner);
                self.shared.record_stored(&wanted);
                self.keep(Kept::new(&session, &self.path, stat, wanted.number));
                Ok(())
            }
            Ok((Outcome::Rejected(no), _)) if no.reason == RejectReason::Exists => {
                self.handle_occupant(&session, close).await
            }
            Ok((Outcome::Rejected(no), _)) => Err(self.refused(no.reason.to_string())),
            Err(error) => {
                if error.has_unknown_effect() {
                    self.doubts.add(&session);
                }
                mistake!(CreateInDoubtForgotten: self.doubts = Doubts::default());
                // The node can be created with the data before it.
                if is_about_data(&error) && self.shared.record_refused(wanted.number, &error) {
                    return Ok(());
                }
                Err(error)
            }
        }
    }

    /// Reacts to a node that already exists at the path.
    async fn handle_occupant(&mut self, session: &Session, close: &mut CloseRequest) -> Result<()> {
        let node = session.read(Query::node(&self.path)).await?.into_node();
        let id = session.info().id;
        let before: Vec<_> = self.sessions.iter().copied().filter(|it| *it != id).collect();
        let mine = Mine { session: id, in_doubt: self.doubts.has(id), before: &before };
        let occupant = Occupant::of(node.as_ref(), mine);
        mistake!(ExistsIsMade: let occupant = {
            node.as_ref().and_then(|node| node.stat).map_or(occupant, Occupant::Own)
        });
        match occupant {
            Occupant::Own(stat) => return self.adopt(session, node.as_ref(), stat),
            Occupant::Remnant(stat) => {
                self.record_own_seen(&stat);
                self.remove_node(session, Expect::Version(stat.version)).await?;
            }
            // Another owner of this client has just abandoned it, or may not have recorded it yet.
            Occupant::Foreign(stat) if self.waits_left > 0 && self.may_go(session, &stat) => {
                self.waits_left -= 1;
                close.pause(&self.client).await;
            }
            // Its owner cannot remove it: the runtime has ended.
            Occupant::Foreign(stat) if is_given_up(session, &stat) => {
                self.remove_node(session, Expect::Version(stat.version)).await?;
            }
            Occupant::Foreign(stat) if self.occupied == Occupied::TakeOver => {
                self.remove_node(session, Expect::Version(stat.version)).await?;
            }
            Occupant::Foreign(stat) => {
                let whose = if stat.owner == Some(id) { OTHER_OWNER } else { OTHER_CLIENT };
                return Err(self.refused(whose.to_owned()));
            }
            Occupant::Nothing => {
                nothing_is_below(session, &self.path).await?;
                close.pause(&self.client).await;
            }
        }
        Ok(())
    }

    /// Returns `true` if a node belongs to this session and may soon be removed.
    fn may_go(&self, session: &Session, stat: &Stat) -> bool {
        let is_own = stat.owner == Some(session.info().id);
        is_own && session.local::<OwnNodes>().may_go(&self.path, stat.created)
    }

    /// Takes over the node of an earlier request.
    fn adopt(&mut self, session: &Session, node: Option<&Node>, stat: Stat) -> Result<()> {
        if !session.local::<OwnNodes>().add(stat.created, &self.owner) {
            return Err(self.refused(OTHER_OWNER.to_owned()));
        }
        self.doubts.record_seen(session.info().id);
        let wanted = self.shared.wanted();
        let is_stored = node.is_some_and(|node| node.data == wanted.data);
        if is_stored {
            self.shared.record_stored(&wanted);
        }
        let stored = if is_stored { wanted.number } else { 0 };
        self.keep(Kept::new(session, &self.path, stat, stored));
        Ok(())
    }

    fn keep(&mut self, kept: Kept) {
        self.waits_left = MAX_WAITS;
        self.last = Some(kept.stat.created);
        self.shared.record_created(kept.stat.created, Lasts::Session(kept.session.clone()));
        self.kept = Some(kept);
    }

    /// Reads the node, and continues to watch it.
    async fn read(&mut self, close: &mut CloseRequest) -> Result<()> {
        let Some(kept) = &mut self.kept else { return Ok(()) };
        let wanted = self.shared.wanted();
        match kept.read(&self.path, &wanted).await? {
            Shown::Stored => self.shared.record_stored(&wanted),
            Shown::Other => close.contend(&self.client).await,
            Shown::Gone => self.lost(),
        }
        Ok(())
    }

    /// Writes the wanted data.
    async fn store(&mut self, close: &mut CloseRequest) -> Result<()> {
        let Some(kept) = &mut self.kept else { return Ok(()) };
        let wanted = self.shared.wanted();
        match kept.store(&self.path, &wanted).await {
            Ok(true) => self.shared.record_stored(&wanted),
            Ok(false) => close.contend(&self.client).await,
            // It may be stored now or later: the node is read again, and written again if
            // necessary.
            Err(error) if error.kind().is_outage() || error.has_unknown_effect() => {
                return Err(error);
            }
            Err(error) => {
                let _has_other = self.shared.record_refused(wanted.number, &error);
            }
        }
        Ok(())
    }

    /// Records that the node was removed, or ends with its session.
    fn lost(&mut self) {
        if let Some(kept) = self.kept.take() {
            kept.session.local::<OwnNodes>().leave(kept.stat.created);
        }
        self.shared.record_gone();
    }

    /// Removes a node at the path.
    async fn remove_node(&self, session: &Session, expect: Expect) -> Result<()> {
        let txn = Txn::new().delete(&self.path, expect);
        // The next create shows the result.
        let _removed = session.commit(txn).await?;
        Ok(())
    }

    fn record_session(&mut self, session: SessionId) {
        if self.sessions.last() != Some(&session) {
            self.sessions.push(session);
        }
        if self.sessions.len() > MAX_SESSIONS {
            self.sessions.remove(0);
        }
    }

    fn refused(&self, why: String) -> Error {
        refused(&self.path, why)
    }

    /// Removes the node in its session. Returns `true` if there was a node.
    async fn remove_kept(&mut self) -> Result<bool> {
        let Some(kept) = self.kept.take() else { return Ok(false) };
        kept.session.local::<OwnNodes>().leave(kept.stat.created);
        match kept.remove(&self.path).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::SessionLost => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes the node that it created in any session, if it exists.
    async fn remove_all_remnants(&mut self) -> Result<()> {
        let mut delays = call_delays(&self.client);
        loop {
            let error = match self.remove_remnant().await {
                Ok(true) => return Ok(()),
                Ok(false) => self.refused("the node keeps changing".to_owned()),
                Err(error) if !self.client.is_transient(&error) => return Err(error),
                Err(error) => error,
            };
            let Some(delay) = delays.next() else { return Err(error.with_unknown_effect()) };
            sleep(delay).await;
        }
    }

    /// Removes the node that it created, if it exists. Returns false if the node has changed since.
    async fn remove_remnant(&mut self) -> Result<bool> {
        let session = self.client.session().await?;
        let view = session.read(Query::node(&self.path)).await?;
        let Some(stat) = view.node().and_then(|node| node.stat) else { return Ok(true) };
        let Some(owner) = stat.owner.filter(|owner| self.sessions.contains(owner)) else {
            return Ok(true);
        };
        // A node of this session belongs to another keeper, unless a create of this keeper is
        // unresolved.
        let is_now = owner == session.info().id;
        let is_others = session.local::<OwnNodes>().has(stat.created) || !self.doubts.has(owner);
        if is_now && is_others {
            return Ok(true);
        }
        let txn = Txn::new().delete(&self.path, Expect::Version(stat.version));
        let removed = matches!(session.commit(txn).await?, Outcome::Committed(_));
        if removed {
            self.record_own_seen(&stat);
        }
        Ok(removed)
    }

    /// Records that a node of this keeper was seen: it resolves a create, unless the keeper had
    /// this node before.
    fn record_own_seen(&mut self, stat: &Stat) {
        if let Some(owner) = stat.owner.filter(|_| self.last != Some(stat.created)) {
            self.doubts.record_seen(owner);
            self.last = Some(stat.created);
        }
    }
}

impl Keeping for KeeperTask {
    async fn turn(&mut self, close: &mut CloseRequest) -> Result<()> {
        match &self.kept {
            None => Box::pin(self.create(close)).await,
            Some(kept) if kept.session.is_lost() => {
                self.lost();
                close.pause(&self.client).await;
                Ok(())
            }
            Some(kept) if !kept.is_read => {
                Box::pin(self.read(close)).await?;
                if self.kept.is_none() {
                    // The session may have ended without being noticed yet: then all its other
                    // nodes are removed, too.
                    close.pause(&self.client).await;
                }
                Ok(())
            }
            Some(kept) if kept.stored != self.shared.wanted().number => {
                Box::pin(self.store(close)).await
            }
            Some(_) => self.wait(close).await,
        }
    }

    fn has_node(&self) -> bool {
        self.kept.is_some()
    }

    fn refuse_others(&mut self) {
        self.occupied = Occupied::Refuse;
    }

    /// Also removes the node that an unanswered create may still create.
    async fn leave(mut self) -> Result<()> {
        let removed = self.remove_kept().await;
        mistake!(CloseForgetsCreate: return Ok(()));
        if self.client.is_closed() {
            // The client has closed its last session, and reports whether that session has ended.
            return Ok(());
        }
        let removed = match removed {
            Ok(false) if !self.sessions.is_empty() => self.remove_all_remnants().await,
            removed => removed.map(drop),
        };
        let open = self.doubts.settle().await;
        for session in &open {
            let own = session.local::<OwnNodes>();
            let path = self.path.clone();
            session.remove_created_in_background(self.path.clone(), move |created| {
                own.is_owned(&path, created)
            });
        }
        if open.is_empty() {
            return removed;
        }
        Err(in_doubt(&self.path, "is removed"))
    }
}

fn stat_of(commit: Commit) -> Result<Stat> {
    let done = commit.results.into_iter().next();
    done.and_then(|done| done.stat).ok_or_else(|| {
        Error::new(ErrorKind::Backend, DOING).because("the store did not report what it created")
    })
}

/// Returns `true` if a node belongs to this session and its owner no longer wants it.
fn is_given_up(session: &Session, stat: &Stat) -> bool {
    let is_own = stat.owner == Some(session.info().id);
    is_own && session.local::<OwnNodes>().is_given_up(stat.created)
}

/// The time for which a write of another client to the node counts as recent.
const CONTENDED: Duration = Duration::from_secs(1);

/// The request to end a keeper: it was closed or dropped.
#[derive(Debug)]
pub(crate) struct CloseRequest {
    close: oneshot::Receiver<()>,
    is_closed: bool,
    /// The time of the last write of another client to the node.
    contended: Option<Instant>,
}

impl CloseRequest {
    pub(crate) fn new(close: oneshot::Receiver<()>) -> Self {
        Self { close, is_closed: false, contended: None }
    }

    /// Returns `true` if the keeper was closed. For use between steps that must not be cancelled.
    pub(crate) fn check(&mut self) -> bool {
        self.is_closed |= !matches!(self.close.try_recv(), Err(TryRecvError::Empty));
        self.is_closed
    }

    /// Waits for `work`, which may be cancelled. `None` if the keeper is closed.
    pub(crate) async fn or<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        if self.is_closed {
            return None;
        }
        match select(&mut self.close, pin!(work)).await {
            Either::Left(_closed) => {
                self.is_closed = true;
                None
            }
            Either::Right((done, _)) => Some(done),
        }
    }

    /// Pauses before the node is written again because another client has written to it, unless
    /// that is the first such write for a while. Otherwise two programs that keep the same node
    /// would write as fast as the store responds.
    pub(crate) async fn contend(&mut self, client: &Client) {
        let last = self.contended.replace(clock::now());
        if last.is_some_and(|last| clock::elapsed(last) < CONTENDED) {
            self.pause(client).await;
        }
    }

    /// Waits for a random part of a short time: many keepers may have lost their nodes at the same
    /// time.
    pub(crate) async fn pause(&mut self, client: &Client) {
        const MAX_MILLIS: u64 = 200;
        let delay = Duration::from_millis(client.random().below(MAX_MILLIS));
        mistake!(MadeAgainAtOnce: let delay = Duration::ZERO);
        self.or(sleep(delay)).await;
    }
}

/// The work that keeps a node. One task runs it, and only that task writes the node.
pub(crate) trait Keeping: Send {
    /// Creates the node if it does not exist, and otherwise maintains it until the next event.
    fn turn(&mut self, close: &mut CloseRequest) -> impl Future<Output = Result<()>> + Send;

    /// Returns `true` if the node is known to exist.
    fn has_node(&self) -> bool;

    /// From now on, does not remove nodes of other clients: the node of this keeper has existed.
    fn refuse_others(&mut self);

    /// Removes the node.
    fn leave(self) -> impl Future<Output = Result<()>> + Send;
}

/// Keeps the node until a close request, and then removes it. Reports whether the node could be
/// created at first.
pub(super) async fn run(
    mut keeping: impl Keeping,
    (client, shared): (&Client, &KeeperShared),
    mut close: CloseRequest,
    created: oneshot::Sender<Result<()>>,
) -> Result<()> {
    let (mut created, mut delays) = (Some(created), RetryDelays::forever(client.random()));
    while !close.check() && !client.is_closed() {
        let Err(error) = keeping.turn(&mut close).await else {
            delays.reset();
            if keeping.has_node()
                && let Some(created) = created.take()
            {
                let _is_received = created.send(Ok(())).is_ok();
                keeping.refuse_others();
            }
            continue;
        };
        tracing::debug!(%error, "could not keep a node");
        if !error.kind().is_outage() {
            if let Some(created) = created.take() {
                let _is_received = created.send(Err(error)).is_ok();
                break;
            }
            if !keeping.has_node() {
                shared.record_denied(&error);
            }
        }
        if error.kind() == ErrorKind::SessionLost {
            // All other keepers of the session lose their nodes at the same time.
            close.pause(client).await;
        }
        close.or(delays.wait()).await;
    }
    shared.end();
    keeping.leave().await
}
