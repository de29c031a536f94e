//! `sim mutants`: makes known mistakes, and reports the number of histories until each is found.

use std::path::Path;

use serde_json::json;
use synod::sim::known::{Row, TABLE};
use synod::sim::{Case, Failure as Broken, Fault, Hunt, Personality, Tally};

use crate::args::Common;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;
use crate::sim::failing::{bad, keep};

/// The arguments.
pub(super) struct Asked<'a> {
    pub(super) only: &'a str,
    pub(super) seeds: u64,
    pub(super) first: bool,
    pub(super) keep: Option<&'a Path>,
}

/// Makes each mistake, and reports.
pub(super) fn run(
    common: &Common,
    asked: &Asked<'_>,
    faults: bool,
    all: bool,
) -> Result<(), Failure> {
    if all {
        return every_one(asked);
    }
    let rows: Vec<&Row> = TABLE.iter().filter(|row| name(row).contains(asked.only)).collect();
    if rows.is_empty() {
        return Err(Failure::plain("no known mistake has that in its name, nor has its workload"));
    }
    if faults { without_each(asked, &rows) } else { table(common, asked, &rows) }
}

/// The name of a row, as in the file names of the corpus.
fn name(row: &Row) -> String {
    format!("{}-{}-{}", row.workload, row.personality, row.known)
}

fn hunt(row: &Row, seeds: u64) -> Result<Hunt, Failure> {
    let personality: Personality =
        row.personality.parse().map_err(|_| Failure::plain("no such personality"))?;
    let hunt = Hunt::workload(row.workload).map_err(bad)?;
    Ok(hunt.personalities([personality]).mutant(row.known.to_string()).seeds(0..seeds))
}

/// The histories that broke the law which this mistake must break.
fn found<'a>(row: &Row, tally: &'a Tally) -> Vec<&'a Case> {
    tally.failures.iter().filter(|case| case.law.as_deref() == Some(row.law)).collect()
}

fn table(common: &Common, asked: &Asked<'_>, rows: &[&Row]) -> Result<(), Failure> {
    let mut escaped = 0;
    if !common.json {
        output::line(&format!(
            "{:<3} {:<24} {:<10} {:<9} {:>12} {:>8}  what it gets wrong",
            "", "mistake", "found by", "law", "after seeds", "of seeds"
        ))?;
    }
    for row in rows {
        let tally = counted(row, asked)?;
        let found = found(row, &tally);
        escaped += usize::from(found.is_empty());
        print_report(common, row, &found, &tally)?;
        if let (Some(dir), Some(first)) = (asked.keep, found.first())
            && let Some(failure) = Broken::of(first).map_err(bad)?
        {
            keep(&failure.smaller.case, dir)?;
        }
    }
    match escaped {
        0 => Ok(()),
        _ => Err(Failure::plain(format!("{escaped} of {} mistakes were not found", rows.len()))),
    }
}

/// All histories, or those up to the first that finds the mistake.
fn counted(row: &Row, asked: &Asked<'_>) -> Result<Tally, Failure> {
    /// Histories per step, when the first is enough.
    const SLICE: u64 = 128;
    let progress = Progress::new("histories", Some(asked.seeds));
    let slice = if asked.first { SLICE } else { asked.seeds };
    let (mut tally, mut from) = (Tally::default(), 0);
    while from < asked.seeds && (from == 0 || found(row, &tally).is_empty()) {
        let end = from.saturating_add(slice).min(asked.seeds);
        let hunt = hunt(row, asked.seeds)?.seeds(from..end).to_the_end();
        tally.add(hunt.count(&|more| progress.advance(more)).map_err(bad)?);
        from = end;
    }
    Ok(tally)
}

#[expect(clippy::cast_precision_loss, reason = "it is for people")]
fn print_report(common: &Common, row: &Row, found: &[&Case], tally: &Tally) -> Result<(), Failure> {
    let first = found.first().map(|case| case.seed + 1);
    let rate = found.len() as f64 * 100.0 / tally.histories.max(1) as f64;
    if common.json {
        return Ok(output::object(&json!({
            "number": row.number,
            "mistake": row.known.to_string(),
            "workload": row.workload,
            "law": row.law,
            "seeds_until_found": first,
            "percent": rate,
            "what": row.known.what(),
        }))?);
    }
    let first = first.map_or("NOT FOUND".to_owned(), |first| first.to_string());
    Ok(output::line(&format!(
        "{:<3} {:<24} {:<10} {:<9} {first:>12} {rate:>6.1} %  {}",
        row.number,
        row.known,
        row.workload,
        row.law,
        row.known.what()
    ))?)
}

