//! [`WorkerRecord`]: what the node of a worker holds. [`KnownWorker`]: what a master knows of it.

use serde::{Deserialize, Serialize};
use synod_core::store::{Node, Version};
use synod_core::value::decode;

use crate::crew::crew_worker::CrewWorker;
use crate::mutant::mistake;

/// What a worker offers, and whether it was drained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WorkerRecord {
    #[serde(flatten)]
    pub(super) offers: CrewWorker,
    /// Whether it gets no new task.
    #[serde(default)]
    pub(super) drained: bool,
}

/// A worker that is there.
#[derive(Clone, Debug)]
pub(super) struct KnownWorker {
    pub(super) offers: CrewWorker,
    pub(super) drained: bool,
    /// The version of its node that says so.
    pub(super) version: Version,
}

impl KnownWorker {
    /// The worker whose node this is. A node that no session owns is no worker.
    pub(super) fn of(node: &Node) -> Option<Self> {
        let stat = node.stat.filter(|stat| stat.owner.is_some())?;
        let WorkerRecord { offers, drained } = decode(&node.path, &node.data).ok()?;
        mistake!(DrainIgnored: let drained = false);
        Some(Self { offers, drained, version: stat.version })
    }
}
