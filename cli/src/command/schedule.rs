//! `schedule`: commands that run at dates, and their last runs.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::json;
use synod::Path;
use synod::schedule::{LastRun, Schedule, ScheduleState};

use crate::args::Common;
use crate::args::schedule::ScheduleAction;
use crate::command::connect;
use crate::failure::Failure;
use crate::output;
use crate::time::date;

pub(crate) async fn run(
    common: &Common,
    path: &Path,
    action: ScheduleAction,
) -> Result<(), Failure> {
    match action {
        #[cfg(unix)]
        ScheduleAction::Run(asked) => crate::command::schedule_run::run(common, path, asked).await,
        ScheduleAction::Show => show(common, path).await,
    }
}

async fn show(common: &Common, path: &Path) -> Result<(), Failure> {
    let client = connect(common).await?;
    let state = Schedule::state_of(&client, path).await?;
    let Some(state) = state else {
        return Err(Failure::NotThere(format!("no process has run the schedule {path}")));
    };
    if common.json { Ok(output::object(&object(path, &state))?) } else { print(&state) }
}

fn print(state: &ScheduleState) -> Result<(), Failure> {
    let next = state.next.map_or_else(|| "-".to_owned(), date);
    output::line(&format!("dates  {}", dates(&state.timetable)))?;
    output::line(&format!("next   {next}"))?;
    if let Some(last) = &state.last {
        output::line(&format!("last   {}", line(last)))?;
    }
    let succeeded = state.succeeded.map_or_else(|| "-".to_owned(), date);
    Ok(output::line(&format!("done   {succeeded}"))?)
}

/// The end of the year 9999, in milliseconds since 1970: the last date that is shown.
const LAST_MILLIS: u64 = 253_402_300_799_999;

/// The text of a timetable. The record has a single date in milliseconds.
fn dates(timetable: &str) -> String {
    let single = timetable.strip_prefix("at ").and_then(|millis| millis.parse().ok());
    let single = single.filter(|millis| *millis <= LAST_MILLIS);
    let single = single.and_then(|millis| UNIX_EPOCH.checked_add(Duration::from_millis(millis)));
    single.map_or_else(
        || timetable.escape_debug().to_string(),
        |single| format!("at {}", date(single)),
    )
}

fn line(last: &LastRun) -> String {
    let end = match (last.ended, &last.failure) {
        (None, _) => "has not ended".to_owned(),
        (Some(ended), None) => format!("done {}", date(ended)),
        (Some(ended), Some(why)) => format!("failed {}  {}", date(ended), why.escape_debug()),
    };
    let by = last.by.escape_debug();
    format!(
        "{}  attempt {}  begun {} by {by}  {end}",
        date(last.due),
        last.attempt,
        date(last.begun)
    )
}

fn object(path: &Path, state: &ScheduleState) -> serde_json::Value {
    let last = state.last.as_ref().map(|last| {
        json!({
            "due": date(last.due),
            "attempt": last.attempt,
            "by": last.by,
            "begun": date(last.begun),
            "ended": last.ended.map(date),
            "failure": last.failure,
        })
    });
    json!({
        "path": path.as_str(),
        "timetable": state.timetable,
        "next": state.next.map(date),
        "last": last,
        "succeeded": state.succeeded.map(date),
    })
}
