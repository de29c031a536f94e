//! `sim sweep`: exhaustive runs of small worlds.

use serde_json::json;
use synod::sim::sweep::{Scope, Swept, cancel_anywhere, crash_anywhere, exhaust};
use synod::sim::workload::{self, Small, Workload};
use synod::sim::{Failure as Broken, Personality, Sim};

use crate::args::Common;
use crate::failure::Failure;
use crate::output;
use crate::sim::failing::{bad, width};
use crate::sim::in_order::in_order;

/// The processes of each world.
const PROCESSES: u64 = 2;

/// In each small world, crashes a process at each of its calls, and drops each call at each of its
/// awaits.
pub(super) fn run(common: &Common, only: &str, seeds: u64) -> Result<(), Failure> {
    let sweep = |world: &World| {
        let sweeps = (0..seeds).map(|seed| {
            let make = || world.prepare(seed);
            (crash_anywhere(PROCESSES, make), cancel_anywhere(PROCESSES, make))
        });
        sweeps.collect::<Vec<_>>()
    };
    in_order(&worlds(only)?, sweep, |world, sweeps| {
        let (mut crashes, mut drops) = (0, 0);
        for (crashed, dropped) in &sweeps {
            crashes += clean(&world.small, crashed)?;
            drops += clean(&world.small, dropped)?;
        }
        print_report(common, world, crashes, drops)
    })
}

/// Runs each small world with every combination of up to a given number of faults.
pub(super) fn every_way(
    common: &Common,
    only: &str,
    seeds: u64,
    faults: usize,
    most: Option<u64>,
) -> Result<(), Failure> {
    let scope = Scope::one_fault().faults(faults).by_seed();
    let sweep = |world: &World| {
        let (mut left, mut sweeps) = (most.unwrap_or(u64::MAX), Vec::new());
        for seed in 0..seeds {
            let swept = exhaust(&scope.clone().at_most(left), || world.prepare(seed));
            left = left.saturating_sub(swept.histories);
            sweeps.push(swept);
        }
        sweeps
    };
    in_order(&worlds(only)?, sweep, |world, sweeps| {
        let (mut histories, mut complete) = (0, true);
        for swept in &sweeps {
            histories += clean(&world.small, swept)?;
            complete &= swept.complete;
        }
        print_ways(common, world, histories, complete)
    })
}

/// A small world, on a store with the personality of a server.
struct World {
    small: Small,
    personality: Personality,
}

impl World {
    fn prepare(&self, seed: u64) -> Sim {
        self.small.prepare(Sim::new(seed).personality(self.personality))
    }
}

fn worlds(only: &str) -> Result<Vec<World>, Failure> {
    let small = workload::small().filter(|row| row.name().contains(only));
    let worlds: Vec<_> = small
        .flat_map(|small| {
            [Personality::Zk, Personality::Etcd].map(|personality| World { small, personality })
        })
        .collect();
    if worlds.is_empty() {
        return Err(Failure::plain("no workload has that in its name"));
    }
    Ok(worlds)
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

fn print_report(common: &Common, world: &World, crashes: u64, drops: u64) -> Result<(), Failure> {
    let (name, personality) = (world.small.name(), world.personality);
    if common.json {
        return Ok(output::object(&json!({
            "workload": name,
            "personality": personality.to_string(),
            "histories_with_a_crash": crashes,
            "histories_with_a_dropped_call": drops,
        }))?);
    }
    Ok(output::line(&format!(
        "{name:<10} {personality:<5} clean: {crashes} histories with a crash, {drops} with a dropped call"
    ))?)
}

fn print_ways(
    common: &Common,
    world: &World,
    histories: u64,
    complete: bool,
) -> Result<(), Failure> {
    let (name, personality) = (world.small.name(), world.personality);
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
