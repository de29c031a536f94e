//! The row of crews.

use std::convert::Infallible;
use std::pin::pin;

use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_recipes::{Crew, CrewWorker, TaskEnd};

use crate::recipe::row::{Leaves, Part, Row, made};
use crate::recipe::usage::{Act, Use};

pub(super) const CREW: Row = Row {
    name: "Crew",
    module: "crew",
    cases: "crew",
    stair: Some("line"),
    make: |client, path| made(Crew::new(&client, path)),
    shown: "Crew { path: /shown, .. }",
    leaves: Leaves::Nodes,
    dirs: &["master", "workers", "todo", "assigned", "attempts", "done"],
    uses: &[Use {
        name: "crew",
        act: Act::Change {
            change: |client, path| Box::pin(async move { does_a_task(&client, &path).await }),
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

/// Submits a task, and is the master and the worker that does it.
async fn does_a_task(client: &Client, path: &Path) -> Result<()> {
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
