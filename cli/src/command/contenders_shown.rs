//! Texts and JSON that show the contenders of a lock, a semaphore or an election.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::SystemTime;

use serde_json::{Value, json};
use synod::Path;
use synod::lock::{Claim, Contender};

use crate::command::list::name;
use crate::output;

/// The text for a person: a summary, then a row for each contender.
pub(super) fn text_of(path: &Path, line: &[Contender]) -> String {
    let head = format!("{path}: {}", summary(line));
    rows(line).iter().fold(head, |text, row| format!("{text}\n  {row}"))
}

/// A row for each contender, in columns.
pub(super) fn rows(line: &[Contender]) -> Vec<String> {
    let rows: Vec<[String; 6]> = line.iter().map(row).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..5).map(|column| width(column).unwrap_or(0)).collect();
    let text = |row: &[String; 6]| {
        let cells = row.iter().zip(widths.iter().chain([&0]));
        let cells = cells.map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(text).collect()
}

/// The numbers of holders and waiters.
pub(super) fn summary(line: &[Contender]) -> String {
    let count = |state| line.iter().filter(|one| one.holds == state).count();
    let mut summary = Vec::new();
    for (number, verb) in [(count(Some(true)), "hold"), (count(Some(false)), "wait")] {
        match number {
            0 => {}
            1 => summary.push(format!("1 {verb}s")),
            _ => summary.push(format!("{number} {verb}")),
        }
    }
    if count(None) > 0 {
        let some = count(None);
        summary.push(format!("{some} for permits, whose limit the store does not record"));
    }
    let limits: BTreeSet<u32> = line.iter().filter_map(|one| one.limit).collect();
    if limits.len() > 1 {
        let limits: Vec<_> = limits.iter().map(u32::to_string).collect();
        summary.push(format!("but their limits differ: {}", limits.join(" and ")));
    }
    summary.join(", ")
}

fn row(one: &Contender) -> [String; 6] {
    let session = one.owner.map_or_else(|| "no session".to_owned(), |id| format!("session {id}"));
    let claim = match one.claim {
        Claim::Alone => "alone".to_owned(),
        Claim::Shared => "shared".to_owned(),
        Claim::Permits(1) => "1 permit".to_owned(),
        Claim::Permits(permits) => format!("{permits} permits"),
        _ => "?".to_owned(),
    };
    let label = match output::glimpse(&one.label) {
        label if label.is_empty() => name(&one.path),
        label => label,
    };
    let since = one.since.and_then(date).unwrap_or_else(|| "?".to_owned());
    let (token, since) = (format!("token {}", one.token), format!("since {since}"));
    [state(one).to_owned(), token, since, claim, session, label]
}

/// A date as text, if the year can be written with four digits: the label of another client can
/// contain any number.
pub(super) fn date(since: SystemTime) -> Option<String> {
    let mut text = String::new();
    let written = write!(text, "{}", humantime::format_rfc3339_seconds(since));
    written.is_ok().then_some(text)
}

fn state(one: &Contender) -> &'static str {
    match one.holds {
        Some(true) => "holds",
        Some(false) => "waits",
        None => "stands",
    }
}

/// One contender of a lock as JSON.
pub(super) fn object(lock: &Path, one: &Contender) -> Value {
    let claim = match one.claim {
        Claim::Alone => "alone",
        Claim::Shared => "shared",
        _ => "permits",
    };
    let permits = if let Claim::Permits(permits) = one.claim { Some(permits) } else { None };
    let (key, label) = output::label(&one.label);
    json!({
        "state": state(one),
        "claim": claim,
        "permits": permits,
        "limit": one.limit,
        "token": one.token.to_string(),
        "since": one.since.and_then(date),
        "lock": lock.as_str(),
        "path": one.path.as_str(),
        "session": one.owner.map(|owner| owner.to_string()),
        key: label,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_number_that_is_no_date_is_not_printed_as_one() {
        let at = |seconds| date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(1_795_301_389).as_deref(), Some("2026-11-21T22:49:49Z"));
        // The largest time that the name of a ticket can encode is in the year 10889.
        assert_eq!(at((1 << 48) / 1000), None);
    }
}
