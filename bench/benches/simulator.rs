//! Number of whole histories that one core simulates in a second, and the speed of virtual time.
//!
//! `cargo bench -p synod-bench --bench simulator --features simulator`. Each history is a world of
//! its own: a runtime, three servers, its clients, all faults by its seed.

#![expect(clippy::print_stdout, reason = "its output is a table for people")]

use synod::sim::{Personality, Sim, workload};
use tokio::time::Instant;

/// Histories per row of the table.
const HISTORIES: u32 = 2_000;

fn main() {
    println!("{:<12} {:<8} {:>12} {:>16}", "workload", "store", "histories/s", "virtual s per s");
    for workload in workload::ALL {
        for personality in [Personality::Zk, Personality::Etcd] {
            let started = Instant::now();
            let mut lasted = 0.0;
            for seed in 0..HISTORIES {
                let sim = Sim::new(seed.into()).personality(personality);
                let report = workload.prepare(sim).run();
                assert!(report.violation.is_none(), "{report}");
                lasted += report.lasted.as_secs_f64();
            }
            let took = started.elapsed().as_secs_f64();
            let (rate, speed) = (f64::from(HISTORIES) / took, lasted / took);
            let name = workload.name();
            println!("{name:<12} {:<8} {rate:>12.0} {speed:>16.0}", personality.to_string());
        }
    }
}