/// For each fault, the mistakes that are not found without it. If other faults can replace it, also
/// lists the mistakes that are found with this fault alone.
fn without_each(asked: &Asked<'_>, rows: &[&Row]) -> Result<(), Failure> {
    let all: Vec<Fault> = Fault::all().filter(|fault| !fault.is_defect()).collect();
    let mut fair = Vec::new();
    for row in rows {
        if !is_found(row, asked.seeds, &all)? {
            fair.push(*row);
        }
    }
    let mut idle = Vec::new();
    for fault in &all {
        let about = fault.sites().map(synod::sim::Site::about).collect::<Vec<_>>().join("; ");
        let escaped = matching(&fair, |row| Ok(!is_found(row, asked.seeds, &[*fault])?))?;
        if !escaped.is_empty() {
            output::line(&format!("{fault:<4} {about}\n     without it escape: {escaped}"))?;
            continue;
        }
        let others: Vec<Fault> = all.iter().copied().filter(|other| other != fault).collect();
        let alone = matching(&fair, |row| is_found(row, asked.seeds, &others))?;
        output::line(&format!(
            "{fault:<4} {about}\n     others stand in; alone it finds: {alone}"
        ))?;
        if alone.is_empty() {
            idle.push(fault.to_string());
        }
    }
    if idle.is_empty() {
        return Ok(());
    }
    Err(Failure::plain(format!("no mistake is found by {}", idle.join(", "))))
}

/// The names of the mistakes that satisfy `is_so`.
fn matching(
    rows: &[&Row],
    is_so: impl Fn(&Row) -> Result<bool, Failure>,
) -> Result<String, Failure> {
    let mut names = Vec::new();
    for row in rows {
        if is_so(row)? {
            names.push(row.known.to_string());
        }
    }
    Ok(names.join(", "))
}

/// Returns `true` if a mistake is found without these faults.
fn is_found(row: &Row, seeds: u64, without: &[Fault]) -> Result<bool, Failure> {
    /// Seeds per step, to stop early if it is found soon.
    const STEP: u64 = 50;
    let mut from = 0;
    while from < seeds {
        let end = (from + STEP).min(seeds);
        let hunt = hunt(row, seeds)?.seeds(from..end).to_the_end();
        let hunt = without.iter().fold(hunt, |hunt, fault| hunt.without(*fault));
        if !found(row, &hunt.count(&|_| ()).map_err(bad)?).is_empty() {
            return Ok(true);
        }
        from = end;
    }
    Ok(false)
}

/// Every mistake under every workload, with the number of times that it breaks each law.
fn every_one(asked: &Asked<'_>) -> Result<(), Failure> {
    use synod::sim::known::Known;
    for known in Known::all().filter(|known| known.to_string().contains(asked.only)) {
        for workload in synod::sim::workload::ALL {
            for personality in [Personality::Zk, Personality::Etcd] {
                let hunt = Hunt::workload(workload.name()).map_err(bad)?;
                let hunt = hunt.personalities([personality]).mutant(known.to_string());
                let tally = hunt.seeds(0..asked.seeds).to_the_end().count(&|_| ()).map_err(bad)?;
                let mut laws = std::collections::BTreeMap::<&str, u64>::new();
                for case in &tally.failures {
                    *laws.entry(case.law.as_deref().unwrap_or_default()).or_default() += 1;
                }
                if !laws.is_empty() {
                    let laws: Vec<_> = laws.iter().map(|(law, n)| format!("{law} {n}")).collect();
                    let (name, laws) = (workload.name(), laws.join(", "));
                    output::line(&format!("{known:<28} {name:<10} {personality:<5} {laws}"))?;
                }
            }
        }
    }
    Ok(())
}
