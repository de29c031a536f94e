//! The row of schedules.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_recipes::schedule::{Schedule, ScheduledRun, Timetable};
use tokio::sync::Notify;

use crate::edges;
use crate::recipe::row::{Kind, Leaves, Part, Row, made};
use crate::recipe::usage::{Act, LABEL, Use};

pub(super) const KIND: Kind = Kind {
    rows: &[SCHEDULE],
    laws: &[
        (
            "L-SCH-1",
            "a date of a schedule begins at most as many attempts as permitted, one by default, and none after its success",
        ),
        (
            "L-SCH-2",
            "no two runs of a schedule overlap, and a run that has ended or lost its lead writes nothing under its guard",
        ),
        (
            "L-SCH-3",
            "while a process is connected each date of a schedule has a run, except for missed dates that are not to be caught up",
        ),
        (
            "L-SCH-4",
            "a run that failed, or whose leader is lost, has another attempt while attempts are permitted",
        ),
        ("L-SCH-5", "a first start and another timetable run no date that has passed"),
        ("L-SCH-6", "the dates that a wrong clock passed over have their runs at their time"),
        (
            "L-SCH-7",
            "a schedule that is stopped finishes its run, and another process leads at once",
        ),
    ],
    kept: &[],
};

const SCHEDULE: Row = Row {
    name: "Schedule",
    module: "schedule",
    cases: "schedule",
    stair: Some("line"),
    make: |client, path| made(Schedule::new(&client, path, often())),
    shown: "Schedule { path: /shown, timetable: Timetable(every 1ms), .. }",
    leaves: Leaves::Nodes,
    dirs: &["", "leader"],
    takes: edges::schedule::SCHEDULE,
    uses: &[Use {
        name: "schedule",
        act: Act::Change {
            change: |client, path| Box::pin(async move { run_once(&client, &path).await }),
            measured: false,
        },
        outlasts: true,
    }],
    workloads: Part::Has(&["schedule"]),
    faults: Part::None("its leader is that of `LeaderSelector`; the simulator has the same faults"),
    interop: Part::None("no other library has this recipe"),
    bench: Part::None("a run is two single transactions, which are measured"),
    family: None,
};

fn often() -> Timetable {
    Timetable::every(Duration::from_millis(1))
}

/// Runs a schedule until its next date.
async fn run_once(client: &Client, path: &Path) -> Result<()> {
    let (runs, stop) = (AtomicUsize::new(0), Notify::new());
    let schedule = Schedule::new(client, path, often()).label(LABEL);
    let run = |_run: ScheduledRun| {
        runs.fetch_add(1, Ordering::Relaxed);
        stop.notify_one();
        async { Ok::<_, Infallible>(()) }
    };
    schedule.run_until(stop.notified(), run).await?;
    match (runs.load(Ordering::Relaxed), schedule.state().await?.and_then(|state| state.last)) {
        (1, Some(_)) => Ok(()),
        _ => Err(Error::new(ErrorKind::Backend, "running a schedule").at(path)),
    }
}
