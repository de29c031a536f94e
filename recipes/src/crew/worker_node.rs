//! [`WorkerNode`]: the node of a worker in one session.

use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};

use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::store::{Expect, Txn, Version};
use synod_core::value::{decode, encode};

use crate::cell::patience::Patience;
use crate::crew::crew_worker::CrewWorker;
use crate::crew::followed_node::FollowedNode;
use crate::crew::insist::insist;
use crate::crew::layout::CrewPaths;
use crate::crew::worker_record::{WorkerRecord, is_rewritten};
use crate::line::Line;
use crate::line::form::Form;
use crate::line::hold::Hold;
use crate::mutant::mistake;

/// The node of a worker, whose name no other worker ever has.
pub(super) struct WorkerNode<'a> {
    pub(super) claim: Hold,
    /// Whether the worker is drained, as far as it knows: in its next session, too.
    drained: &'a AtomicBool,
}

impl<'a> WorkerNode<'a> {
    /// Registers, however long the store does not answer.
    pub(super) async fn begin(
        client: &Client,
        paths: &CrewPaths,
        offers: &CrewWorker,
        drained: &'a AtomicBool,
    ) -> Result<Self> {
        let is_drained = drained.load(Ordering::Relaxed);
        mistake!(DrainForgotten: let is_drained = false);
        let record = encode(paths.workers(), &WorkerRecord::new(offers, is_drained))?;
        // No worker waits for its turn: a line has what a claim needs, and tickets of any number may be held.
        let line = Line::new(client, paths.workers().clone(), Form::alone("crew", "lock-"));
        let line = line.labelled(record);
        let mut patience = Patience::new(client);
        loop {
            match line.enqueue().await {
                Ok(ticket) => return Ok(Self { claim: ticket.hold(()), drained }),
                Err(error) => patience.rest(error).await?,
            }
        }
    }

    /// Writes the node once, so that a check of it costs no read, and again whenever the worker was drained, or is so no longer:
    /// from then on the worker knows that.
    pub(super) async fn confirm(&self) -> Result<Infallible> {
        let mut followed = FollowedNode::new(self.claim.node.session(), self.claim.path());
        loop {
            let view = followed.next().await?;
            let Some((node, stat)) = view.node().and_then(|node| Some((node, node.stat?))) else {
                // Its name is that of this claim alone: it never comes back.
                return pending().await;
            };
            self.claim.node.learn(stat);
            // What another program has written there says nothing.
            let Ok(record) = decode::<WorkerRecord>(&node.path, &node.data) else { continue };
            self.drained.store(record.drained, Ordering::Relaxed);
            if !record.is_confirmed() || !is_rewritten(&stat) {
                self.write(&record.confirmed(), stat.version).await?;
            }
        }
    }

    /// Writes the node, unless it has changed: then that change is on its way to this worker.
    async fn write(&self, record: &WorkerRecord, version: Version) -> Result<()> {
        let (session, node) = (self.claim.node.session(), self.claim.path());
        let txn = Txn::new().set(node.clone(), encode(node, record)?, Expect::Version(version));
        let outcome = insist(session, || session.commit(txn.clone())).await?;
        if let Some(stat) = outcome.ok().and_then(|commit| commit.results.first()?.stat) {
            self.claim.node.learn(stat);
        }
        Ok(())
    }
}
