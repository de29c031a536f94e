//! Runs many seeds of one workload and says how it went.
#![expect(clippy::print_stdout, reason = "its output is for people")]
use std::time::Instant;
use synod_sim::{Personality, Sim, workload};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let name = args.get(1).map_or("registers", String::as_str);
    let seeds: u64 = args.get(2).and_then(|it| it.parse().ok()).unwrap_or(1000);
    let from: u64 = args.get(3).and_then(|it| it.parse().ok()).unwrap_or(0);
    let personality: Personality = args.get(4).map_or("ideal", String::as_str).parse().unwrap();
    let trace = args.get(5).is_some();
    let workload = workload::by_name(name).unwrap();
    let started = Instant::now();
    let (mut bad, mut turns, mut lasted, mut fired) = (0, 0, 0.0, 0);
    let mut marks = std::collections::BTreeMap::new();
    for seed in from..from + seeds {
        let mut sim = Sim::new(seed).personality(personality);
        if trace {
            sim = sim.traced();
        }
        let report = workload.prepare(sim).run();
        turns += report.turns;
        lasted += report.lasted.as_secs_f64();
        fired += report.fired.len();
        for (mark, n) in &report.marks {
            *marks.entry(*mark).or_insert(0) += n;
        }
        if trace {
            for line in &report.lines {
                println!(
                    "{:>12?} {:<8} {:?} {} {}",
                    line.at,
                    report.name(line.actor),
                    line.what,
                    line.id,
                    line.text
                );
            }
        }
        if report.violation.is_some() {
            bad += 1;
            if bad < 6 {
                println!("{report}");
            }
        }
    }
    let took = started.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds, {bad} bad, {:.0}/s, {} turns each, {:.1} s virtual each, {:.1} faults each",
        seeds as f64 / took,
        turns / seeds,
        lasted / seeds as f64,
        fired as f64 / seeds as f64
    );
    println!("{marks:?}");
}
