//! The contract of stores on the simulated store without faults, with each personality.

use std::process::ExitCode;

use synod_conformance::run::Suite;
use synod_sim::cluster::Personality;

use crate::simulated::Simulated;

mod simulated;

fn main() -> ExitCode {
    for personality in [Personality::Ideal, Personality::Zk, Personality::Etcd] {
        let suite = Suite::new(move || Simulated::new(personality)).on_paused_time();
        let code = suite.main();
        if code != ExitCode::SUCCESS {
            return code;
        }
    }
    ExitCode::SUCCESS
}
