//! [`LastingTask`]: the task that keeps a TTL node, by writing it before it expires.
//!
//! - **The incarnation decides on ownership.** No session owns the node. The task knows the
//!   revision of each of its creates, even if the response was lost ([`LastingCreate`]), and owns
//!   the node at the path if it was created at that revision. The task writes and removes no other
//!   node, unless it was started to take over.
//! - **Sessions do not affect the node.** The task reads, writes and watches through the client, in
//!   any session.
//! - **Unknown effects are temporary.** A create whose effect stays unknown may leave a node, which
//!   expires. The end of the task is then reported with an unknown effect.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::clock::{self, sleep};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::session::Session;
use synod_core::store::{
    Expect, Lifetime, OpResult, Outcome, Query, RejectReason, Rejected, Revision, Stat, Txn,
    Version, View,
};

use crate::keeper::doubts::Doubts;
use crate::keeper::failures::{
    DOING, OTHER_CLIENT, in_doubt, is_about_data, nothing_is_below, refused,
};
use crate::keeper::node::{Cause, Occupied};
use crate::keeper::state::KeeperShared;
use crate::keeper::task::{CloseRequest, Keeping};
use crate::mutant::mistake;
use crate::persistent_node::lasting_node::LastingNode;
use crate::support::detached::closed;
use crate::support::exactly_once::ExactlyOnce;
use crate::support::exactly_once::settling::{Evidence, Sent};
use crate::support::exactly_once::write_id::WriteIds;
use crate::support::retry::call_delays;

/// Keeps a TTL node, by writing it periodically.
pub(super) struct LastingTask {
    client: Client,
    path: Path,
    /// The directory of the write ids of its creates.
    marks: Path,
    ttl: Duration,
    occupied: Occupied,
    shared: Arc<KeeperShared>,
    node: Option<LastingNode>,
    doubts: Doubts,
    /// The revision at which its last node was created.
    last: Option<Revision>,
}

/// The minimum TTL. The task writes its node three times per TTL, and waits for the responses.
const MIN_TTL: Duration = Duration::from_millis(100);

impl LastingTask {
    pub(super) fn new(
        client: &Client,
        path: &Path,
        ttl: Duration,
        occupied: Occupied,
        shared: Arc<KeeperShared>,
    ) -> Result<Self> {
        if ttl < MIN_TTL {
            return Err(Error::new(ErrorKind::Invalid, DOING)
                .at(path)
                .because(format!("the TTL of a kept node must be at least {MIN_TTL:?}")));
        }
        let marks = Path::new(&format!("{path}.synod"))?;
        let (client, path, doubts) = (client.clone(), path.clone(), Doubts::default());
        Ok(Self { client, path, marks, ttl, occupied, shared, node: None, doubts, last: None })
    }

