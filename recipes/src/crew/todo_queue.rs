//! [`TodoQueue`]: the tasks that wait, in the order in which they are assigned. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use synod_core::clock::Instant;
use synod_core::store::Revision;

use crate::crew::step::Queued;

/// The tasks that wait: by the properties that they need, then by their priority, then by when they began to wait. So however many wait
/// for a worker that is not there, they are in the way of no other.
#[derive(Debug, Default)]
pub(super) struct TodoQueue {
    ready: BTreeMap<Needs, BTreeMap<TaskPlace, Queued>>,
    /// Tasks that are not assigned before this time.
    resting: BTreeSet<(Instant, String)>,
    tasks: BTreeMap<String, WaitPlace>,
}

/// The properties that a worker must have.
type Needs = BTreeMap<String, String>;

type TaskPlace = (Reverse<i32>, Revision, String);

/// The place in which a task waits.
#[derive(Debug)]
enum WaitPlace {
    Ready(Needs, TaskPlace),
    Resting(Instant, Queued),
}

impl TodoQueue {
    pub(super) fn enters(&mut self, task: &str, queued: Queued) {
        self.leaves(task);
        let place = (Reverse(queued.terms.priority), queued.since, task.to_owned());
        let needs = queued.terms.needs.clone();
        self.tasks.insert(task.to_owned(), WaitPlace::Ready(needs.clone(), place.clone()));
        self.ready.entry(needs).or_default().insert(place, queued);
    }

    /// A task waits that is not to be assigned before this time.
    pub(super) fn rests(&mut self, task: &str, queued: Queued, until: Instant) {
        self.leaves(task);
        self.resting.insert((until, task.to_owned()));
        self.tasks.insert(task.to_owned(), WaitPlace::Resting(until, queued));
    }

    /// Lets the tasks be assigned that were not to be assigned before now.
    pub(super) fn wakes(&mut self, now: Instant) {
        while let Some((_, task)) = self.resting.first().filter(|(until, _)| *until <= now).cloned()
        {
            if let Some(queued) = self.leaves(&task) {
                self.enters(&task, queued);
            }
        }
    }

    /// When the next task may be assigned that is not to be assigned before.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.resting.first().map(|(until, _)| *until)
    }

    pub(super) fn leaves(&mut self, task: &str) -> Option<Queued> {
        match self.tasks.remove(task)? {
            WaitPlace::Resting(until, queued) => {
                self.resting.remove(&(until, task.to_owned()));
                Some(queued)
            }
            WaitPlace::Ready(needs, place) => {
                let equal = self.ready.get_mut(&needs)?;
                let queued = equal.remove(&place);
                if equal.is_empty() {
                    self.ready.remove(&needs);
                }
                queued
            }
        }
    }

    /// Since when a task waits.
    pub(super) fn since(&self, task: &str) -> Option<Revision> {
        self.tasks.get(task).map(|place| match place {
            WaitPlace::Ready(_, place) => place.1,
            WaitPlace::Resting(_, queued) => queued.since,
        })
    }

    pub(super) fn has(&self, task: &str) -> bool {
        self.tasks.contains_key(task)
    }

    /// True if no task waits that could be assigned now.
    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// The tasks in their order whose needs are met.
    pub(super) fn with_needs_met(
        &self,
        are_met: impl Fn(&Needs) -> bool,
    ) -> impl Iterator<Item = (&str, &Queued)> {
        let met = self.ready.iter().filter(|(needs, _)| are_met(needs));
        let mut equals: Vec<_> = met.map(|(_, tasks)| tasks.iter()).collect();
        // The first one of each kind.
        let mut firsts = BTreeMap::new();
        for (kind, tasks) in equals.iter_mut().enumerate() {
            firsts.extend(tasks.next().map(|(place, queued)| (place, (queued, kind))));
        }
        std::iter::from_fn(move || {
            let (place, (queued, kind)) = firsts.pop_first()?;
            let next = equals.get_mut(kind).and_then(Iterator::next);
            firsts.extend(next.map(|(place, queued)| (place, (queued, kind))));
            Some((place.2.as_str(), queued))
        })
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use synod_core::clock;
    use synod_core::store::Version;

    use super::*;
    use crate::crew::new_task::NewTask;

    fn queued(since: u64, new: NewTask) -> Queued {
        let (version, since) = (Version::new(0), Revision::new(since));
        Queued { version, since, terms: new.terms, stored: Bytes::new() }
    }

    fn names(queue: &TodoQueue, are_met: impl Fn(&Needs) -> bool) -> Vec<&str> {
        queue.with_needs_met(are_met).map(|(task, _)| task).collect()
    }

    #[test]
    fn tasks_of_all_kinds_are_in_one_order() {
        let (mut queue, plain) = (TodoQueue::default(), || NewTask::new(""));
        let gpu = || plain().needs("gpu", "yes");
        for (since, (task, new)) in (1..).zip([
            ("third", plain()),
            ("fourth", gpu()),
            ("fifth", plain()),
            ("first", gpu().priority(1)),
            ("sixth", gpu()),
            ("second", plain().priority(1)),
        ]) {
            queue.enters(task, queued(since, new));
        }
        let all = ["first", "second", "third", "fourth", "fifth", "sixth"];
        assert_eq!(names(&queue, |_| true), all);
        assert_eq!(names(&queue, Needs::is_empty), ["second", "third", "fifth"]);
        assert_eq!(queue.leaves("fourth").map(|it| it.since), Some(Revision::new(2)));
        // It enters once, however often that is said.
        queue.enters("first", queued(9, plain()));
        assert_eq!(names(&queue, |_| true), ["second", "third", "fifth", "sixth", "first"]);
        for task in ["sixth", "second", "third", "fifth", "first"] {
            assert!(!queue.is_empty() && queue.leaves(task).is_some());
        }
        assert!(queue.is_empty() && queue.ready.is_empty() && queue.leaves("first").is_none());
    }

    #[test]
    fn a_task_that_rests_is_there_and_is_not_ready_before_its_time() {
        let (mut queue, now) = (TodoQueue::default(), clock::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        queue.enters("a", queued(1, NewTask::new("")));
        queue.rests("a", queued(1, NewTask::new("")), after(5));
        queue.rests("b", queued(2, NewTask::new("")), after(3));
        queue.rests("c", queued(3, NewTask::new("")), after(4));
        assert!(queue.is_empty() && queue.has("a"));
        assert_eq!((queue.since("b"), queue.next_wake()), (Some(Revision::new(2)), Some(after(3))));
        assert!(queue.leaves("c").is_some());

        queue.wakes(after(2));
        assert!(queue.is_empty());
        queue.wakes(after(3));
        assert_eq!((names(&queue, |_| true), queue.next_wake()), (vec!["b"], Some(after(5))));
        queue.wakes(after(9));
        assert_eq!((names(&queue, |_| true), queue.next_wake()), (vec!["a", "b"], None));
        queue.rests("b", queued(2, NewTask::new("")), after(30));
        queue.clear();
        assert!(queue.is_empty() && !queue.has("b") && queue.next_wake().is_none());
    }
}
