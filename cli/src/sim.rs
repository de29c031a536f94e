//! `sim`: runs processes on a simulated store with faults, from a seed.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use synod::sim::{
    Case, Failure as Broken, Hunt, Personality, Rates, Site, Tally, corpus, workload,
};
use tokio::time::Instant;

use crate::args::Common;
use crate::args::sim::{Seeds, Sim, SimCommand};
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;
use crate::sim::failing::{bad, keep, print_failure};

mod failing;
#[cfg(not(feature = "mutants"))]
mod honest;
mod in_order;
#[cfg(feature = "mutants")]
mod mutants;
mod replay;
mod sweep;

#[cfg(not(feature = "mutants"))]
use honest as mutants;

/// Number of seeds after which every event that should happen sometimes must have happened.
const ENOUGH: u64 = 20_000;

/// Runs the `sim` command.
pub(crate) fn run(common: &Common, asked: &Sim) -> Result<(), Failure> {
    // A simulation runs on its own runtime, which cannot start on a thread that already has one.
    std::thread::scope(|scope| scope.spawn(|| asked_for(common, asked)).join()).unwrap_or_else(
        |_panic| Err(Failure::plain("the simulator itself failed; please report it")),
    )
}

fn asked_for(common: &Common, asked: &Sim) -> Result<(), Failure> {
    match (&asked.what, &asked.workload) {
        (Some(SimCommand::Mutants { only, seeds, first, faults, all, keep }), _) => {
            let only = only.as_deref().unwrap_or_default();
            let keep = keep.as_deref();
            let asked = mutants::Asked { only, seeds: *seeds, first: *first, keep };
            mutants::run(common, &asked, *faults, *all)
        }
        (Some(SimCommand::Sweep { only, seeds, faults, most }), _) => {
            let only = only.as_deref().unwrap_or_default();
            match faults {
                Some(faults) => sweep::every_way(common, only, *seeds, *faults, *most),
                None => sweep::run(common, only, *seeds),
            }
        }
        (Some(replay), _) => replay::run(common, replay),
        (None, None) => list(common),
        (None, Some(workload)) => hunt(common, asked, workload),
    }
}

fn list(common: &Common) -> Result<(), Failure> {
    if !common.json {
        output::line("What processes can do on a simulated store, while everything goes wrong:\n")?;
    }
    for workload in workload::ALL {
        let (name, about, laws) = (workload.name(), workload.about(), workload.laws());
        if common.json {
            output::object(&json!({ "workload": name, "about": about, "laws": laws }))?;
            continue;
        }
        output::line(&format!("  {name:<10} {about}"))?;
        for part in laws.chunks(8) {
            output::line(&format!("  {:<10} {}", "", part.join(" ")))?;
        }
    }
    if !common.json {
        output::line(
            "\nsynod sim registers --seeds 10000    runs 10,000 histories of one of them",
        )?;
        output::line("synod sim replay registers --seed 7  shows one again")?;
        output::line("synod sim mutants                    shows that it would find mistakes")?;
    }
    Ok(())
}

/// Runs the saved cases, then as many seeds as were requested.
fn hunt(common: &Common, asked: &Sim, workload: &str) -> Result<(), Failure> {
    if workload != "all" {
        return hunt_one(common, asked, workload).map(drop);
    }
    let asked = &shared_out(asked, workload::ALL.len());
    let mut fired = BTreeSet::new();
    let mut histories = u64::MAX;
    for workload in workload::ALL {
        if !common.json {
            output::line(&format!("{}: {}", workload.name(), workload.about()))?;
        }
        let tally = hunt_one(common, asked, workload.name())?;
        histories = histories.min(tally.histories);
        fired.extend(tally.fired.into_keys());
    }
    let idle = expected(asked.seeds.personality).filter(|site| !fired.contains(site));
    let idle: Vec<_> = idle.map(|site| site.to_string()).collect();
    if idle.is_empty() || !is_enough(asked, histories) {
        return Ok(());
    }
    Err(Failure::plain(format!("nowhere did any of these happen: {}", idle.join(", "))))
}

/// The faults that happen somewhere, to a store with this personality or, without one, with any.
fn expected(personality: Option<Personality>) -> impl Iterator<Item = Site> {
    let usual = Site::all().filter(|site| Rates::usual().of(*site) > 0);
    usual.filter(move |site| personality.is_none_or(|one| !one.never(*site)))
}

/// Returns `true` if there were enough histories for every event that should happen sometimes.
fn is_enough(asked: &Sim, histories: u64) -> bool {
    let Seeds { without, mutant, .. } = &asked.seeds;
    without.is_empty() && mutant.is_none() && (asked.strict || histories >= ENOUGH)
}

/// Returns the share of one of several workloads: an equal part of the time, and of the other
/// limits if they apply to all together.
fn shared_out(asked: &Sim, workloads: usize) -> Sim {
    let mut share = asked.clone();
    let seeds = &mut share.seeds;
    seeds.limit = seeds.limit.map(|limit| limit / u32::try_from(workloads).unwrap_or(u32::MAX));
    if seeds.shared {
        let workloads = workloads as u64;
        seeds.count = seeds.count.div_ceil(workloads);
        seeds.turns = seeds.turns.map(|turns| turns.div_ceil(workloads));
    }
    share
}

