//! [`BarrierPlace`]: where a double barrier is, and what its members agree on.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use synod_core::client::Client;
use synod_core::path::Path;

use crate::double_barrier::member_watch::MemberWatch;

/// What a member that waits to enter does when another one gives up before all are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnLoss {
    /// It waits for another member instead.
    #[default]
    Wait,
    /// It gives up too: [`DoubleBarrier::enter`](crate::DoubleBarrier::enter) fails.
    Fail,
}

/// Where a double barrier is, and what its members agree on.
#[derive(Clone, Debug)]
pub(super) struct BarrierPlace {
    pub(super) client: Client,
    pub(super) path: Path,
    pub(super) parties: NonZeroU32,
    pub(super) on_loss: OnLoss,
    /// The watch of a member that has left, for the next round.
    idle: Arc<Mutex<Option<MemberWatch>>>,
}

impl BarrierPlace {
    pub(super) fn new(client: &Client, path: Path, parties: NonZeroU32) -> Self {
        let (client, on_loss) = (client.clone(), OnLoss::default());
        Self { client, path, parties, on_loss, idle: Arc::default() }
    }

    /// A watch of the members: that of an earlier round, if it is not in use.
    pub(super) fn watch(&self) -> MemberWatch {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        idle.unwrap_or_else(|| MemberWatch::new(&self.client, &self.path))
    }

    /// Keeps a watch for the next round.
    pub(super) fn keep(&self, watch: MemberWatch) {
        let last = self.idle.lock().unwrap_or_else(PoisonError::into_inner).replace(watch);
        // Not under the lock.
        drop(last);
    }
}
