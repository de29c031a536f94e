//! Looks for every known mistake with every workload.
#![expect(clippy::print_stdout, reason = "its output is for people")]
use std::collections::BTreeMap;
use synod_sim::{Known, Personality, Sim, workload, Fault};
fn main() {
    let seeds: u64 = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(300);
    let only = std::env::args().nth(2).filter(|it| it != "all");
    let without: Option<Fault> = std::env::args().nth(3).and_then(|it| it.parse().ok()).and_then(Fault::by_number);
    std::panic::set_hook(Box::new(|_| {}));
    for known in Known::all() {
        if only.as_ref().is_some_and(|only| !known.to_string().contains(only.as_str())) { continue; }
        for workload in workload::ALL {
            let (mut first, mut caught) = (None, 0);
            let mut laws: BTreeMap<String, u64> = BTreeMap::new();
            for seed in 0..seeds {
                let personality = [Personality::Zk, Personality::Etcd, Personality::Ideal][usize::try_from(seed % 3).unwrap()];
                let mut sim = workload.prepare(Sim::new(seed).personality(personality));
                if let Some(fault) = without { sim = sim.rates(|rates| rates.without(fault)); }
                let report = known.run(sim);
                if let Some(violation) = report.violation {
                    first.get_or_insert(seed);
                    caught += 1;
                    *laws.entry(violation.law).or_default() += 1;
                }
            }
            if caught > 0 { println!("{known:<32} {:<10} first {:<5} {caught}/{seeds} {laws:?}", workload.name(), first.unwrap()); }
        }
    }
}
