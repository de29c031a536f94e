//! [`summary`]: the results of all races, for programs.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::record::Case;
use crate::report::Report;
use crate::spread::Spread;
use crate::table::{Cell, OURS, Table};

/// A row of the table, with everything that was measured.
#[derive(Debug, Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    case: &'a Case,
    racers: BTreeMap<&'a str, Racer>,
}

/// The medians of one racer. Times are in microseconds.
#[derive(Debug, Serialize)]
struct Racer {
    rate: Option<f64>,
    p50: Option<f64>,
    p99: Option<f64>,
    cpu: Option<f64>,
    rss: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<f64>,
    requests: Option<f64>,
    bytes: Option<f64>,
    /// The factor by which synod is faster: the median and the quartiles of the rounds.
    ours_faster: Option<[f64; 3]>,
    failed: Option<String>,
}

/// All results: a line of JSON for each row of the table.
///
/// # Errors
///
/// If a number cannot be written as JSON.
pub fn summary(table: &Table) -> serde_json::Result<String> {
    let mut lines = String::new();
    for (case, cells) in table.rows() {
        let ours = cells.get(OURS);
        let racers =
            cells.iter().map(|(name, cell)| (name.as_str(), Racer::of(cell, ours, case))).collect();
        lines += &serde_json::to_string(&Row { case, racers })?;
        lines.push('\n');
    }
    Ok(lines)
}

impl Racer {
    fn of(cell: &Cell, ours: Option<&Cell>, case: &Case) -> Self {
        let median = |number: &dyn Fn(&Report) -> Option<f64>| cell.median(number).map(rounded);
        let number =
            |count: Option<u64>| count.and_then(|it| u32::try_from(it).ok()).map(f64::from);
        let ratio = ours.filter(|ours| !std::ptr::eq(*ours, cell));
        let ratio = ratio.and_then(|ours| ours.times_faster(cell, case.work.measure()));
        Self {
            rate: median(&|report| Some(report.rate())),
            p50: median(&|report| Some(report.p50)),
            p99: median(&|report| Some(report.p99)),
            cpu: median(&Report::cpu_per_lap),
            rss: median(&|report| number(report.rss)),
            nodes: median(&|report| number(report.nodes)),
            requests: cell.count.map(|count| rounded(count.requests)),
            bytes: cell.count.map(|count| rounded(count.bytes)),
            ours_faster: ratio.map(|Spread { low, median, high }| {
                [low, median, high].map(|ratio| (ratio * 100.0).round() / 100.0)
            }),
            failed: cell.failed.clone(),
        }
    }
}

/// Rounds to a tenth.
fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::record::{Fact, Record};
    use crate::report::report;
    use crate::task::Work;

    #[test]
    fn a_line_has_everything_about_each_racer() {
        let record = |racer: &str, micros: f64| Record {
            case: Case {
                server: "etcd".to_owned(),
                fsync: false,
                work: Work::Lock,
                clients: 2,
                busy: false,
            },
            racer: racer.to_owned(),
            fact: Fact::Round(0, report(vec![Duration::from_micros(5)], micros, Some(8.0), None)),
        };
        let table = Table::of(&[record("ours", 10.0), record("go", 20.0)]);

        let line = summary(&table).expect("it is JSON");
        let row: serde_json::Value = serde_json::from_str(&line).expect("it is JSON");
        assert_eq!(row["clients"], 2);
        assert_eq!(row["racers"]["ours"]["rate"], 100_000.0);
        assert_eq!(row["racers"]["ours"]["ours_faster"], serde_json::Value::Null);
        assert_eq!(row["racers"]["go"]["ours_faster"], serde_json::json!([2.0, 2.0, 2.0]));
    }
}
