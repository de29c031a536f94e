//! [`CrewWorker`]: the capacity, the label and the properties of a worker, and the node that holds
//! them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use synod_core::store::{Node, Stat, Version};
use synod_core::value::decode;

use crate::mutant::mistake;

/// The capacity of a worker, its label and its properties.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrewWorker {
    pub(super) capacity: NonZeroU32,
    #[serde(default)]
    pub(super) properties: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<String>,
}

impl CrewWorker {
    /// Creates a worker for one task at a time, without a label and without properties.
    pub fn new() -> Self {
        Self { capacity: NonZeroU32::MIN, properties: BTreeMap::new(), label: None }
    }

    /// Sets the label, by which people and [`Crew::drain`](crate::crew::Crew::drain) find the
    /// worker: for example the name of its machine. Unlike the [name](crate::crew::Assignment) of
    /// the worker, it stays the same across sessions, and other workers may have the same one.
    pub fn labelled(self, label: impl Into<String>) -> Self {
        Self { label: Some(label.into()), ..self }
    }

    /// The label of the worker.
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// Sets the maximum number of tasks that the worker does concurrently.
    pub fn capacity(self, tasks: NonZeroU32) -> Self {
        Self { capacity: tasks, ..self }
    }

    /// Adds a property, for tasks that [need it](crate::crew::NewTask::needs).
    pub fn property(mut self, property: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(property.into(), value.into());
        self
    }

    /// The maximum number of tasks that the worker does concurrently.
    pub fn tasks_at_once(&self) -> NonZeroU32 {
        self.capacity
    }

    /// The properties of the worker.
    pub fn properties(&self) -> &BTreeMap<String, String> {
        &self.properties
    }

    /// Returns true if the worker has all these properties.
    pub(super) fn has(&self, needs: &BTreeMap<String, String>) -> bool {
        needs.iter().all(|(property, value)| self.properties.get(property) == Some(value))
    }
}

impl Default for CrewWorker {
    fn default() -> Self {
        Self::new()
    }
}

/// The content of the node of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WorkerRecord {
    #[serde(flatten)]
    pub(super) offers: CrewWorker,
    /// True if the worker receives no new task.
    #[serde(default)]
    pub(super) drained: bool,
    /// The last value of `drained` that the worker has read, and keeps for its next session. `None`
    /// for a worker of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    confirmed: Option<bool>,
}

impl WorkerRecord {
    /// Creates the record of a worker that has confirmed this value of `drained`.
    pub(super) fn new(offers: &CrewWorker, drained: bool) -> Self {
        Self { offers: offers.clone(), drained, confirmed: Some(drained) }
    }

    /// Returns true if the worker has confirmed the current value of `drained`, or confirms none.
    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed.is_none_or(|known| known == self.drained)
    }

    /// Returns the record with another value of `drained`, not confirmed. An earlier confirmation
    /// does not count: the worker may have read a change in between that it could not confirm.
    pub(super) fn with_drained(self, drained: bool) -> Self {
        Self { drained, confirmed: self.confirmed.map(|_| !drained), ..self }
    }

    /// Returns the record of a worker that has drained itself.
    pub(super) fn into_drained(self) -> Self {
        Self { drained: true, confirmed: Some(true), ..self }
    }

    /// Returns the record with the confirmation of the worker.
    pub(super) fn into_confirmed(self) -> Self {
        Self { confirmed: Some(self.drained), ..self }
    }
}

/// Returns true if a node was written after its creation. On some stores a check of the initial
/// version costs a read, because a missing node has that version, too.
pub(super) fn is_rewritten(stat: &Stat) -> bool {
    stat.modified != stat.created
}

/// A registered worker, as its master knows it.
#[derive(Clone, Debug)]
pub(super) struct RegisteredWorker {
    pub(super) offers: CrewWorker,
    pub(super) drained: bool,
    /// The version of the node that was read.
    pub(super) version: Version,
}

impl RegisteredWorker {
    /// Reads a worker from its node. A node without an owner is not a worker, and a worker that has
    /// not finished its registration does not count yet.
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
