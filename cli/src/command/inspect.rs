//! `inspect`: lists holders and waiters.

use std::fmt::Write as _;
use std::time::SystemTime;

use serde_json::{Value, json};
use synod::Path;
use synod::lock::{Claim, Contender, inspect};
use synod::{Client, Query, Result};

use crate::args::Common;
use crate::command::connect;
use crate::command::list::name;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

pub(crate) async fn run(common: &Common, path: &Path) -> Result<(), Failure> {
    let client = connect(common).await?;
    let line = Progress::waiting("reading", inspect(&client, path)).await;
    let unused = match &line {
        Ok(line) if line.is_empty() => is_unused(&client, path).await,
        _ => Ok(false),
    };
    client.close().await?;
    let (line, unused) = (line?, unused?);
    if common.json {
        for one in &line {
            output::object(&object(one))?;
        }
        return Ok(());
    }
    if unused {
        return Ok(output::line(&format!(
            "{path}: free; nothing is at this path now, nor below it: is it spelled right?"
        ))?);
    }
    Ok(output::line(&text_of(path, &line))?)
}

/// Returns `true` if there is no node at the path or below it. A store may keep the directory of a
/// lock that was used before.
async fn is_unused(client: &Client, path: &Path) -> Result<bool> {
    Ok(client.read(Query::subtree(path).names_only()).await?.nodes.is_empty())
}

/// The text for a person: a summary, then a row for each contender.
fn text_of(path: &Path, line: &[Contender]) -> String {
    if line.is_empty() {
        return format!("{path}: free");
    }
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
    let rows: Vec<[String; 6]> = line.iter().map(row).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..5).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = format!("{path}: {}", summary.join(", "));
    for row in &rows {
        text.push('\n');
        for (cell, width) in row.iter().zip(widths.iter().chain([&0])) {
            text = format!("{text}  {cell:<width$}");
        }
        text.truncate(text.trim_end().len());
    }
    text
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
fn date(since: SystemTime) -> Option<String> {
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

/// One contender as JSON.
fn object(one: &Contender) -> Value {
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
        "token": one.token.to_string(),
        "since": one.since.and_then(date),
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
