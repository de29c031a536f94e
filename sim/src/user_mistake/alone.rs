//! The mistake of a client that confuses its own isolation with an outage of the store.

use crate::cluster::Cluster;
use synod_core::clock;
use synod_core::store::{SessionEnd, Status, Store};
use synod_core::task::{Task, spawn};
use tokio::sync::watch;

/// The status of a session that is considered certain as long as no server answers it. In an outage
/// of the store that would be right, because a new leader restarts the time of every session.
pub(super) struct Alone {
    told: watch::Receiver<Status>,
    _task: Task,
}

impl Alone {
    pub(super) fn new(inner: &dyn Store, cluster: Cluster, actor: u64) -> Self {
        let (heard, ttl) = (inner.status(), inner.session().ttl);
        let tell = watch::Sender::new(*heard.borrow());
        let told = tell.subscribe();
        let work = async move {
            loop {
                let (now, mut status) = (clock::now(), *heard.borrow());
                let doubtful = matches!(
                    status,
                    Status::Suspended { .. } | Status::Lost { reason: SessionEnd::Expired }
                );
                if doubtful && cluster.reaches(actor) == 0 {
                    status = Status::Suspended { until: now + ttl };
                }
                tell.send_if_modified(|told| std::mem::replace(told, status) != status);
                if status.is_lost() {
                    return;
                }
                clock::sleep(ttl / 50).await;
            }
        };
        Self { told, _task: spawn(work) }
    }

    pub(super) fn status(&self) -> watch::Receiver<Status> {
        self.told.clone()
    }
}
