//! [`Table`]: the results of all races, for a person.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::record::{Case, Count, Fact, Record};
use crate::report::Report;
use crate::spread::Spread;
use crate::task::Measure;

/// The racer that the others are compared with.
pub const OURS: &str = "ours";
/// The clients that a user could choose instead.
const PEERS: [&str; 3] = ["curator", "kazoo", "go"];

/// All results, by row and column.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: BTreeMap<Case, BTreeMap<String, Cell>>,
}

/// The results of one racer in one row.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// The report of each round.
    pub rounds: BTreeMap<usize, Report>,
    /// The requests of a lap.
    pub count: Option<Count>,
    /// The reason for the failure.
    pub failed: Option<String>,
}

impl Table {
    /// The table of these records.
    pub fn of<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut table = Self::default();
        for record in records {
            let row = table.rows.entry(record.case.clone()).or_default();
            let cell = row.entry(record.racer.clone()).or_default();
            match &record.fact {
                Fact::Round(round, report) => drop(cell.rounds.insert(*round, *report)),
                Fact::Count(count) => cell.count = Some(*count),
                Fact::Failed(why) => cell.failed = Some(why.clone()),
            }
        }
        table
    }

    /// The cases, in order.
    pub fn rows(&self) -> impl Iterator<Item = (&Case, &BTreeMap<String, Cell>)> {
        self.rows.iter()
    }

    /// The failures, with their reasons.
    pub fn failures(&self) -> impl Iterator<Item = String> {
        self.rows.iter().flat_map(|(case, row)| {
            row.iter().filter_map(move |(racer, cell)| {
                let why = cell.failed.as_ref()?;
                Some(format!("{} of {racer} on {} failed: {why}", case.work, case.server))
            })
        })
    }
}

impl Cell {
    /// The median of some number over all rounds.
    pub fn median(&self, number: impl Fn(&Report) -> Option<f64>) -> Option<f64> {
        let all: Vec<f64> = self.rounds.values().filter_map(number).collect();
        (!all.is_empty()).then(|| Spread::of(all).median)
    }

    /// Returns the factor by which this racer is faster than the other, in each round.
    pub fn times_faster(&self, other: &Self, measure: Measure) -> Option<Spread> {
        let ratios: Vec<f64> = self
            .rounds
            .iter()
            .filter_map(|(round, own)| {
                let other = other.rounds.get(round)?;
                Some(other.cost(measure) / own.cost(measure))
            })
            .collect();
        (!ratios.is_empty()).then(|| Spread::of(ratios))
    }
}

impl fmt::Display for Table {
    /// A table for each server, with the figures for a reader who chooses a library. The rest is in
    /// [`summary`](crate::summary::summary).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: BTreeSet<String> = self.rows.keys().map(Case::stand).collect();
        for (place, server) in servers.iter().enumerate() {
            let rows: Vec<_> =
                self.rows.iter().filter(|(case, _)| case.stand() == *server).collect();
            let has_peers = rows.iter().any(|(case, row)| best_peer(case, row).is_some());
            let mut lines = vec![head(has_peers)];
            lines.extend(rows.iter().filter_map(|(case, row)| line(case, row, has_peers)));
            let gap = if place == 0 { "" } else { "\n" };
            writeln!(f, "{gap}### {server}\n")?;
            write_aligned(f, lines)?;
        }
        Ok(())
    }
}

fn write_aligned(f: &mut fmt::Formatter<'_>, mut lines: Vec<Vec<String>>) -> fmt::Result {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..lines[0].len()).map(|column| width(column).unwrap_or(0)).collect();
    lines.insert(1, widths.iter().map(|width| "-".repeat(*width)).collect());
    for line in lines {
        for (text, width) in line.iter().zip(&widths) {
            write!(f, "| {text:width$} ")?;
        }
        writeln!(f, "|")?;
    }
    Ok(())
}

fn head(has_peers: bool) -> Vec<String> {
    let first = ["work", "clients", "synod"];
    let peers: &[&str] = if has_peers { &["best peer", "synod : peer"] } else { &["half within"] };
    let all = first.iter().chain(peers).chain(&["requests"]);
    all.map(|&title| title.to_owned()).collect()
}

fn line(case: &Case, row: &BTreeMap<String, Cell>, has_peers: bool) -> Option<Vec<String>> {
    let ours = row.get(OURS)?;
    let measure = case.work.measure();
    let shown = match measure {
        Measure::Rate => ours.median(|report| Some(report.rate())).map(|rate| number(rate) + "/s"),
        Measure::Latency => ours.median(|report| Some(report.p50)).map(time),
        Measure::Effort => ours.median(Report::cpu_per_lap).map(|cpu| time(cpu) + " CPU"),
        Measure::Memory => ours
            .median(|report| Some(report.cost(measure)))
            .map(|kib| number(kib / 1_024.0) + " MiB"),
    };
    let failed = || "failed".to_owned();
    let mut line = vec![case.title(), case.clients.to_string(), shown.unwrap_or_else(failed)];
    let peer = best_peer(case, row);
    if has_peers {
        let ratio = peer.map(|(_, cell)| match ours.times_faster(cell, measure) {
            Some(Spread { low, median, high }) => format!("{median:.2} ({low:.2}–{high:.2})"),
            None => failed(),
        });
        line.push(
            peer.map_or_else(String::new, |(name, cell)| name.to_owned() + &lacking(case, cell)),
        );
        line.push(ratio.unwrap_or_default());
    } else {
        line.push(ours.median(|report| Some(report.p50)).map_or_else(String::new, time));
    }
    let requests = |cell: &Cell| cell.count.map(|count| format!("{:.1}", count.requests));
    let theirs = peer.and_then(|(name, cell)| Some(format!("{name} {}", requests(cell)?)));
    let requests: Vec<String> = requests(ours).into_iter().chain(theirs).collect();
    line.push(requests.join(", "));
    Some(line)
}

