//! [`CrewSnapshot`]: a crew as it was at one moment.

use std::collections::BTreeMap;

use synod_core::path::Path;
use synod_core::store::{Node, View};
use synod_core::value::decode;

use crate::crew::attempt_log::record_of;
use crate::crew::attempts_record::AttemptsRecord;
use crate::crew::crew_attempt::CrewAttempt;
use crate::crew::crew_switch::CrewSwitch;
use crate::crew::crew_task::id_of;
use crate::crew::crew_worker::CrewWorker;
use crate::crew::task_end::TaskStatus;
use crate::crew::task_record::TaskRecord;
use crate::crew::worker_record::WorkerRecord;

/// A crew as it was at one moment: its workers, its tasks, and which worker has which task.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CrewSnapshot {
    /// Whether the crew is paused.
    pub paused: bool,
    /// The workers that are there, by their names.
    pub workers: Vec<ShownWorker>,
    /// The tasks that are not over, and those that are and are still kept, by their ids.
    pub tasks: Vec<ShownTask>,
}

/// A worker in a [`CrewSnapshot`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShownWorker {
    /// Its name, which no other worker ever has.
    pub name: String,
    /// What it offers.
    pub offers: CrewWorker,
    /// Whether it was drained.
    pub drained: bool,
}

/// A task in a [`CrewSnapshot`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShownTask {
    /// Its id.
    pub id: String,
    /// Where it is.
    pub status: TaskStatus,
    /// The name of the worker that has it. That worker may be lost.
    pub worker: Option<String>,
    /// The attempts at it, as in a [`TaskHistory`](crate::TaskHistory).
    pub attempts: Vec<CrewAttempt>,
    /// How many attempts there were before these.
    pub earlier: u32,
}

impl CrewSnapshot {
    /// The crew at `crew`, in a view of all that it has. What is not of a crew is left out.
    pub(super) fn of(crew: &Path, view: &View) -> Self {
        let mut snapshot = Self::default();
        let mut holders: BTreeMap<&str, &str> = BTreeMap::new();
        let mut attempts: BTreeMap<&str, AttemptsRecord> = BTreeMap::new();
        let below = crew.segments().count();
        let all = || view.nodes.iter().filter(|node| node.stat.is_some());
        for node in all() {
            match place(node, below)[..] {
                ["assigned", worker, task] => drop(holders.insert(task, worker)),
                ["attempts", task] => drop(attempts.insert(task, record_of(node))),
                _ => {}
            }
        }
        for node in all() {
            match place(node, below)[..] {
                ["switch"] => {
                    snapshot.paused =
                        decode(&node.path, &node.data).is_ok_and(|it: CrewSwitch| it.paused);
                }
                ["workers", _] => snapshot.workers.extend(ShownWorker::of(node)),
                ["tasks", name] => {
                    let made = attempts.remove(name).unwrap_or_default();
                    snapshot.tasks.extend(ShownTask::of(node, holders.get(name).copied(), made));
                }
                _ => {}
            }
        }
        snapshot
    }
}

/// The names on the way from the crew to a node.
fn place(node: &Node, below: usize) -> Vec<&str> {
    node.path.segments().skip(below).collect()
}

impl ShownWorker {
    fn of(node: &Node) -> Option<Self> {
        let WorkerRecord { offers, drained, .. } = decode(&node.path, &node.data).ok()?;
        Some(Self { name: node.path.name().to_owned(), offers, drained })
    }
}

impl ShownTask {
    fn of(node: &Node, worker: Option<&str>, made: AttemptsRecord) -> Option<Self> {
        let status = match (TaskRecord::of(node).ok()?.end(), worker) {
            (Some(end), _) => TaskStatus::Over(end),
            (None, Some(_)) => TaskStatus::Assigned,
            (None, None) => TaskStatus::Waiting,
        };
        let (id, worker) = (id_of(node.path.name()), worker.map(str::to_owned));
        Some(Self { id, status, worker, attempts: made.attempts, earlier: made.earlier })
    }
}