    /// Creates the node.
    async fn create(&mut self, close: &mut CloseRequest) -> Result<()> {
        let Some(session) = close.or(self.client.session()).await else { return Ok(()) };
        let session = session?;
        self.doubts.forget_ended(&self.client, &session).await;
        let (wanted, sent) = (self.shared.wanted(), clock::now());
        let create = LastingCreate { client: &self.client, path: &self.path, marks: &self.marks };
        let created = create.send(&session, wanted.data.clone(), Lifetime::Ttl(self.ttl)).await;
        match created {
            Ok(Creation::Created(stat)) => {
                self.shared.record_stored(&wanted);
                self.keep(self.node(stat).written(sent, &wanted));
                Ok(())
            }
            Ok(Creation::Rejected(no)) if no.reason == RejectReason::Exists => {
                self.handle_occupant(&session, close).await
            }
            Ok(Creation::Rejected(no)) => Err(refused(&self.path, no.reason.to_string())),
            Ok(Creation::Nothing) => {
                close.pause(&self.client).await;
                Ok(())
            }
            Err(error) => {
                if error.has_unknown_effect() {
                    self.doubts.add(&session);
                }
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
        let occupant = session.read(Query::node(&self.path)).await?.into_node();
        let Some(stat) = occupant.as_ref().and_then(|node| node.stat) else {
            nothing_is_below(session, &self.path).await?;
            close.pause(&self.client).await;
            return Ok(());
        };
        let is_own = self.last == Some(stat.created);
        mistake!(SameDataIsOwn: let is_own = {
            occupant.is_some_and(|it| it.data == self.shared.wanted().data)
        });
        if is_own {
            self.keep(self.node(stat));
            return Ok(());
        }
        if self.occupied == Occupied::Refuse {
            return Err(refused(&self.path, OTHER_CLIENT));
        }
        let txn = Txn::new().delete(&self.path, Expect::Version(stat.version));
        match session.commit(txn).await? {
            Outcome::Rejected(no) if no.reason == RejectReason::HasChildren => {
                Err(refused(&self.path, no.reason.to_string()))
            }
            // The next create shows the result.
            _ => Ok(()),
        }
    }

    fn node(&self, stat: Stat) -> LastingNode {
        LastingNode::new(&self.client, &self.path, self.ttl, stat)
    }

    fn keep(&mut self, node: LastingNode) {
        self.last = Some(node.stat.created);
        self.shared.record_created(node.stat.created, node.lasts());
        self.node = Some(node);
    }

    /// Reads the node, and continues to watch it.
    async fn read(&mut self, close: &mut CloseRequest) -> Result<()> {
        let Some(node) = &mut self.node else { return Ok(()) };
        let wanted = self.shared.wanted();
        if !node.read(&wanted).await? {
            self.lost();
        } else if node.stored == wanted.number {
            self.shared.record_stored(&wanted);
        } else {
            close.contend(&self.client).await;
        }
        Ok(())
    }

    /// Writes the wanted data, which renews the TTL of the node.
    async fn write(&mut self, close: &mut CloseRequest) -> Result<()> {
        let Some(node) = &mut self.node else { return Ok(()) };
        let wanted = self.shared.wanted();
        let is_stored = node.stored == wanted.number;
        match node.write(&wanted).await {
            Ok(true) => {
                self.shared.record_stored(&wanted);
                self.shared.extend(node.lasts());
            }
            Ok(false) => close.contend(&self.client).await,
            // It may be written now or later: the node is read again, and written again if
            // necessary.
            Err(error) if error.kind().is_outage() || error.has_unknown_effect() || is_stored => {
                return Err(error);
            }
            Err(error) => {
                let _has_other = self.shared.record_refused(wanted.number, &error);
            }
        }
        Ok(())
    }

    /// Waits for an event of the node, for other data, or for the time of the next write.
    async fn wait(&mut self, close: &mut CloseRequest) {
        let Some(node) = &mut self.node else { return };
        match close.or(node.cause(&self.shared)).await {
            Some(Cause::Changed) => node.set_stale(),
            Some(Cause::Outage | Cause::Lost) => {
                node.set_stale();
                mistake!(LastingMadeAnew: {
                    let _gone = self.remove_last().await;
                    self.lost();
                });
                close.pause(&self.client).await;
            }
            None | Some(Cause::Wanted) => {}
        }
    }

    /// Records that the node is gone.
    fn lost(&mut self) {
        self.node = None;
        self.shared.record_gone();
    }

    /// Removes the node that it created, if it exists.
    async fn remove_last(&mut self) -> Result<()> {
        let Some(last) = self.last else { return Ok(()) };
        let mut delays = call_delays(&self.client);
        loop {
            let Err(error) = self.remove(last).await else { return Ok(()) };
            if !self.client.is_transient(&error) {
                return Err(error);
            }
            let Some(delay) = delays.next() else { return Err(error.with_unknown_effect()) };
            sleep(delay).await;
        }
    }

    /// Removes the node that was created at this revision, in the live session.
    async fn remove(&mut self, created: Revision) -> Result<()> {
        let session = self.client.session().await?;
        let node = session.read(Query::node(&self.path)).await?.into_node();
        let Some(stat) = node.and_then(|node| node.stat).filter(|stat| stat.created == created)
        else {
            return Ok(());
        };
        session.remove(&OpResult::new(self.path.clone()).with_stat(stat)).await
    }
}

impl Keeping for LastingTask {
    async fn turn(&mut self, close: &mut CloseRequest) -> Result<()> {
        let Some(node) = &self.node else { return Box::pin(self.create(close)).await };
        let is_right = !node.is_due() && node.stored == self.shared.wanted().number;
        if !node.is_known() {
            Box::pin(self.read(close)).await?;
            if self.node.is_none() {
                close.pause(&self.client).await;
            }
        } else if is_right {
            self.wait(close).await;
        } else {
            Box::pin(self.write(close)).await?;
        }
        Ok(())
    }

    fn has_node(&self) -> bool {
        self.node.is_some()
    }

    fn refuse_others(&mut self) {
        self.occupied = Occupied::Refuse;
    }

    /// Leaves the node of an unanswered create to expire.
    async fn leave(mut self) -> Result<()> {
        mistake!(CloseForgetsNode: return Ok(()));
        if self.client.is_closed() {
            let nothing = self.last.is_none();
            return if nothing {
                Ok(())
            } else {
                Err(closed(DOING, &self.path).with_unknown_effect())
            };
        }
        self.remove_last().await?;
        if self.doubts.settle().await.is_empty() {
            return Ok(());
        }
        Err(in_doubt(&self.path, "expires after its TTL"))
    }
}

/// A create of a TTL node. The node has no owner by which to identify it, so a write id records the
/// result of the create. The write id is next to the node, in a separate directory, and is
/// removed as soon as the result is known.
pub(super) struct LastingCreate<'a> {
    pub(super) client: &'a Client,
    pub(super) path: &'a Path,
    pub(super) marks: &'a Path,
}

/// The result of a create.
pub(super) enum Creation {
    /// The node was created. Its version may be unknown.
    Created(Stat),
    Rejected(Rejected),
    /// The node was not created, and no request is in flight.
    Nothing,
}

impl LastingCreate<'_> {
    /// Creates the node, and determines the result.
    pub(super) async fn send(
        &self,
        session: &Session,
        data: Bytes,
        lifetime: Lifetime,
    ) -> Result<Creation> {
        let txn = Txn::new().create(self.path, data, lifetime);
        let write_ids = WriteIds::new(self.marks.clone(), "node-", DOING);
        let evidence = Vacancy { path: self.path, made: Mutex::default() };
        let (client, write_ids, evidence) = (self.client, &write_ids, &evidence);
        let limit = Retry::until_elapsed(session.timeout());
        Ok(match (ExactlyOnce { client, write_ids, session, evidence, limit }).send(txn).await? {
            Sent::Applied(commit) => {
                let done = commit.and_then(|commit| commit.results.into_iter().next()?.stat);
                done.or_else(|| evidence.made()).map_or(Creation::Nothing, Creation::Created)
            }
            Sent::Rejected(no) => Creation::Rejected(no),
            Sent::Lost => Creation::Nothing,
        })
    }
}

/// If there is no node at the path, a create has left nothing, whether it was applied or not.
struct Vacancy<'a> {
    path: &'a Path,
    made: Mutex<Option<Revision>>,
}

impl Vacancy<'_> {
    fn made(&self) -> Option<Stat> {
        let at = *self.made.lock().unwrap_or_else(PoisonError::into_inner);
        at.map(|at| Stat::new(at, at, Version::new(0), None))
    }
}

impl Evidence for Vacancy<'_> {
    fn whole(&self) -> Option<Query> {
        Some(Query::node(self.path))
    }

    fn is_untouched(&self, view: &View) -> bool {
        !view.nodes.iter().any(|node| node.path == *self.path && node.stat.is_some())
    }

    fn record_applied(&self, at: Revision) {
        *self.made.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
    }
}
