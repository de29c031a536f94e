//! What administers a [`Crew`]: it is paused and goes on, a worker is drained, all of it is shown.

use std::sync::atomic::{AtomicBool, Ordering};

use synod_core::error::{Error, Result};
use synod_core::path::Path;
use synod_core::store::{Expect, Outcome, Query, View};
use synod_core::value::{decode, encode};

use crate::cell::repeat::{Race, repeat, repeat_race};
use crate::cell::until::until;
use crate::crew::Crew;
use crate::crew::crew_snapshot::CrewSnapshot;
use crate::crew::crew_switch::CrewSwitch;
use crate::crew::insist::overtaken;
use crate::crew::layout::CrewPaths;
use crate::crew::worker_record::WorkerRecord;
use crate::mutant::mistake;

impl Crew {
    /// Pauses the crew: once this has returned nothing is assigned, whichever client leads, until [`Crew::resume`]. Tasks
    /// are submitted and cancelled as before, and those that workers have come to their end.
    ///
    /// # Errors
    ///
    /// As every verb of a [`Client`](synod_core::client::Client).
    ///
    /// # Cancel safety
    ///
    /// A dropped call has paused it or has not.
    pub async fn pause(&self) -> Result<()> {
        self.switch(CrewSwitch { paused: true }).await
    }

    /// Ends the pause of a crew.
    ///
    /// # Errors
    ///
    /// As every verb of a [`Client`](synod_core::client::Client).
    ///
    /// # Cancel safety
    ///
    /// A dropped call has ended the pause or has not.
    pub async fn resume(&self) -> Result<()> {
        self.switch(CrewSwitch { paused: false }).await
    }

    async fn switch(&self, switch: CrewSwitch) -> Result<()> {
        let paths = CrewPaths::of(&self.path)?;
        let data = encode(paths.switch(), &switch)?;
        repeat(&self.client, || self.client.put(paths.switch(), data.clone())).await?;
        Ok(())
    }

    /// Drains a worker, which is named as in a [`CrewSnapshot`]: once this has returned `true` it gets no new task, and those that
    /// it has come to their end. That lasts until [`Crew::undrain`] or until its call of [`Crew::work`] ends: the worker stays
    /// drained when it loses its session and registers anew, under another name. So this waits until the worker has confirmed
    /// that it knows. Returns `false` if there is no such worker, or if its session ends before it has confirmed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid) if it is no name,
    /// [`ErrorKind::Corrupt`](synod_core::error::ErrorKind::Corrupt) if its node holds no worker, and as every verb of a
    /// [`Client`](synod_core::client::Client).
    ///
    /// # Cancel safety
    ///
    /// A dropped call has drained it or has not; if it has, perhaps for its session alone.
    pub async fn drain(&self, worker: &str) -> Result<bool> {
        self.set_drained(worker, true).await
    }

    /// Lets a worker that was drained get tasks again: the opposite of [`Crew::drain`], which also says what this returns.
    ///
    /// # Errors
    ///
    /// As [`Crew::drain`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has ended that or has not; if it has, perhaps for the worker's session alone.
    pub async fn undrain(&self, worker: &str) -> Result<bool> {
        self.set_drained(worker, false).await
    }

    async fn set_drained(&self, worker: &str, drained: bool) -> Result<bool> {
        let node = CrewPaths::of(&self.path)?.worker(worker)?;
        if !repeat_race(&self.client, || self.try_to_set_drained(&node, drained)).await? {
            return Ok(false);
        }
        self.confirmed(&node).await.map_err(Error::with_unknown_effect)
    }

    /// Whether there is such a worker, which is drained or not from now on.
    async fn try_to_set_drained(&self, node: &Path, drained: bool) -> Result<Race<bool>> {
        let Some(found) = self.client.get(node).await? else { return Ok(Race::Won(false)) };
        let record: WorkerRecord = decode(node, &found.data)?;
        let Some(stat) = found.stat.filter(|_| record.drained != drained) else {
            return Ok(Race::Won(true));
        };
        let data = encode(node, &record.changed(drained))?;
        Ok(match self.client.set(node, data, Expect::Version(stat.version)).await? {
            Outcome::Committed(_) => Race::Won(true),
            Outcome::Rejected(_) => Race::Lost(overtaken("draining a worker", node)),
        })
    }

    /// Waits until a worker knows whether it is drained. Returns false if it is gone before.
    async fn confirmed(&self, node: &Path) -> Result<bool> {
        let there = AtomicBool::new(false);
        let is_settled = |view: &View| {
            let record = view.node().map(|node| decode::<WorkerRecord>(&node.path, &node.data));
            there.store(record.is_some(), Ordering::Relaxed);
            // What is no worker confirms nothing.
            record.is_none_or(|record| record.is_ok_and(|it| it.is_confirmed()))
        };
        Box::pin(until(&self.client, Query::node(node).once(), is_settled)).await?;
        Ok(there.into_inner())
    }

    /// The workers and the tasks of this crew, as of one moment. This reads all that the crew has in the store, with the data
    /// and the results of its tasks.
    ///
    /// # Errors
    ///
    /// As every verb of a [`Client`](synod_core::client::Client).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn snapshot(&self) -> Result<CrewSnapshot> {
        let view = self.client.read(Query::subtree(&self.path)).await?;
        mistake!(SnapshotMixesMoments: let view = {
            synod_core::clock::sleep(std::time::Duration::from_millis(1)).await;
            let (assigned, mut view) = (CrewPaths::of(&self.path)?.all_assigned().clone(), view);
            view.nodes.retain(|node| !node.path.is_below(&assigned));
            view.nodes.extend(self.client.read(Query::subtree(assigned)).await?.nodes);
            view
        });
        Ok(CrewSnapshot::of(&self.path, &view))
    }
}
