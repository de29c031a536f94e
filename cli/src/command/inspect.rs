//! `inspect`: lists holders and waiters, at a path or at all paths below it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::SystemTime;

use serde_json::{Value, json};
use synod::Path;
use synod::lock::{Claim, Contender, inspect, is_ticket};
use synod::{Client, Query, Result};

use crate::args::Common;
use crate::command::connect;
use crate::command::list::name;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;
use crate::walk::Walk;

/// Limit of the nodes that are searched for locks if there is none at the path itself.
const NEARBY: usize = 1_000;

/// Limit of the locks below a path that are named if there is none at the path itself.
const NAMED: usize = 20;

pub(crate) async fn run(common: &Common, path: &Path) -> Result<(), Failure> {
    let client = connect(common).await?;
    let found = Progress::waiting("reading", look(&client, path)).await;
    client.close().await?;
    match found? {
        Found::Contenders(line) if common.json => print(common, path, &line),
        Found::Contenders(line) => Ok(output::line(&text_of(path, &line))?),
        _ if common.json => Ok(()),
        Found::Free => Ok(output::line(&format!("{path}: free"))?),
        Found::Nothing => Ok(output::line(&format!(
            "{path}: free; nothing is at this path now, nor below it: is it spelled right?"
        ))?),
        Found::Below { locks, more } => {
            let more = if more { ", and more: see inspect -r" } else { "" };
            let locks = locks.join(", ");
            Ok(output::line(&format!("{path}: no lock is here; below: {locks}{more}"))?)
        }
    }
}

/// The state of a path.
enum Found {
    Contenders(Vec<Contender>),
    /// Nobody holds or waits here, nor below.
    Free,
    /// There is no node at the path or below it. A store may keep the directory of a lock that was
    /// used before.
    Nothing,
    /// The path is a directory of locks, with their summaries.
    Below {
        locks: Vec<String>,
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
    let (mut search, mut locks) = (Search::new(client, path, NEARBY).await?, Vec::new());
    while let Some((lock, line)) = search.next().await? {
        if locks.len() == NAMED {
            return Ok(Found::Below { locks, more: true });
        }
        let below = lock.relative_to(path).map(|below| below.to_string());
        let below = below.as_deref().map_or("/", |below| below.trim_start_matches('/'));
        locks.push(format!("{below} ({})", summary(&line)));
    }
    let more = search.is_cut();
    Ok(if locks.is_empty() && !more { Found::Free } else { Found::Below { locks, more } })
}

/// `inspect -r`: prints each lock as it is found.
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
    let (mut search, mut is_free) = (Search::new(client, path, limit).await?, true);
    while let Some((lock, line)) = Progress::waiting("searching", search.next()).await? {
        is_free = false;
        print(common, &lock, &line)?;
    }
    if search.is_cut() {
        output::warning(&format!(
            "{limit} nodes were searched, and there are more; say --limit N for more of them"
        ));
    } else if is_free && !common.json {
        output::line(&format!("{path}: nobody holds or waits here, nor below"))?;
    }
    Ok(())
}

/// A search for locks below a path.
struct Search<'a> {
    client: &'a Client,
    walk: Walk,
    /// The number of nodes that may still be searched.
    left: usize,
    is_cut: bool,
}

impl<'a> Search<'a> {
    async fn new(client: &'a Client, path: &Path, limit: usize) -> Result<Self, Failure> {
        let walk = Walk::names_only(client.session().await?, path);
        Ok(Self { client, walk, left: limit, is_cut: false })
    }

    /// The next path with contenders, and these.
    async fn next(&mut self) -> Result<Option<(Path, Vec<Contender>)>, Failure> {
        while let Some(visit) = self.walk.next().await? {
            if self.left == 0 {
                self.is_cut = true;
                return Ok(None);
            }
            self.left -= 1;
            let line = if visit.children.iter().any(is_ticket) {
                inspect(self.client, &visit.path).await?
            } else {
                Vec::new()
            };
            // Nothing is below a ticket. A container may have the name of one.
            let is_other = |child: &Path| line.iter().all(|one| one.path != *child);
            let children = visit.children.into_iter().map(|child| child.path);
            self.walk.descend(children.filter(is_other).collect());
            if !line.is_empty() {
                return Ok(Some((visit.path, line)));
            }
        }
        Ok(None)
    }

    /// Returns `true` if the search ended at its limit.
    fn is_cut(&self) -> bool {
        self.is_cut
    }
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
fn text_of(path: &Path, line: &[Contender]) -> String {
    let rows: Vec<[String; 6]> = line.iter().map(row).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..5).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = format!("{path}: {}", summary(line));
    for row in &rows {
        text.push('\n');
        for (cell, width) in row.iter().zip(widths.iter().chain([&0])) {
            text = format!("{text}  {cell:<width$}");
        }
        text.truncate(text.trim_end().len());
    }
    text
}

/// The numbers of holders and waiters.
fn summary(line: &[Contender]) -> String {
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

/// One contender of a lock as JSON.
fn object(lock: &Path, one: &Contender) -> Value {
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
