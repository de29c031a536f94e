//! [`Deadlines`]: the deadlines of open tasks. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use synod_core::clock::Instant;
use synod_core::store::Node;
use synod_core::value::decode;

use crate::crew::task_terms::TaskTerms;

/// The deadlines of tasks that are not finished.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    due: BTreeSet<(Instant, String)>,
    by_task: BTreeMap<String, Instant>,
}

impl Deadlines {
    /// Adds the deadline in the terms that this node holds. `date` is the current date.
    pub(super) fn add(&mut self, node: &Node, now: Instant, date: Duration) {
        if let Ok(terms) = decode(&node.path, &node.data) {
            self.add_terms(node.path.name(), &terms, now, date);
        }
    }

    /// Adds the deadline in the terms of a task.
    pub(super) fn add_terms(
        &mut self,
        task: &str,
        terms: &TaskTerms,
        now: Instant,
        date: Duration,
    ) {
        let Some(deadline) = terms.deadline else { return };
        let left = Duration::from_millis(deadline).saturating_sub(date);
        self.set(task, now, left);
    }

    /// Sets the time after which a task expires, in place of an earlier one.
    pub(super) fn set(&mut self, task: &str, now: Instant, left: Duration) {
        self.forget(task);
        // A deadline beyond the range of the clock is never reached.
        if let Some(at) = now.checked_add(left) {
            self.due.insert((at, task.to_owned()));
            self.by_task.insert(task.to_owned(), at);
        }
    }

    /// Forgets the deadline of a task.
    pub(super) fn forget(&mut self, task: &str) {
        if let Some((task, at)) = self.by_task.remove_entry(task) {
            self.due.remove(&(at, task));
        }
    }

    /// Forgets the deadlines of all other tasks.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.by_task.retain(|task, _| is_kept(task));
        self.due.retain(|(_, task)| is_kept(task));
    }

    /// Removes and returns a task whose deadline is reached.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<String> {
        let (at, _) = self.due.first()?;
        if *at > now {
            return None;
        }
        let (_, task) = self.due.pop_first()?;
        self.by_task.remove(&task);
        Some(task)
    }

    /// The time of the next deadline.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use synod_core::clock;
    use synod_core::path::Path;
    use synod_core::store::{Revision, Stat, Version};
    use synod_core::value::encode;

    use super::*;

    const TODAY: Duration = Duration::from_secs(1_800_000_000);

    fn node(path: &str, seconds: Option<u64>) -> Node {
        let deadline = seconds.map(|seconds| (TODAY + Duration::from_secs(seconds)).as_millis());
        let deadline = deadline.map(|date| date.try_into().expect("a date in range"));
        of(path, &TaskTerms { deadline, ..TaskTerms::default() })
    }

    fn of(path: &str, terms: &TaskTerms) -> Node {
        let path = Path::new(path).expect("valid");
        let data = encode(&path, &terms).expect("JSON");
        let stat = Stat::new(Revision::new(1), Revision::new(1), Version::new(0), None);
        Node::new(path).with(data, stat)
    }

    #[test]
    fn tasks_expire_in_the_order_of_their_deadlines() {
        let (mut deadlines, now) = (Deadlines::default(), clock::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        for node in [node("/todo/a", Some(20)), node("/todo/b", Some(10)), node("/todo/c", None)] {
            deadlines.add(&node, now, TODAY);
        }
        // The task is assigned, which is reported some time later.
        deadlines.add(&node("/assigned/w/a", Some(20)), after(5), TODAY + Duration::from_secs(5));

        assert_eq!((deadlines.next_due(), deadlines.pop_due(after(9))), (Some(after(10)), None));
        assert_eq!(deadlines.pop_due(after(20)), Some("b".to_owned()));
        assert_eq!(deadlines.pop_due(after(20)), Some("a".to_owned()));
        assert_eq!((deadlines.next_due(), deadlines.pop_due(after(30))), (None, None));
    }

    #[test]
    fn a_deadline_in_the_past_is_reached_and_one_beyond_the_clock_is_not() {
        let (mut deadlines, now) = (Deadlines::default(), clock::now());
        let long_ago = TaskTerms { deadline: Some(1), ..TaskTerms::default() };
        let never = TaskTerms { deadline: Some(u64::MAX), ..TaskTerms::default() };
        deadlines.add(&of("/todo/a", &long_ago), now, TODAY);
        deadlines.add(&of("/todo/b", &never), now, TODAY);
        assert_eq!(deadlines.pop_due(now), Some("a".to_owned()));
        assert_eq!(deadlines.pop_due(now), None);
    }

    #[test]
    fn deadlines_of_finished_tasks_are_forgotten() {
        let (mut deadlines, now) = (Deadlines::default(), clock::now());
        for path in ["/todo/a", "/todo/b", "/todo/c"] {
            deadlines.add(&node(path, Some(0)), now, TODAY);
        }
        deadlines.forget("b");
        deadlines.forget("b");
        deadlines.retain(|task| task != "a");
        assert_eq!(deadlines.pop_due(now), Some("c".to_owned()));
        assert_eq!((deadlines.pop_due(now), deadlines.next_due()), (None, None));
    }
}
