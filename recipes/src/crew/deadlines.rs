//! [`Deadlines`]: when the tasks that have a deadline are to end. Pure, but for [`date`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use synod_core::clock::{self, Instant};
use synod_core::store::Node;
use synod_core::value::decode;

use crate::crew::task_terms::TaskTerms;

/// The deadlines of tasks that are not over.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    due: BTreeSet<(Instant, String)>,
    of: BTreeMap<String, Instant>,
}

impl Deadlines {
    /// Takes note of the terms of a task, which a node holds. `date` is that of now.
    pub(super) fn learn(&mut self, node: &Node, now: Instant, date: Duration) {
        if let Ok(terms) = decode(&node.path, &node.data) {
            self.learn_terms(node.path.name(), &terms, now, date);
        }
    }

    /// Takes note of the terms of a task.
    pub(super) fn learn_terms(
        &mut self,
        task: &str,
        terms: &TaskTerms,
        now: Instant,
        date: Duration,
    ) {
        let Some(deadline) = terms.deadline else { return };
        let left = Duration::from_millis(deadline).saturating_sub(date);
        self.put_off(task, now, left);
    }

    /// Takes note that a task is to end after this time, and not before.
    pub(super) fn put_off(&mut self, task: &str, now: Instant, left: Duration) {
        self.forget(task);
        // One that no clock can show is never reached.
        if let Some(at) = now.checked_add(left) {
            self.due.insert((at, task.to_owned()));
            self.of.insert(task.to_owned(), at);
        }
    }

    /// Forgets the deadline of a task.
    pub(super) fn forget(&mut self, task: &str) {
        if let Some((task, at)) = self.of.remove_entry(task) {
            self.due.remove(&(at, task));
        }
    }

    /// Keeps the deadlines of these tasks, and forgets all others.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.of.retain(|task, _| is_kept(task));
        self.due.retain(|(_, task)| is_kept(task));
    }

    /// A task whose deadline is reached. It is forgotten.
    pub(super) fn reached(&mut self, now: Instant) -> Option<String> {
        let (at, _) = self.due.first()?;
        if *at > now {
            return None;
        }
        let (_, task) = self.due.pop_first()?;
        self.of.remove(&task);
        Some(task)
    }

    /// When the next one is reached.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }
}

/// The time since the beginning of 1970, by the wall clock of this machine.
pub(super) fn date() -> Duration {
    clock::date().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use synod_core::path::Path;
    use synod_core::store::{Revision, Stat, Version};
    use synod_core::value::encode;

    use super::*;

    const TODAY: Duration = Duration::from_secs(1_800_000_000);

    fn node(path: &str, seconds: Option<u64>) -> Node {
        let deadline = seconds.map(|seconds| (TODAY + Duration::from_secs(seconds)).as_millis());
        let deadline = deadline.map(|date| date.try_into().expect("it fits"));
        of(path, &TaskTerms { deadline, ..TaskTerms::default() })
    }

    fn of(path: &str, terms: &TaskTerms) -> Node {
        let path = Path::new(path).expect("valid");
        let data = encode(&path, &terms).expect("JSON");
        let stat = Stat::new(Revision::new(1), Revision::new(1), Version::new(0), None);
        Node::new(path).with(data, stat)
    }

    #[test]
    fn tasks_are_late_in_the_order_of_their_deadlines() {
        let (mut deadlines, now) = (Deadlines::default(), clock::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        for node in [node("/todo/a", Some(20)), node("/todo/b", Some(10)), node("/todo/c", None)] {
            deadlines.learn(&node, now, TODAY);
        }
        // It is assigned, and a while later that is shown.
        deadlines.learn(&node("/assigned/w/a", Some(20)), after(5), TODAY + Duration::from_secs(5));

        assert_eq!((deadlines.next(), deadlines.reached(after(9))), (Some(after(10)), None));
        assert_eq!(deadlines.reached(after(20)), Some("b".to_owned()));
        assert_eq!(deadlines.reached(after(20)), Some("a".to_owned()));
        assert_eq!((deadlines.next(), deadlines.reached(after(30))), (None, None));
    }

    #[test]
    fn a_deadline_that_has_passed_is_reached_and_one_that_no_clock_shows_is_not() {
        let (mut deadlines, now) = (Deadlines::default(), clock::now());
        let long_ago = TaskTerms { deadline: Some(1), ..TaskTerms::default() };
        let never = TaskTerms { deadline: Some(u64::MAX), ..TaskTerms::default() };
        deadlines.learn(&of("/todo/a", &long_ago), now, TODAY);
        deadlines.learn(&of("/todo/b", &never), now, TODAY);
        assert_eq!(deadlines.reached(now), Some("a".to_owned()));
        assert_eq!(deadlines.reached(now), None);
    }

    #[test]
    fn what_is_over_is_forgotten() {
        let (mut deadlines, now) = (Deadlines::default(), clock::now());
        for path in ["/todo/a", "/todo/b", "/todo/c"] {
            deadlines.learn(&node(path, Some(0)), now, TODAY);
        }
        deadlines.forget("b");
        deadlines.forget("b");
        deadlines.retain(|task| task != "a");
        assert_eq!(deadlines.reached(now), Some("c".to_owned()));
        assert_eq!((deadlines.reached(now), deadlines.next()), (None, None));
    }
}
