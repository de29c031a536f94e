//! [`ScheduleState`]: the last run of a schedule and its next date, for people and tools.

use std::time::SystemTime;

use crate::schedule::record::{RunRecord, ScheduleRecord};
use crate::schedule::timetable::as_date;

/// The state of a [`Schedule`](crate::schedule::Schedule), as its last leader has stored it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleState {
    /// The text of the [`Timetable`](crate::schedule::Timetable) of the last leader.
    pub timetable: String,
    /// The date of the next run. It has passed if no process has led since, or if the last run
    /// takes that long. `None` if there is no such date.
    pub next: Option<SystemTime>,
    /// The last run; `None` before the first.
    pub last: Option<LastRun>,
    /// The date of the last run that succeeded; `None` if there is none.
    pub succeeded: Option<SystemTime>,
}

/// The last run of a [`Schedule`](crate::schedule::Schedule).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastRun {
    /// The date of the run.
    pub due: SystemTime,
    /// The number of the last attempt, beginning with 1.
    pub attempt: u32,
    /// The label of the process that began the attempt.
    pub by: String,
    /// The beginning of the attempt, by the clock of that process.
    pub begun: SystemTime,
    /// The end of the attempt, by the clock of that process. `None` if the attempt is running, or
    /// its process has lost the lead.
    pub ended: Option<SystemTime>,
    /// The beginning of the text of the error, if the attempt failed.
    pub failure: Option<String>,
}

impl ScheduleState {
    pub(super) fn of(record: ScheduleRecord) -> Self {
        let ScheduleRecord { timetable, next, succeeded, run, .. } = record;
        let last = run.map(LastRun::of);
        Self { timetable, next: date(next), last, succeeded: date(succeeded) }
    }
}

impl LastRun {
    fn of(run: RunRecord) -> Self {
        let RunRecord { due, attempt, by, begun, ended, failure, .. } = run;
        Self { due: as_date(due), attempt, by, begun: as_date(begun), ended: date(ended), failure }
    }
}

/// The date of these milliseconds. Zero is none.
fn date(millis: u64) -> Option<SystemTime> {
    (millis > 0).then(|| as_date(millis))
}
