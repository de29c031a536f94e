//! Every workload keeps its laws, under all faults, in every world.

use synod_core::clock;
use synod_core::path::Path;
use synod_core::store::Lifetime;
use synod_sim::workload::Workload as _;
use synod_sim::{Mending, Personality, Process, Sim, Site, sweep, workload};
use synod_testkit::recipe::rows;

const SEEDS: u64 = 60;

const SOUND: [Personality; 3] = [Personality::Ideal, Personality::Zk, Personality::Etcd];

#[test]
fn whatever_goes_wrong_the_laws_hold() {
    for workload in workload::ALL {
        let (mut fired, mut marks) = (0, std::collections::BTreeMap::new());
        for seed in 0..SEEDS {
            for personality in SOUND {
                let sim = workload.prepare(Sim::new(seed).personality(personality));
                let report = sim.run();
                assert!(report.violation.is_none(), "{}: {report}", workload.name());
                fired += report.fired.len();
                for (mark, count) in report.marks {
                    *marks.entry(mark).or_insert(0) += count;
                }
            }
        }
        assert!(fired > 100, "fair weather for {}: {fired}", workload.name());
        let missed: Vec<_> = marks.iter().filter(|(_, count)| **count == 0).collect();
        assert!(missed.is_empty(), "{} never saw {missed:?}", workload.name());
        let told = workload.marks();
        let untold: Vec<_> = marks.keys().filter(|mark| !told.contains(mark)).collect();
        assert!(untold.is_empty(), "{} does not list {untold:?}", workload.name());
    }
}

#[test]
fn every_recipe_has_a_workload_with_a_small_world() {
    for row in rows() {
        for name in row.workloads.names() {
            let there = workload::small().any(|workload| workload.name() == *name);
            assert!(there, "{} has no workload {name}, or no small world of it", row.name);
        }
    }
    for workload in workload::small().filter(|it| it.name() != "tickets") {
        let named = rows().any(|row| row.workloads.names().contains(&workload.name()));
        assert!(named, "no row of the table names the workload {}", workload.name());
    }
}

#[test]
fn every_law_that_is_left_to_the_simulator_is_checked_by_a_workload() {
    for (law, why) in synod_testkit::law::SIMULATED {
        let checked = workload::ALL.iter().any(|workload| workload.laws().contains(law));
        assert!(checked, "{law}: {why}");
    }
}

/// Histories that once failed because of bugs.
#[rustfmt::skip]
const ONCE: [(&str, u64, Personality); 7] = [
    ("sessions", 0x2,    Personality::Etcd), // a close that failed was taken for clean
    ("sessions", 0x5234, Personality::Zk),   // so was one of a session given up by its own clock
    ("tickets",  0x3e,   Personality::Etcd), // a late create came back after its removal
    ("tickets",  0x0028_9159_ec1d, Personality::Etcd), // so did one when the last look for it failed
    ("watchers", 0xf1c,  Personality::Etcd), // told over a connection that was only coming up
    ("watchers", 0x5e34, Personality::Zk),   // a late connection took the place of a newer one
    ("watchers", 0x5a7b, Personality::Etcd), // the same
];

#[test]
fn what_was_wrong_once_is_right() {
    for (name, seed, personality) in ONCE {
        let workload = workload::by_name(name).expect("there is one");
        let report = workload.prepare(Sim::new(seed).personality(personality)).run();
        assert!(report.violation.is_none(), "{name}: {report}");
    }
}

#[test]
fn what_is_mended_wholly_and_what_only_in_part_both_come_to_an_end() {
    for mending in [Mending::All, Mending::Core] {
        for seed in 0..SEEDS {
            let workload = workload::by_name("tickets").expect("there is one");
            let sim = workload.prepare(Sim::new(seed).personality(Personality::Zk));
            let report = sim.mending(mending).run();
            assert!(report.violation.is_none(), "{mending:?}: {report}");
        }
    }
}

