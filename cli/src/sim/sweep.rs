//! `sim sweep`: exhaustive runs of small worlds.

use serde_json::json;
use synod::sim::sweep::{Scope, Swept, cancel_anywhere, crash_anywhere, exhaust};
use synod::sim::workload::{self, Small, Workload};
use synod::sim::{Failure as Broken, Personality, Sim};

use crate::args::Common;
use crate::failure::Failure;
use crate::output;
use crate::sim::failing::{bad, width};

/// The processes of each world.
const PROCESSES: u64 = 2;

/// In each small world, crashes a process at each of its calls, and drops each call at each of its
/// awaits.
pub(super) fn run(common: &Common, only: &str, seeds: u64) -> Result<(), Failure> {
    for small in &worlds(only)? {
        let (mut crashes, mut drops) = (0, 0);
        for personality in [Personality::Zk, Personality::Etcd] {
            for seed in 0..seeds {
                let make = || small.prepare(Sim::new(seed).personality(personality));
                crashes += clean(small, &crash_anywhere(PROCESSES, make))?;
                drops += clean(small, &cancel_anywhere(PROCESSES, make))?;
            }
        }
        print_report(common, small, crashes, drops)?;
    }
    Ok(())
}

/// Runs each small world with every combination of up to a given number of faults.
pub(super) fn every_way(
    common: &Common,
    only: &str,
    seeds: u64,
    faults: usize,
    most: Option<u64>,
) -> Result<(), Failure> {
    for small in &worlds(only)? {
        for personality in [Personality::Zk, Personality::Etcd] {
            let scope = Scope::one_fault().faults(faults).by_seed();
            let (mut histories, mut complete) = (0, true);
            for seed in 0..seeds {
                let left = most.map_or(u64::MAX, |most| most.saturating_sub(histories));
                let make = || small.prepare(Sim::new(seed).personality(personality));
                let swept = exhaust(&scope.clone().at_most(left), make);
                histories += clean(small, &swept)?;
                complete &= swept.complete;
            }
            tell_ways(common, small, personality, histories, complete)?;
        }
    }
    Ok(())
}

fn worlds(only: &str) -> Result<Vec<Small>, Failure> {
    let rows: Vec<_> = workload::small().filter(|row| row.name().contains(only)).collect();
    if rows.is_empty() {
        return Err(Failure::plain("no workload has that in its name"));
    }
    Ok(rows)
}

/// The number of histories if none broke a law; otherwise the broken history is shown.
fn clean(small: &dyn Workload, swept: &Swept) -> Result<u64, Failure> {
    let Some(report) = &swept.broken else { return Ok(swept.histories) };
    let case = swept.case(small.name());
    let Some(failure) = case.and_then(|case| Broken::of(&case).map_err(bad).transpose()) else {
        return Err(Failure::plain(report.to_string()));
    };
    output::line(&format!("{:>width$}", failure?, width = width()))?;
    Err(Failure::Told)
}

fn print_report(
    common: &Common,
    small: &dyn Workload,
    crashes: u64,
    drops: u64,
) -> Result<(), Failure> {
    let name = small.name();
    if common.json {
        return Ok(output::object(&json!({
            "workload": name,
            "histories_with_a_crash": crashes,
            "histories_with_a_dropped_call": drops,
        }))?);
    }
    Ok(output::line(&format!(
        "{name:<10} clean: {crashes} histories with a crash, {drops} with a dropped call"
    ))?)
}

fn tell_ways(
    common: &Common,
    small: &dyn Workload,
    personality: Personality,
    histories: u64,
    complete: bool,
) -> Result<(), Failure> {
    let name = small.name();
    if common.json {
        return Ok(output::object(&json!({
            "workload": name,
            "personality": personality.to_string(),
            "histories": histories,
            "complete": complete,
        }))?);
    }
    let all = if complete { "all of them" } else { "and there are more" };
    Ok(output::line(&format!("{name:<10} {personality:<5} clean: {histories} histories, {all}"))?)
}