/// The fastest of the racers that synod would replace.
fn best_peer<'a>(case: &Case, row: &'a BTreeMap<String, Cell>) -> Option<(&'static str, &'a Cell)> {
    let speed = |cell: &Cell| {
        let speed = |report: &Report| 1.0 / report.cost(case.work.measure());
        cell.median(|report| Some(speed(report))).unwrap_or_default()
    };
    let raced = PEERS.into_iter().filter_map(|name| Some((name, row.get(name)?)));
    raced.max_by(|(_, one), (_, other)| speed(one).total_cmp(&speed(other)))
}

/// Returns the number of nodes in a cache that reported to be complete, if there were more.
fn lacking(case: &Case, cell: &Cell) -> String {
    let all = f64::from(u32::try_from(case.work.nodes()).unwrap_or(u32::MAX));
    let had = |report: &Report| Some(f64::from(u32::try_from(report.nodes?).ok()?));
    match cell.median(had) {
        Some(had) if had < all => format!(", with {had:.0} nodes"),
        _ => String::new(),
    }
}

/// A number with about three digits.
fn number(number: f64) -> String {
    if number < 10.0 { format!("{number:.1}") } else { format!("{number:.0}") }
}

/// Microseconds, in the unit that fits.
fn time(micros: f64) -> String {
    if micros < 1_000.0 {
        format!("{micros:.0} µs")
    } else {
        format!("{} ms", number(micros / 1_000.0))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::report;
    use crate::task::Work;

    fn record(racer: &str, work: Work, fact: Fact) -> Record {
        let case = Case { server: "etcd".to_owned(), fsync: false, work, clients: 2, busy: false };
        Record { case, racer: racer.to_owned(), fact }
    }

    fn round(number: usize, laps: u32, micros: f64) -> Fact {
        let lap = Duration::from_secs_f64(micros / 1e6) / laps;
        Fact::Round(number, report(vec![lap; laps as usize], micros, Some(8.0), None))
    }

    #[test]
    fn a_ratio_is_of_one_round() {
        let records = [
            record("ours", Work::Lock, round(0, 10, 1_000.0)),
            record("go", Work::Lock, round(0, 5, 1_000.0)),
            // The machine was slower for both.
            record("ours", Work::Lock, round(1, 10, 9_000.0)),
            record("go", Work::Lock, round(1, 5, 9_000.0)),
            // Without the racer to compare with.
            record("ours", Work::Lock, round(2, 900, 1.0)),
        ];
        let table = Table::of(&records);
        let (_, row) = table.rows().next().expect("one");
        let ratio = row["ours"].times_faster(&row["go"], Measure::Rate).expect("two rounds");

        assert_eq!((ratio.low, ratio.high), (2.0, 2.0));
        assert!(table.to_string().contains("| 2.00 (2.00–2.00)"), "{table}");
    }

    #[test]
    fn where_laps_are_apart_the_faster_one_has_the_shorter() {
        let records = [
            record("ours", Work::Observe, round(0, 2, 100.0)),
            record("go", Work::Observe, round(0, 2, 300.0)),
        ];
        let text = Table::of(&records).to_string();
        assert!(text.contains("| 3.00 (3.00–3.00)"), "{text}");
    }

    #[test]
    fn a_cache_that_lacks_nodes_is_shown_as_such() {
        let cached = |nodes| {
            let lap = Duration::from_millis(5);
            Report { nodes: Some(nodes), ..report(vec![lap], 5e3, None, None) }
        };
        let records = [
            record("ours", Work::CacheSmall, Fact::Round(0, cached(10_000))),
            record("go", Work::CacheSmall, Fact::Round(0, cached(6_667))),
        ];
        let text = Table::of(&records).to_string();
        assert!(text.contains("| go, with 6667 nodes |"), "{text}");
    }

    #[test]
    fn cpu_time_and_memory_are_compared_as_times_are() {
        let cost = |cpu, rss| report(vec![Duration::ZERO; 2], 1.0, Some(cpu), Some(rss));
        let records = [Work::CacheChanges, Work::CacheMemory].map(|work| {
            [
                record("ours", work, Fact::Round(0, cost(20.0, 2_048))),
                record("go", work, Fact::Round(0, cost(40.0, 8_192))),
            ]
        });
        let text = Table::of(&records.concat()).to_string();
        for part in ["| 10 µs CPU |", "| 2.00 (", "| 2.0 MiB ", "| 4.00 ("] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn a_failed_racer_is_reported() {
        let records = [
            record("ours", Work::Lock, round(0, 1, 1.0)),
            record("go", Work::Lock, Fact::Failed("no".to_owned())),
        ];
        let table = Table::of(&records);
        assert!(table.to_string().contains("failed"), "{table}");
        assert_eq!(table.failures().collect::<Vec<_>>(), ["lock, alone of go on etcd failed: no"]);
    }
}
