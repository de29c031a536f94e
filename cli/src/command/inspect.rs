//! `inspect`: lists holders and waiters, and the state of other recipes, at a path or below it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::SystemTime;

use serde_json::{Value, json};
use synod::Path;
use synod::lock::{Claim, Contender, inspect};
use synod::{Client, Query};
use synod_view::item::Item;
use synod_view::survey::Survey;

use crate::args::Common;
use crate::command::list::name;
use crate::command::{connect, item_shown};
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

/// Limit of the nodes that are searched for recipes if there is none at the path itself.
const NEARBY: usize = 1_000;

/// Limit of the recipes below a path that are named if there is none at the path itself.
const NAMED: usize = 20;

pub(crate) async fn run(common: &Common, path: &Path) -> Result<(), Failure> {
    let client = connect(common).await?;
    let found = Progress::waiting("reading", look(&client, path)).await;
    client.close().await?;
    match found? {
        Found::Contenders(line) if common.json => print(common, path, &line),
        Found::Contenders(line) => Ok(output::line(&text_of(path, &line))?),
        Found::Item(item) => print_item(common, &item),
        _ if common.json => Ok(()),
        Found::Free => Ok(output::line(&format!("{path}: free"))?),
        Found::Nothing => Ok(output::line(&format!(
            "{path}: free; nothing is at this path now, nor below it: is it spelled right?"
        ))?),
        Found::Below { items, more } => {
            let more = if more { ", and more: see inspect -r" } else { "" };
            let items = items.join(", ");
            Ok(output::line(&format!("{path}: no lock is here; below: {items}{more}"))?)
        }
    }
}

/// The state of a path.
enum Found {
    Contenders(Vec<Contender>),
    /// Another recipe is at the path.
    Item(Box<Item>),
    /// Nobody holds or waits here, nor below.
    Free,
    /// There is no node at the path or below it. A store may keep the directory of a lock that was
    /// used before.
    Nothing,
    /// The path is a directory of recipes, with their summaries.
    Below {
        items: Vec<String>,
        more: bool,
    },
}

async fn look(client: &Client, path: &Path) -> Result<Found, Failure> {
    let line = inspect(client, path).await?;
    if !line.is_empty() {
        return Ok(Found::Contenders(line));
    }
    if client.read(Query::children(path).names_only()).await?.nodes.is_empty() {
        let is_there = client.exists(path).await?;
        return Ok(if is_there { Found::Free } else { Found::Nothing });
    }
    let (mut survey, mut items) = (Survey::new(client, path, NEARBY).await?, Vec::new());
    while let Some(item) = survey.next().await? {
        if item.path == *path {
            return Ok(Found::Item(Box::new(item)));
        }
        if items.len() == NAMED {
            return Ok(Found::Below { items, more: true });
        }
        let below = item.path.relative_to(path).map(|below| below.to_string());
        let below = below.as_deref().map_or("/", |below| below.trim_start_matches('/'));
        items.push(format!("{below} ({})", item_shown::summary(&item)));
    }
    let more = survey.is_cut();
    Ok(if items.is_empty() && !more { Found::Free } else { Found::Below { items, more } })
}

/// `inspect -r`: prints each recipe as it is found.
pub(crate) async fn below(common: &Common, path: &Path, limit: usize) -> Result<(), Failure> {
    let client = connect(common).await?;
    let printed = print_below(common, &client, path, limit).await;
    client.close().await?;
    printed
}

async fn print_below(
    common: &Common,
    client: &Client,
    path: &Path,
    limit: usize,
) -> Result<(), Failure> {
    let (mut survey, mut is_free) = (Survey::new(client, path, limit).await?, true);
    while let Some(item) = Progress::waiting("searching", survey.next()).await? {
        is_free = false;
        print_item(common, &item)?;
    }
    if survey.is_cut() {
        output::warning(&format!(
            "{limit} nodes were searched, and there are more; say --limit N for more of them"
        ));
    } else if is_free && !common.json {
        output::line(&format!("{path}: nobody holds or waits here, nor below"))?;
    }
    Ok(())
}

fn print_item(common: &Common, item: &Item) -> Result<(), Failure> {
    if !common.json {
        return Ok(output::line(&item_shown::text(item))?);
    }
    for object in item_shown::objects(item) {
        output::object(&object)?;
    }
    Ok(())
}

/// Prints the contenders at a path.
fn print(common: &Common, path: &Path, line: &[Contender]) -> Result<(), Failure> {
    if !common.json {
        return Ok(output::line(&text_of(path, line))?);
    }
    for one in line {
        output::object(&object(path, one))?;
    }
    Ok(())
}

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
