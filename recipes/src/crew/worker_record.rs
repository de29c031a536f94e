//! [`WorkerRecord`]: what the node of a worker holds. [`KnownWorker`]: what a master knows of it.

use serde::{Deserialize, Serialize};
use synod_core::store::{Node, Stat, Version};
use synod_core::value::decode;

use crate::crew::crew_worker::CrewWorker;
use crate::mutant::mistake;

/// What a worker offers, and whether it is drained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WorkerRecord {
    #[serde(flatten)]
    pub(super) offers: CrewWorker,
    /// Whether it gets no new task.
    #[serde(default)]
    pub(super) drained: bool,
    /// What the worker knows of that, and keeps for its next session. `None` for a worker that does not say so: of an
    /// earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    confirmed: Option<bool>,
}

impl WorkerRecord {
    /// That of a worker that knows whether it is drained.
    pub(super) fn new(offers: &CrewWorker, drained: bool) -> Self {
        Self { offers: offers.clone(), drained, confirmed: Some(drained) }
    }

    /// Whether the worker knows whether it is drained, as far as it says so.
    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed.is_none_or(|known| known == self.drained)
    }

    /// The same, drained or no longer so. What the worker confirmed before says nothing then: it may know of a change between, which
    /// it could not confirm.
    pub(super) fn changed(self, drained: bool) -> Self {
        Self { drained, confirmed: self.confirmed.map(|_| !drained), ..self }
    }

    /// The same, now that the worker knows.
    pub(super) fn confirmed(self) -> Self {
        Self { confirmed: Some(self.drained), ..self }
    }
}

/// Whether a node was written since it was made. A check of the version that a node is made with may cost a read, as what is
/// no node has that version, too, on some stores.
pub(super) fn is_rewritten(stat: &Stat) -> bool {
    stat.modified != stat.created
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
    /// The worker whose node this is. A node that no session owns is no worker, and one that is registering is none yet.
    pub(super) fn of(node: &Node) -> Option<Self> {
        let stat = node.stat.filter(|stat| stat.owner.is_some())?;
        let record: WorkerRecord = decode(&node.path, &node.data).ok()?;
        if record.confirmed.is_some() && !is_rewritten(&stat) {
            return None;
        }
        let WorkerRecord { offers, drained, .. } = record;
        mistake!(DrainIgnored: let drained = false);
        Some(Self { offers, drained, version: stat.version })
    }
}
