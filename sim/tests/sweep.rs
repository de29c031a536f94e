//! Every call dropped at every await, every process killed at every request.

use synod_sim::sweep::{Sweep, cancel_anywhere, crash_anywhere};
use synod_sim::{Failure, Personality, workload};

#[track_caller]
fn is_clean(name: &str, sweep: &Sweep, least: u64) {
    if let Some(case) = &sweep.failure {
        let failure = Failure::of(case).expect("it is a case").expect("it fails");
        panic!("{name}, {}:\n{failure}", case.to_json());
    }
    assert!(sweep.histories >= least, "{name}: only {} places", sweep.histories);
}

#[test]
fn a_call_may_be_dropped_at_any_await() {
    for workload in workload::ALL {
        for personality in [Personality::Zk, Personality::Etcd] {
            let sweep = cancel_anywhere(workload.name(), personality, 1).expect("it is there");
            is_clean(workload.name(), &sweep, 8);
        }
    }
}

#[test]
fn a_process_may_die_at_any_request() {
    for workload in workload::ALL {
        for personality in [Personality::Zk, Personality::Etcd] {
            let sweep = crash_anywhere(workload.name(), personality, 1).expect("it is there");
            is_clean(workload.name(), &sweep, 15);
        }
    }
}
