//! Defects of etcd 3.4 that later servers fixed break the laws when they happen.

use synod_sim::{Fault, Personality, Sim, workload};

/// Each defect by itself, the workload that finds it, and the law.
///
/// D1, a heartbeat that is answered although its session has ended, shows in none of the workloads'
/// first thousands of seeds since servers also lose their leader in them.
const DEFECTS: [(&str, &str, &str); 3] =
    [("D2", "watchers", "L-WAT-4"), ("D3", "registers", "L-KV-2"), ("D4", "sessions", "L-SES-2")];

const SEEDS: u64 = 3_000;

#[test]
fn each_defect_of_etcd_3_4_is_found_by_itself() {
    let mut holes = Vec::new();
    for (name, of, law) in DEFECTS {
        let defect = Fault::all().find(|fault| fault.to_string() == name).expect("there is one");
        assert!(defect.is_defect(), "{name}");
        let workload = workload::by_name(of).expect("there is one");
        let found = (0..SEEDS).find_map(|seed| {
            let sim = workload.prepare(Sim::new(seed).personality(Personality::Etcd));
            let violation = sim.rates(|rates| rates.with(defect)).run().violation?;
            Some((seed, violation.law))
        });
        println!("{name} {of}: {found:?}");
        if found.as_ref().is_none_or(|(_, by)| by != law) {
            holes.push(format!("{name} by {of} is to break {law}: {found:?}"));
        }
    }
    assert!(holes.is_empty(), "{holes:#?}");
}

#[test]
fn the_defects_happen_to_etcd_3_4_alone() {
    for personality in Personality::ALL {
        let fired = (0..200).flat_map(|seed| {
            let workload = workload::by_name("watchers").expect("there is one");
            workload.prepare(Sim::new(seed).personality(personality)).run().fired
        });
        let defects = fired.filter(|it| it.spot.site.fault().is_some_and(Fault::is_defect)).count();
        assert_eq!(defects > 0, personality == Personality::Etcd34, "{personality}: {defects}");
    }
}
