//! [`Finished`]: the finished tasks, and the times of their removal. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use synod_core::clock::Instant;
use synod_core::store::{Node, Revision};
use synod_core::value::decode;

/// The finished tasks, in the order of their removal.
#[derive(Debug)]
pub(super) struct Finished {
    retention: Duration,
    due: BTreeSet<(Instant, String)>,
    tasks: BTreeMap<String, FinishedTask>,
    /// The known tasks that were not reported yet since their directory is reported anew.
    unconfirmed: BTreeSet<String>,
}

/// A finished task.
#[derive(Clone, Copy, Debug)]
struct FinishedTask {
    /// The revision of the end, if it was reported. A later task of the same name has another one.
    ended: Option<Revision>,
    /// The time of the removal. `None` while the removal is in flight, or if the time is beyond the
    /// range of the clock.
    due: Option<Instant>,
}

/// The content of the node of a finished task.
#[derive(Deserialize)]
struct EndDate {
    /// The date of the end, in milliseconds since the beginning of 1970, by the wall clock of the
    /// client that ended the task.
    ended: u64,
}

impl Finished {
    pub(super) fn new(retention: Duration) -> Self {
        let (due, tasks, unconfirmed) = <(BTreeSet<_>, BTreeMap<_, _>, BTreeSet<_>)>::default();
        Self { retention, due, tasks, unconfirmed }
    }

    /// Adds a finished task. The retention begins now, or at the date in the node if that is
    /// earlier. If the task was known before, the earlier begin of its retention counts.
    pub(super) fn add(&mut self, node: &Node, now: Instant, date: Duration) {
        let task = node.path.name();
        let ended = node.stat.map(|stat| stat.created);
        let passed = ended_of(node).map_or(Duration::ZERO, |ended| date.saturating_sub(ended));
        let due = now.checked_add(self.retention.saturating_sub(passed));
        self.unconfirmed.remove(task);
        let before = self.forget(task).filter(|before| {
            let is_other = before.ended.is_some() && ended.is_some() && before.ended != ended;
            !is_other
        });
        let due = match before {
            Some(before) => due.and_then(|due| Some(due.min(before.due?))),
            None => due,
        };
        self.insert(task, FinishedTask { ended: ended.or(before.and_then(|it| it.ended)), due });
    }

    /// Delays the removal of a known task until this pause is over.
    pub(super) fn put_off(&mut self, task: &str, now: Instant, pause: Duration) {
        if let Some(finished) = self.forget(task) {
            self.insert(task, FinishedTask { due: now.checked_add(pause), ..finished });
        }
    }

    /// The time for which a finished task is kept.
    pub(super) fn retention(&self) -> Duration {
        self.retention
    }

    fn insert(&mut self, task: &str, finished: FinishedTask) {
        if let Some(due) = finished.due {
            self.due.insert((due, task.to_owned()));
        }
        self.tasks.insert(task.to_owned(), finished);
    }

    /// Removes a task.
    pub(super) fn remove(&mut self, task: &str) {
        self.forget(task);
    }

    fn forget(&mut self, task: &str) -> Option<FinishedTask> {
        let finished = self.tasks.remove(task)?;
        if let Some(due) = finished.due {
            self.due.remove(&(due, task.to_owned()));
        }
        Some(finished)
    }

    /// Prepares for a new report of all existing tasks, which [`Finished::end_reload`] ends.
    pub(super) fn begin_reload(&mut self) {
        self.unconfirmed = self.tasks.keys().cloned().collect();
    }

    /// Forgets the tasks that were not reported anew, and returns them.
    pub(super) fn end_reload(&mut self) -> BTreeSet<String> {
        let gone = std::mem::take(&mut self.unconfirmed);
        for task in &gone {
            self.forget(task);
        }
        gone
    }

    /// Returns the next task whose removal is due. The task stays known: [`Finished::put_off`]
    /// follows, or [`Finished::remove`] when the store reports that its node is gone.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<String> {
        let (at, _) = self.due.first()?;
        if *at > now {
            return None;
        }
        let (_, task) = self.due.pop_first()?;
        if let Some(finished) = self.tasks.get_mut(&task) {
            finished.due = None;
        }
        Some(task)
    }

    /// The time of the next removal.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }
}

/// Serializes the node of a task that is finished since this date.
pub(super) fn ended_at(date: Duration) -> Bytes {
    let ended = u64::try_from(date.as_millis()).unwrap_or(u64::MAX);
    format!("{{\"ended\":{ended}}}").into()
}

