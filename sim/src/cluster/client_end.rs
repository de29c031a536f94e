//! [`ClientEnd`]: the connection of one session to the simulated servers, from the side of its
//! process.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::{Notify, oneshot};

use crate::cluster::Cluster;
use crate::cluster::answer::Answer;
use crate::cluster::link::{Ask, LinkId};

/// A session's connection to the store. It is closed when this is dropped.
pub(super) struct ClientEnd {
    pub(super) cluster: Cluster,
    pub(super) id: LinkId,
    pub(super) actor: u64,
    pub(super) broken: Arc<Notify>,
    /// True if a server reported the end of the session. Its end by the client's clock does not
    /// count.
    pub(super) over: AtomicBool,
}

impl ClientEnd {
    pub(super) fn new(cluster: Cluster, actor: u64) -> Arc<Self> {
        let (id, broken) = cluster.touch(|state, _| {
            let id = state.new_link(actor);
            (id, state.link(id).broken.clone())
        });
        Arc::new(Self { cluster, id, actor, broken, over: AtomicBool::new(false) })
    }

    pub(super) fn send(&self, ask: Ask) -> Option<oneshot::Receiver<Answer>> {
        self.cluster.touch(|state, now| state.send(self.id, ask, now))
    }

    pub(super) fn connect(&self, ask: Ask) -> Option<oneshot::Receiver<Answer>> {
        self.cluster.touch(|state, now| {
            state.connect(self.id, now);
            state.send(self.id, ask, now)
        })
    }

    pub(super) fn is_up(&self) -> bool {
        self.cluster.touch(|state, _| state.link(self.id).is_up)
    }

    pub(super) fn hang_up(&self) {
        self.cluster.touch(|state, now| {
            let epoch = state.link(self.id).epoch;
            state.break_link(self.id, epoch, now);
        });
    }
}

impl Drop for ClientEnd {
    fn drop(&mut self) {
        self.hang_up();
        self.cluster.touch(|state, _| state.link(self.id).watching.clear());
    }
}
