//! Texts that show tasks and their attempts.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use synod::crew::{AttemptEnd, CrewAttempt, TaskEnd, TaskStatus};

use crate::output;

/// Escapes control characters for a terminal.
pub(super) fn shown(text: &str) -> String {
    text.escape_debug().to_string()
}

pub(super) fn text(status: &TaskStatus) -> String {
    match status {
        TaskStatus::Over(TaskEnd::Done(result)) => {
            format!("done  {}", output::glimpse(result)).trim_end().to_owned()
        }
        TaskStatus::Over(TaskEnd::Failed(why)) => format!("failed  {}", shown(why)),
        other => state(other).to_owned(),
    }
}

fn state(status: &TaskStatus) -> &'static str {
    match status {
        TaskStatus::Waiting => "waiting",
        TaskStatus::Assigned => "assigned",
        TaskStatus::Over(TaskEnd::Done(_)) => "done",
        TaskStatus::Over(TaskEnd::Failed(_)) => "failed",
        TaskStatus::Over(TaskEnd::Cancelled) => "cancelled",
        TaskStatus::Over(TaskEnd::Expired) => "expired",
        _ => "unknown",
    }
}

pub(super) fn object(id: &str, status: &TaskStatus) -> Value {
    let mut object = json!({ "task": id, "state": state(status) });
    match status {
        TaskStatus::Over(TaskEnd::Done(result)) => {
            let (key, result) = output::data(result);
            object[key] = result;
        }
        TaskStatus::Over(TaskEnd::Failed(why)) => object["error"] = why.as_str().into(),
        _ => {}
    }
    object
}

pub(super) fn attempt_object(attempt: &CrewAttempt) -> Value {
    let mut object = json!({
        "worker": attempt.worker,
        "begun": attempt.begun.map(date),
        "progress": attempt.progress,
        "ended": attempt.ended.map(date),
        "end": attempt.end.as_ref().map(name),
    });
    if let Some(AttemptEnd::Failed(why)) = &attempt.end {
        object["error"] = why.as_str().into();
    }
    object
}

pub(super) fn attempt_line(attempt: &CrewAttempt) -> String {
    let begun = attempt.begun.map_or_else(|| "-".to_owned(), date);
    let end = match (&attempt.end, attempt.ended) {
        (Some(end), Some(ended)) => format!("{} {}", name(end), date(ended)),
        (Some(end), None) => name(end).to_owned(),
        (None, _) => "goes on".to_owned(),
    };
    let why = match &attempt.end {
        Some(AttemptEnd::Failed(why)) => format!("  {}", shown(why)),
        _ => String::new(),
    };
    let progress = attempt.progress.as_deref().map(shown).map(|it| format!("  [{it}]"));
    let progress = progress.unwrap_or_default();
    format!("attempt  {}  {begun}  {end}{why}{progress}", attempt.worker)
}

fn name(end: &AttemptEnd) -> &'static str {
    match end {
        AttemptEnd::Done => "done",
        AttemptEnd::Failed(_) => "failed",
        AttemptEnd::Lost => "lost",
        AttemptEnd::Revoked => "revoked",
        _ => "unknown",
    }
}

/// A date, given as the time since the beginning of 1970.
fn date(since: Duration) -> String {
    let date = SystemTime::UNIX_EPOCH.checked_add(since);
    // Later than any date of four digits there is nothing to show.
    let date = date.filter(|_| since < Duration::from_secs(253_402_300_800));
    date.map_or_else(|| "-".to_owned(), |date| humantime::format_rfc3339_seconds(date).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_that_cannot_be_shown_is_none() {
        assert_eq!(date(Duration::from_secs(86_400)), "1970-01-02T00:00:00Z");
        assert_eq!(
            (date(Duration::MAX), date(Duration::from_millis(u64::MAX))),
            ("-".into(), "-".into())
        );
    }
}
