//! [`WorkerNode`]: the node of a worker in one session.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Expect, Query, Txn, Version, View, Watch};
use synod_core::value::{decode, encode};

use crate::crew::layout::CrewPaths;
use crate::crew::worker::{CrewWorker, WorkerRecord, is_rewritten};
use crate::line::hold::Hold;
use crate::line::{Form, Line};
use crate::mutant::mistake;
use crate::support::retry::OutageBackoff;
use crate::support::retry::insist;

/// The node of a worker. No other worker ever has the same name.
pub(super) struct WorkerNode<'a> {
    pub(super) claim: Arc<Hold>,
    /// True if the worker is drained, as it last read. Kept for its next session.
    drained: &'a AtomicBool,
}

impl<'a> WorkerNode<'a> {
    /// Registers the worker. Waits without a limit for the answer of the store.
    pub(super) async fn begin(
        client: &Client,
        paths: &CrewPaths,
        offers: &CrewWorker,
        drained: &'a AtomicBool,
    ) -> Result<Self> {
        let is_drained = drained.load(Ordering::Relaxed);
        mistake!(DrainForgotten: let is_drained = false);
        let record = encode(paths.workers(), &WorkerRecord::new(offers, is_drained))?;
        // No worker waits for its turn. A lock queue is used for its claims, and because any number
        // of its tickets may be held.
        let line = Line::new(client, paths.workers().clone(), Form::exclusive("crew", "lock-"));
        let line = line.labelled(record);
        let mut backoff = OutageBackoff::new(client);
        loop {
            match line.enqueue().await {
                Ok(ticket) => return Ok(Self { claim: Arc::new(ticket.hold(())), drained }),
                Err(error) => backoff.wait(error).await?,
            }
        }
    }

    /// Writes the node once, because a check of its initial version may cost a read; and again
    /// whenever the worker is drained or undrained, which confirms the change.
    pub(super) async fn confirm(&self) -> Result<Infallible> {
        let mut followed = FollowedNode::new(self.claim.node.session(), self.claim.path());
        loop {
            let view = followed.next().await?;
            let Some((node, stat)) = view.node().and_then(|node| Some((node, node.stat?))) else {
                // The name belongs to this claim alone: the node is never created again.
                return pending().await;
            };
            self.claim.node.record(stat);
            // Content of another program is ignored.
            let Ok(record) = decode::<WorkerRecord>(&node.path, &node.data) else { continue };
            self.drained.store(record.drained, Ordering::Relaxed);
            if !record.is_confirmed() || !is_rewritten(&stat) {
                self.write(&record.into_confirmed(), stat.version).await?;
            }
        }
    }

    /// Drains the worker: when this returns, no later assignment to it is applied.
    pub(super) async fn drain(&self) -> Result<()> {
        let (session, node) = (self.claim.node.session(), self.claim.path());
        mistake!(DrainIgnored: return Ok(()));
        loop {
            let view = insist(session, || session.read(Query::node(node))).await?;
            let Some((data, stat)) = view.into_node().and_then(|it| Some((it.data, it.stat?)))
            else {
                // The name belongs to this claim alone: the claim is lost.
                return pending().await;
            };
            let record: WorkerRecord = decode(node, &data)?;
            if record.drained && record.is_confirmed() {
                return Ok(());
            }
            // If the node has changed since, it is read again.
            self.write(&record.into_drained(), stat.version).await?;
        }
    }

    /// Writes the node, unless it has changed: then that change will be reported to this worker.
    async fn write(&self, record: &WorkerRecord, version: Version) -> Result<()> {
        let (session, node) = (self.claim.node.session(), self.claim.path());
        let txn = Txn::new().set(node.clone(), encode(node, record)?, Expect::Version(version));
        let outcome = insist(session, || session.commit(txn.clone())).await?;
        if let Some(stat) = outcome.ok().and_then(|commit| commit.results.first()?.stat) {
            self.claim.node.record(stat);
        }
        Ok(())
    }
}

impl Drop for WorkerNode<'_> {
    /// Ends the claim, also if the application keeps an assignment, which shares it.
    fn drop(&mut self) {
        self.claim.give_up();
    }
}

/// A node that a session follows. Each read requests one event, so no watch is left on the server
/// after it.
pub(super) struct FollowedNode<'a> {
    session: &'a Session,
    query: Query,
    watch: Option<Watch>,
}

impl<'a> FollowedNode<'a> {
    /// Starts to follow a node. Nothing has been sent when this returns.
    pub(super) fn new(session: &'a Session, path: &Path) -> Self {
        Self { session, query: Query::node(path).local().once(), watch: None }
    }

    /// Returns the node: first its current state, then its state after each event or end of the
    /// watch.
    pub(super) async fn next(&mut self) -> Result<View> {
        if let Some(watch) = &mut self.watch {
            let _any_event = watch.next().await;
        }
        let (session, query) = (self.session, &self.query);
        let (view, watch) = insist(session, || session.watch(query.clone())).await?;
        self.watch = Some(watch);
        Ok(view)
    }
}
