//! [`CrewWorker`]: what a worker offers.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// What a worker offers: how many tasks it can do at the same time, and its properties.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrewWorker {
    pub(super) capacity: NonZeroU32,
    #[serde(default)]
    pub(super) properties: BTreeMap<String, String>,
}

impl CrewWorker {
    /// A worker for one task at a time, without properties.
    pub fn new() -> Self {
        Self { capacity: NonZeroU32::MIN, properties: BTreeMap::new() }
    }

    /// Sets how many tasks it does at the same time.
    pub fn capacity(self, tasks: NonZeroU32) -> Self {
        Self { capacity: tasks, ..self }
    }

    /// Adds a property, for tasks that [need it](crate::NewTask::needs).
    pub fn property(mut self, property: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(property.into(), value.into());
        self
    }

    /// How many tasks it does at the same time.
    pub fn tasks_at_once(&self) -> NonZeroU32 {
        self.capacity
    }

    /// Its properties.
    pub fn properties(&self) -> &BTreeMap<String, String> {
        &self.properties
    }

    /// Whether it has all these properties.
    pub(super) fn has(&self, needs: &BTreeMap<String, String>) -> bool {
        needs.iter().all(|(property, value)| self.properties.get(property) == Some(value))
    }
}

impl Default for CrewWorker {
    fn default() -> Self {
        Self::new()
    }
}