/// Reads the date in the node of a finished task. Nodes of earlier versions have none, and an event
/// need not contain it.
fn ended_of(node: &Node) -> Option<Duration> {
    let EndDate { ended } = decode(&node.path, &node.data).ok()?;
    Some(Duration::from_millis(ended))
}

#[cfg(test)]
mod tests {
    use synod_core::clock;
    use synod_core::path::Path;
    use synod_core::store::{Stat, Version};

    use super::*;

    const HOUR: Duration = Duration::from_secs(60 * 60);
    const MINUTE: Duration = Duration::from_secs(60);
    const TODAY: Duration = Duration::from_secs(1_800_000_000);

    fn bare(task: &str) -> Node {
        Node::new(Path::new(&format!("/done/{task}")).expect("valid"))
    }

    fn node(task: &str, created: u64, ended: Duration) -> Node {
        let created = Revision::new(created);
        bare(task).with(ended_at(ended), Stat::new(created, created, Version::new(0), None))
    }

    #[test]
    fn the_retention_begins_at_the_date_of_the_end_or_when_the_end_is_seen() {
        let (mut finished, now) = (Finished::new(HOUR), clock::now());
        finished.add(&node("dated", 1, TODAY.saturating_sub(50 * MINUTE)), now, TODAY);
        finished.add(&node("long ago", 2, Duration::ZERO), now, TODAY);
        finished.add(&node("yet to come", 3, 2 * TODAY), now, TODAY);
        finished.add(&bare("not dated"), now, TODAY);

        let reached = |finished: &mut Finished, minutes: u32| {
            let mut all = Vec::new();
            while let Some(task) = finished.pop_due(now + minutes * MINUTE) {
                all.push(task);
            }
            all
        };
        assert_eq!(reached(&mut finished, 0), ["long ago"]);
        assert_eq!(finished.next_due(), Some(now + 10 * MINUTE));
        assert_eq!(reached(&mut finished, 10), ["dated"]);
        assert!(reached(&mut finished, 59).is_empty());
        assert_eq!(reached(&mut finished, 60), ["not dated", "yet to come"]);
        assert_eq!(finished.next_due(), None);
    }

    #[test]
    fn a_new_report_does_not_restart_the_retention() {
        let (mut finished, now) = (Finished::new(HOUR), clock::now());
        for task in ["bare", "gone"] {
            finished.add(&bare(task), now, TODAY);
        }
        for (task, created) in [("same", 1), ("other", 2), ("ahead", 3)] {
            finished.add(&node(task, created, 2 * TODAY), now, TODAY);
        }
        let (later, date) = (now + 30 * MINUTE, TODAY + 30 * MINUTE);

        finished.begin_reload();
        finished.add(&node("bare", 9, 2 * TODAY), later, date);
        finished.add(&node("same", 1, 2 * TODAY), later, date);
        finished.add(&node("other", 7, date), later, date);
        finished.add(&bare("ahead"), later, date);
        assert_eq!(finished.end_reload(), BTreeSet::from(["gone".to_owned()]));

        let mut all = Vec::new();
        while let Some(task) = finished.pop_due(now + 60 * MINUTE) {
            all.push(task);
        }
        assert_eq!(all, ["ahead", "bare", "same"]);
        assert_eq!(finished.next_due(), Some(now + 90 * MINUTE), "a later task of its name");
    }

    #[test]
    fn a_delayed_removal_is_due_again() {
        let (mut finished, now) = (Finished::new(Duration::ZERO), clock::now());
        finished.add(&bare("a"), now, TODAY);
        assert_eq!(finished.pop_due(now).as_deref(), Some("a"));
        assert_eq!(finished.pop_due(now), None, "its removal is in flight");
        finished.add(&bare("a"), now, TODAY);
        assert_eq!(finished.next_due(), None, "it is still in flight");
        finished.put_off("a", now, MINUTE);
        assert_eq!((finished.pop_due(now), finished.next_due()), (None, Some(now + MINUTE)));
        finished.remove("a");
        finished.put_off("a", now, Duration::ZERO);
        assert_eq!((finished.pop_due(now + MINUTE), finished.next_due()), (None, None));
    }

    #[test]
    fn the_longest_retention_never_ends() {
        let now = clock::now();
        let mut finished = Finished::new(Duration::MAX);
        finished.add(&node("a", 1, Duration::ZERO), now, TODAY);
        finished.put_off("a", now, Duration::MAX);
        assert_eq!((finished.pop_due(now + 24 * HOUR), finished.next_due()), (None, None));
    }
}
