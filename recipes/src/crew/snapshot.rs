//! [`CrewSnapshot`]: a consistent snapshot of a crew.

use std::collections::BTreeMap;

use synod_core::path::Path;
use synod_core::store::{Node, View};
use synod_core::value::decode;

use crate::crew::attempt_record::{AttemptsRecord, CrewAttempt, record_of};
use crate::crew::layout::CrewSwitch;
use crate::crew::task_record::{TaskRecord, TaskStatus};
use crate::crew::worker::{CrewWorker, WorkerRecord};
use crate::support::names::decoded_name;

/// A consistent snapshot of a crew: its workers, its tasks, and the assignments.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CrewSnapshot {
    /// True if the crew is paused.
    pub paused: bool,
    /// The registered workers, by their names.
    pub workers: Vec<ShownWorker>,
    /// The open tasks, and the finished ones that are still kept, by their ids.
    pub tasks: Vec<ShownTask>,
}

/// A worker in a [`CrewSnapshot`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShownWorker {
    /// The name of the worker. No other worker ever has the same name.
    pub name: String,
    /// The capacity and the properties of the worker.
    pub offers: CrewWorker,
    /// True if the worker is drained.
    pub drained: bool,
}

/// A task in a [`CrewSnapshot`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShownTask {
    /// The id of the task.
    pub id: String,
    /// The status of the task.
    pub status: TaskStatus,
    /// The name of the worker that has the task. That worker may be lost.
    pub worker: Option<String>,
    /// The attempts at the task, as in a [`TaskHistory`](crate::crew::TaskHistory).
    pub attempts: Vec<CrewAttempt>,
    /// The number of earlier attempts, which are not kept.
    pub earlier: u32,
}

impl CrewSnapshot {
    /// Reads the crew at `crew` from a view of its whole subtree. Other nodes are skipped.
    pub(super) fn of(crew: &Path, view: &View) -> Self {
        let mut snapshot = Self::default();
        let mut holders: BTreeMap<&str, &str> = BTreeMap::new();
        let mut attempts: BTreeMap<&str, AttemptsRecord> = BTreeMap::new();
        let below = crew.segments().count();
        let all = || view.nodes.iter().filter(|node| node.stat.is_some());
        for node in all() {
            match names_below(node, below)[..] {
                ["assigned", worker, task] => drop(holders.insert(task, worker)),
                ["attempts", task] => drop(attempts.insert(task, record_of(node))),
                _ => {}
            }
        }
        for node in all() {
            match names_below(node, below)[..] {
                ["switch"] => {
                    snapshot.paused =
                        decode(&node.path, &node.data).is_ok_and(|it: CrewSwitch| it.paused);
                }
                ["workers", _] => snapshot.workers.extend(ShownWorker::of(node)),
                ["tasks", name] => {
                    let attempts = attempts.remove(name).unwrap_or_default();
                    snapshot.tasks.extend(ShownTask::of(
                        node,
                        holders.get(name).copied(),
                        attempts,
                    ));
                }
                _ => {}
            }
        }
        snapshot
    }
}

/// Returns the names on the path from the crew to a node.
fn names_below(node: &Node, below: usize) -> Vec<&str> {
    node.path.segments().skip(below).collect()
}

impl ShownWorker {
    fn of(node: &Node) -> Option<Self> {
        let WorkerRecord { offers, drained, .. } = decode(&node.path, &node.data).ok()?;
        Some(Self { name: node.path.name().to_owned(), offers, drained })
    }
}

impl ShownTask {
    fn of(node: &Node, worker: Option<&str>, record: AttemptsRecord) -> Option<Self> {
        let status = match (TaskRecord::of(node).ok()?.end(), worker) {
            (Some(end), _) => TaskStatus::Over(end),
            (None, Some(_)) => TaskStatus::Assigned,
            (None, None) => TaskStatus::Waiting,
        };
        let (id, worker) = (decoded_name(node.path.name()), worker.map(str::to_owned));
        Some(Self { id, status, worker, attempts: record.attempts, earlier: record.earlier })
    }
}
