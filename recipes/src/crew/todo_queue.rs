//! [`TodoQueue`]: the tasks that wait, in the order in which they are assigned. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use synod_core::store::Revision;

use crate::crew::step::Queued;

/// The tasks that wait: by their priority, then by when they began to wait.
#[derive(Debug, Default)]
pub(super) struct TodoQueue {
    queue: BTreeMap<TaskPlace, Queued>,
    places: BTreeMap<String, TaskPlace>,
}

type TaskPlace = (Reverse<i32>, Revision, String);

impl TodoQueue {
    pub(super) fn enters(&mut self, task: &str, queued: Queued) {
        let place = (Reverse(queued.terms.priority), queued.since, task.to_owned());
        self.places.insert(task.to_owned(), place.clone());
        self.queue.insert(place, queued);
    }

    pub(super) fn leaves(&mut self, task: &str) -> Option<Queued> {
        let place = self.places.remove(task)?;
        self.queue.remove(&place)
    }

    /// Since when a task waits.
    pub(super) fn since(&self, task: &str) -> Option<Revision> {
        self.places.get(task).map(|place| place.1)
    }

    pub(super) fn has(&self, task: &str) -> bool {
        self.places.contains_key(task)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The tasks in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Queued)> {
        self.queue.iter().map(|(place, queued)| (place.2.as_str(), queued))
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.places.clear();
    }
}
