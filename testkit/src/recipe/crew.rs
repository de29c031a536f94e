//! The row of crews.

use std::convert::Infallible;
use std::pin::pin;

use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_recipes::crew::{Crew, CrewWorker, TaskEnd};

use crate::edges;
use crate::recipe::row::{Kind, Leaves, Part, Row, made};
use crate::recipe::usage::{Act, Use};

pub(super) const KIND: Kind = Kind {
    rows: &[CREW],
    laws: &[
        ("L-MW-1", "every submitted task gets exactly one accepted result"),
        ("L-MW-2", "a result is accepted only from the worker that has the task"),
        (
            "L-MW-3",
            "the tasks of a lost worker are assigned again, and those of a live one are not",
        ),
        ("L-MW-4", "no task is lost when a master ends between two steps"),
        ("L-MW-5", "a replaced master assigns and completes no task"),
        ("L-MW-6", "a task that is submitted again under its id is the same task"),
        ("L-MW-7", "the result of a task reaches every client that waits for it"),
        (
            "L-MW-8",
            "after the cancellation of a task no result is accepted, or the earlier result is returned",
        ),
        ("L-MW-9", "no node of a finished task is left after its retention"),
        (
            "L-MW-10",
            "tasks are assigned by their priority, to workers that have the required capabilities and are not full",
        ),
        (
            "L-MW-11",
            "a failed attempt is retried up to the limit of its submitter, with growing delays",
        ),
        (
            "L-MW-12",
            "a drained worker gets no new task, in its next sessions too, and keeps its current tasks",
        ),
        ("L-MW-13", "no task is assigned while the crew is paused"),
        ("L-MW-14", "a snapshot of a crew is consistent"),
        (
            "L-MW-15",
            "a task goes to the worker that the policy of the master selects among the eligible workers",
        ),
        (
            "L-MW-16",
            "a task that has not finished by its deadline expires, and no result of it is accepted afterwards",
        ),
        (
            "L-MW-17",
            "progress is accepted only from the worker that has the task, and reaches every follower of the task",
        ),
        ("L-MW-18", "the history of a task has each finished attempt, with its worker and its end"),
        ("L-MW-19", "no task ends a worker or a master, whatever its data and its work"),
        (
            "L-MW-20",
            "a worker that is stopped finishes the tasks that it has, and gets no other task",
        ),
        ("L-MW-21", "an assignment is held until its attempt ends or its worker loses its session"),
        (
            "L-MW-22",
            "what a result writes is written once, in the transaction that accepts the result",
        ),
        ("L-MW-23", "an attempt fails once it has taken longer than the limit of its submitter"),
        (
            "L-MW-24",
            "a member that is stopped leads until it has finished its tasks, and then steps down",
        ),
    ],
    kept: &[],
};

const CREW: Row = Row {
    name: "Crew",
    module: "crew",
    cases: "crew",
    stair: Some("line"),
    make: |client, path| made(Crew::new(&client, path)),
    shown: "Crew { path: /shown, .. }",
    leaves: Leaves::Nodes,
    dirs: &["master", "workers", "todo", "assigned", "attempts", "done"],
    takes: edges::crew::CREW,
    uses: &[Use {
        name: "crew",
        act: Act::Change {
            change: |client, path| Box::pin(async move { do_a_task(&client, &path).await }),
            measured: false,
        },
        outlasts: true,
    }],
    workloads: Part::Has(&["crew"]),
    faults: Part::None(
        "its workers hold nothing that excludes others; the simulator has the same faults",
    ),
    interop: Part::None("no other library has this recipe"),
    bench: Part::None("its steps are single transactions, which are measured"),
    family: None,
};

/// Submits a task, and is the master and the worker of the crew.
async fn do_a_task(client: &Client, path: &Path) -> Result<()> {
    let crew = Crew::new(client, path);
    let task = crew.submit("task", "data").await?;
    let works = crew.work(CrewWorker::new(), |task| async move { Ok::<_, Infallible>(task.data) });
    let (works, leads) = (pin!(works), pin!(crew.lead()));
    let ended = match select(pin!(task.wait()), select(works, leads)).await {
        Either::Left((end, _)) => end?,
        Either::Right((Either::Left((never, _)) | Either::Right((never, _)), _)) => match never? {},
    };
    match ended {
        Some(TaskEnd::Done(result)) if result == "data" => Ok(()),
        _ => Err(Error::new(ErrorKind::Backend, "doing a task").at(path)),
    }
}