fn hunt_one(common: &Common, asked: &Sim, workload: &str) -> Result<Tally, Failure> {
    let hunt = prepared(workload, &asked.seeds)?;
    if asked.seeds.mutant.is_none() {
        kept(common, asked, workload)?;
    }
    let (tally, took) = counted(&hunt, asked)?;
    if let Some(failure) = tally.failures.first().and_then(|case| hunt.explain(case)) {
        print_failure(common, &failure, &asked.shown)?;
        if let Some(dir) = &asked.keep {
            keep(&failure.smaller.case, dir)?;
        }
        return Err(Failure::Told);
    }
    summary(common, &hunt, &tally, took.as_secs_f64())?;
    let missed = hunt.missed(&tally).into_iter().map(ToOwned::to_owned);
    let idle = hunt.idle(&tally).into_iter().map(|site| site.to_string());
    let missed: Vec<String> = missed.chain(idle).collect();
    if missed.is_empty() || !is_enough(asked, tally.histories) {
        return Ok(tally);
    }
    Err(Failure::plain(format!(
        "in {} histories of {workload} this happened too seldom or never, so they test less than they \
         seem to: {}",
        tally.histories,
        missed.join("; ")
    )))
}

/// Runs as many seeds as were requested, or as fit into the time.
fn counted(hunt: &Hunt, asked: &Sim) -> Result<(Tally, Duration), Failure> {
    /// Seeds per step, if a limit other than their number applies.
    const SLICE: u64 = 512;
    let Seeds { from, count, limit, turns, .. } = asked.seeds;
    let (began, known) = (Instant::now(), limit.is_none().then_some(count));
    let progress = Progress::new("histories", known);
    let turns = turns.unwrap_or(u64::MAX);
    let end = limit.map_or_else(|| from.saturating_add(count), |_| u64::MAX);
    let (mut tally, mut next) = (Tally::default(), from);
    while next < end
        && tally.turns < turns
        && limit.is_none_or(|limit| began.elapsed() < limit)
        && tally.failures.is_empty()
    {
        let slice = next..end.min(next.saturating_add(SLICE));
        next = slice.end;
        let hunt = hunt.clone().seeds(slice);
        tally.add(hunt.count(&|more| progress.advance(more)).map_err(bad)?);
    }
    Ok((tally, began.elapsed()))
}

fn prepared(workload: &str, seeds: &Seeds) -> Result<Hunt, Failure> {
    let end = seeds.from.checked_add(seeds.count);
    let end = end.ok_or_else(|| Failure::plain("there are no seeds that high"))?;
    let mut hunt = Hunt::workload(workload).map_err(bad)?.seeds(seeds.from..end);
    if let Some(personality) = seeds.personality {
        hunt = hunt.personalities([personality]);
    }
    if let Some(jobs) = seeds.jobs {
        hunt = hunt.jobs(jobs);
    }
    if let Some(mutant) = &seeds.mutant {
        hunt = hunt.mutant(mutant);
    }
    Ok(seeds.without.iter().fold(hunt, |hunt, fault| hunt.without(*fault)))
}

/// Runs the saved cases: a fixed failure must not return.
fn kept(common: &Common, asked: &Sim, workload: &str) -> Result<(), Failure> {
    let mut count = 0;
    for (file, case) in corpus::of(workload).map_err(bad)? {
        let mut honest: Case = case;
        honest.mutant = None;
        count += 1;
        if honest.run(false).map_err(bad)?.violation.is_none() {
            continue;
        }
        if let Some(failure) = Broken::of(&honest).map_err(bad)? {
            output::line(&format!("{file} fails again"))?;
            print_failure(common, &failure, &asked.shown)?;
            return Err(Failure::Told);
        }
    }
    if count > 0 && !common.json {
        output::line(&format!("{count} histories that once failed: none fails"))?;
    }
    Ok(())
}

fn summary(common: &Common, hunt: &Hunt, tally: &Tally, took: f64) -> Result<(), Failure> {
    let faults: u64 = tally.fired.values().sum();
    let lasted = tally.lasted.as_secs_f64();
    let idle: Vec<_> = hunt.idle(tally).into_iter().map(|site| site.to_string()).collect();
    if common.json {
        return Ok(output::object(&json!({
            "histories": tally.histories,
            "seconds": took,
            "virtual_seconds": lasted,
            "faults": faults,
            "turns": tally.turns,
            "marks": tally.marks,
            "idle": idle,
        }))?);
    }
    #[expect(clippy::cast_precision_loss, reason = "it is for people")]
    let rate = tally.histories as f64 / took.max(0.001);
    output::line(&format!(
        "{} histories, nothing broken: {rate:.0} a second, {faults} faults, {} of virtual time",
        tally.histories,
        humantime::format_duration(Duration::from_secs(tally.lasted.as_secs())),
    ))?;
    for (mark, times) in &tally.marks {
        output::line(&format!("  {times:>8} times: {mark}"))?;
    }
    if !idle.is_empty() {
        output::line(&format!("     never: {}", idle.join(", ")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;

    #[test]
    fn a_shared_budget_is_the_same_for_any_number_of_workloads() {
        let given = |arguments: &[&str]| {
            let command = Sim::augment_args(clap::Command::new("sim"));
            let matches = command.get_matches_from([&["sim", "all"], arguments].concat());
            let share = shared_out(&Sim::from_arg_matches(&matches).expect("valid"), 16).seeds;
            (share.count, share.turns, share.limit)
        };
        let each = ["--seeds", "3000", "--turns", "8000"];
        let total = ["--seeds", "48000", "--turns", "128000", "--shared"];
        assert_eq!(given(&each), (3_000, Some(8_000), None));
        assert_eq!(given(&total), given(&each));
        assert_eq!(given(&["--for", "16min"]).2, Some(Duration::from_secs(60)));
    }

    #[test]
    fn a_fault_that_a_store_never_has_is_not_missed() {
        let misses = |personality| expected(personality).any(|site| site == Site::EventAhead);
        assert!(!misses(Some(Personality::Zk)), "its connections keep the order");
        assert!(misses(Some(Personality::Etcd)));
        assert!(misses(None));
    }
}
