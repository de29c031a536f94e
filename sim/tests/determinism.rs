//! A seed gives the same history each time, even in another process.

use std::process::Command;

use synod_sim::{Personality, Report, Sim, workload};

const SEEDS: u64 = 200;

fn run(seed: u64) -> Report {
    let personality = Personality::ALL[usize::try_from(seed % 3).expect("small")];
    let all = workload::ALL;
    let workload = all[usize::try_from(seed).expect("small") % all.len()];
    workload.prepare(Sim::new(seed).personality(personality)).run()
}

fn hashes() -> Vec<u64> {
    (0..SEEDS).map(|seed| run(seed).hash).collect()
}

#[test]
fn a_seed_repeats_itself_here_and_in_another_process() {
    if std::env::var_os("SYNOD_SIM_CHILD").is_some() {
        println!("hashes: {:?}", hashes());
        return;
    }
    let first = hashes();
    assert_eq!(first, hashes(), "in one process");

    let own = std::env::current_exe().expect("a test knows where it is");
    let name = "a_seed_repeats_itself_here_and_in_another_process";
    let child = Command::new(own)
        .args([name, "--exact", "--nocapture"])
        .env("SYNOD_SIM_CHILD", "1")
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(said.contains(&format!("hashes: {first:?}")), "in another process: {said}");

    let mut different = first;
    different.sort_unstable();
    different.dedup();
    assert!(different.len() > 190, "only {} of {SEEDS} histories differ", different.len());
}
