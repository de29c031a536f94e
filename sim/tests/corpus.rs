//! Saved failures do not fail again, and would still be found.

use synod_sim::{Personality, Sim, corpus, workload};

/// Failures without a known mistake of that name: the workload, and the seed.
const OURS: [(&str, Personality, u64); 11] = [
    // A ticket was created again under its name, and a candidate that had it before its own waited
    // for it although it was later.
    ("election", Personality::Etcd, 0x0061_470e_874b),
    // A dropped create had been sent twice: the second arrived after the node of the first was
    // removed, and its node stayed.
    ("mutex", Personality::Etcd, 0x633a),
    // The check mistook nodes that had just been dropped for nodes of an attempt.
    ("multi", Personality::Zk, 0x2_c4c2_5d4b),
    // A write under a writer's ticket arrived after the writer was downgraded, while others also
    // read.
    ("rwlock", Personality::Etcd, 0x2_c4c2_5ba5),
    // The first of two requests for a ticket was held by a server without its leader for longer
    // than the session looked for its node, which then stayed.
    ("tickets", Personality::Etcd, 0x5913),
    // The simulated store answered a heartbeat ahead of a ping and a report that were on their way
    // when a server was cut off, which cannot happen on a connection that continues.
    ("selector", Personality::Zk, 0x79_aa7a_6212),
    // The check mistook a node that a delayed request created for the ticket that a stranger had
    // removed.
    ("unfair", Personality::Etcd, 0x33ab),
    // The check did not recognize the node of a repeated create after one stranger had written to
    // it and another had removed it.
    ("tickets", Personality::Etcd, 0x042c_4d51),
    // The check did not know that a set whose request had no answer may be applied after the last
    // lift.
    ("barrier", Personality::Etcd, 0x7a_4f0b),
    // The check gave the watch too little time: its client tried a server that was down for ever.
    ("watchers", Personality::Etcd, 0xac_ed25),
    // A cancelled task was reported before its assignment, and its master, whose clock was a year
    // ahead, removed the task while its worker had it.
    ("crew", Personality::Etcd, 0xd1_3726_8bb3),
];

#[test]
fn each_history_is_saved_once_and_in_order() {
    let all = corpus::all().expect("each can be read");
    let names: Vec<_> = all.into_iter().map(|(name, _)| name).collect();
    let mut sorted = names.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(names, sorted, "`dev/corpus` writes them in order");
    assert!(names.len() >= 20, "only {} are saved", names.len());
}

#[test]
fn what_failed_once_does_not_fail_again() {
    for (name, case) in corpus::all().expect("each can be read") {
        let mut honest = case.clone();
        honest.mutant = None;
        let report = honest.run(false).expect("it can be run");
        assert!(report.violation.is_none(), "{name} fails again: {report}");
    }
}

#[test]
fn what_was_a_mistake_of_our_own_once_does_not_fail_again() {
    for (name, personality, seed) in OURS {
        let workload = workload::ALL.iter().find(|it| it.name() == name).expect("there is one");
        let report = workload.prepare(Sim::new(seed).personality(personality)).run();
        assert!(report.violation.is_none(), "{name} fails again: {report}");
    }
}

#[test]
fn what_failed_once_still_fails_with_the_mistake_that_it_was() {
    let mut idle = Vec::new();
    for (name, case) in corpus::all().expect("each can be read") {
        assert!(case.mutant.is_some(), "{name} names no mistake that it would find");
        let law = case.run(false).expect("it can be run").violation.map(|it| it.law);
        if law != case.law {
            idle.push(format!("{name}: {:?} is to be broken, and {law:?} is", case.law));
        }
    }
    assert!(
        idle.is_empty(),
        "these say nothing any more; find them anew with `dev/corpus`:\n{}",
        idle.join("\n")
    );
}
