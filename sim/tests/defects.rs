//! Defects of etcd 3.4 that later servers fixed break the laws when they happen.

use synod_sim::{Fault, Personality, Sim, workload};

/// Each defect alone, the workload that finds it, the law, and its rate in thousandths, if not the
/// usual one.
///
/// D1: a heartbeat is answered although its session has ended. At its usual rate it breaks the law
/// in one of thousands of seeds, so here each such heartbeat is answered.
const DEFECTS: [(&str, &str, &str, Option<u32>); 4] = [
    ("D1", "sessions", "L-SES-2", Some(1_000)),
    ("D2", "watchers", "L-WAT-4", None),
    ("D3", "registers", "L-KV-2", None),
    ("D4", "sessions", "L-SES-2", None),
];

const SEEDS: u64 = 3_000;

#[test]
fn each_defect_of_etcd_3_4_is_found_by_itself() {
    let mut holes = Vec::new();
    for (name, of, law, rate) in DEFECTS {
        let defect = Fault::all().find(|fault| fault.to_string() == name).expect("there is one");
        assert!(defect.is_defect(), "{name}");
        let workload = workload::by_name(of).expect("there is one");
        let found = (0..SEEDS).find_map(|seed| {
            let sim = workload.prepare(Sim::new(seed).personality(Personality::Etcd));
            let sim = sim.rates(|rates| match rate {
                Some(rate) => defect.sites().fold(rates, |rates, site| rates.set(site, rate)),
                None => rates.with(defect),
            });
            let violation = sim.run().violation?;
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
