//! The mistake of a client that cannot tell its own isolation from an outage of the store.

use synod_core::clock;
use synod_core::store::{Loss, Status, Store};
use synod_core::task::{Task, spawn};
use synod_mem::cluster::Cluster;
use tokio::sync::watch;

/// What a session says of itself when it holds that time stands still for all while no server answers it. In an
/// outage it does: a new leader counts the time of every session anew.
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
                    Status::Suspended { .. } | Status::Lost { why: Loss::Expired }
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
