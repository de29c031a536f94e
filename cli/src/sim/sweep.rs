//! `sim sweep`: leaves nothing to chance in worlds that are small.

use serde_json::json;
use synod::sim::sweep::{Swept, cancel_anywhere, crash_anywhere};
use synod::sim::workload::{self, Workload};
use synod::sim::{Personality, Sim};

use crate::args::Common;
use crate::failure::Failure;
use crate::output;

/// How many processes there are in each.
const PROCESSES: u64 = 2;

/// Lets the processes of each small world crash at each of their calls, and drop each call at each await.
pub(super) fn run(common: &Common, only: &str, seeds: u64) -> Result<(), Failure> {
    let rows: Vec<_> = workload::SMALL.iter().filter(|row| row.name().contains(only)).collect();
    if rows.is_empty() {
        return Err(Failure::plain("no workload has that in its name"));
    }
    for small in rows {
        let (mut crashes, mut drops) = (0, 0);
        for personality in [Personality::Zk, Personality::Etcd] {
            for seed in 0..seeds {
                let make = || small.prepare(Sim::new(seed).personality(personality));
                crashes += clean(&crash_anywhere(PROCESSES, make))?;
                drops += clean(&cancel_anywhere(PROCESSES, make))?;
            }
        }
        tell(common, *small, crashes, drops)?;
    }
    Ok(())
}

/// How many histories it took, if nothing was broken in them.
fn clean(swept: &Swept) -> Result<u64, Failure> {
    match &swept.broken {
        Some(report) => Err(Failure::plain(report.to_string())),
        None => Ok(swept.histories),
    }
}

fn tell(common: &Common, small: &dyn Workload, crashes: u64, drops: u64) -> Result<(), Failure> {
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