#[test]
fn a_crash_at_any_call_and_a_drop_at_any_await_break_nothing() {
    // The others are run from more seeds by `synod sim sweep`, which is faster.
    for personality in SOUND {
        for small in workload::small().take(2) {
            let make = || small.prepare(Sim::new(1).personality(personality));
            for swept in [sweep::crash_anywhere(2, make), sweep::cancel_anywhere(2, make)] {
                let broken = swept.broken.as_ref().map(ToString::to_string);
                assert!(swept.complete, "{} on {personality}: {broken:?}", small.name());
                assert!(swept.histories > 8, "{} histories", swept.histories);
            }
        }
    }
}

#[test]
fn every_way_through_a_small_world_with_one_fault_is_clean() {
    for personality in SOUND {
        for small in workload::small().take(1) {
            let make = || small.prepare(Sim::new(1).personality(personality));
            let swept = sweep::exhaust(&sweep::Scope::one_fault(), make);
            let broken = swept.broken.as_ref().map(ToString::to_string);
            assert!(swept.complete, "{} on {personality}: {broken:?}", small.name());
            assert!(swept.histories > 50, "only {} ways", swept.histories);
        }
    }
}

#[test]
fn what_needs_two_faults_is_found_by_every_way_with_two_and_by_none_with_one() {
    // A dropped read is retried once.
    let reads = |me: Process| async move {
        let Ok(client) = me.client().await else { return };
        let path = Path::new("/p").expect("valid");
        let mut answered = false;
        for _ in 0..2 {
            answered = answered || me.perhaps(client.get(&path)).await.is_some();
        }
        me.always("one of two reads comes to its end", answered);
    };
    let swept = |faults| {
        let scope = sweep::Scope::one_fault().faults(faults).by_seed();
        sweep::exhaust(&scope, || Sim::new(1).processes(2, reads))
    };
    let one = swept(1);
    assert!(one.complete && one.histories > 50, "{one:?}");
    let broken = swept(2).broken.expect("two are enough");
    let sites: Vec<_> = broken.fired.iter().map(|it| it.spot.site).collect();
    assert_eq!(sites, [Site::CallDropped; 2], "{broken}");
}

#[test]
fn switching_a_fault_off_leaves_the_others_where_they_were_until_then() {
    let workload = workload::by_name("registers").expect("there is one");
    let run = |off: &[_]| {
        let sim = Sim::new(11).steady().without(off.iter().copied());
        workload.prepare(sim).run().fired
    };
    let all = run(&[]);
    assert!(all.len() > 8, "{} faults", all.len());
    let off = all[all.len() / 2].spot;
    let fewer = run(&[off]);
    assert_eq!(fewer[..all.len() / 2], all[..all.len() / 2]);
    assert!(fewer.iter().all(|fired| fired.spot != off));
}

#[test]
fn what_a_user_says_must_be_is_found_not_to_be() {
    let path = || Path::new("/flag").expect("valid");
    let sim = |seed| {
        Sim::new(seed).processes(2, move |me| async move {
            let Ok(client) = me.client().await else { return };
            let free = client.get(&path()).await.is_ok_and(|found| found.is_none());
            clock::sleep(me.ttl() / 10).await;
            if free {
                let made = client.create(&path(), me.name().to_owned(), Lifetime::Persistent).await;
                me.sometimes(
                    "both saw that it was free",
                    made.is_ok_and(|it| it.rejected().is_some()),
                );
            }
        })
    };
    let clean = (0..40).all(|seed| sim(seed).run().violation.is_none());
    assert!(clean);
    let hopeless = sim(1).eventually("the flag goes away", move |me| async move {
        let client = me.client().await.map_err(|error| error.to_string())?;
        match client.get(&path()).await {
            Ok(None) => Ok(()),
            found => Err(format!("there is {found:?}")),
        }
    });
    let violation = hopeless.run().violation.expect("no process removes it");
    assert_eq!(violation.law, "the flag goes away");

    let panics = Sim::new(1).process("ann", |_| async { panic!("on purpose") });
    assert_eq!(panics.run().violation.expect("it panics").law, "L-OUT-8");
    let stuck = Sim::new(1).process("ann", |_| std::future::pending());
    assert_eq!(stuck.run().violation.expect("it never ends").law, "L-OUT-5");
}
