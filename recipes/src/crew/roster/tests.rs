//! The next step of a master, by what it knows.

use std::num::NonZeroU32;

use synod_core::clock;
use synod_core::path::Path;
use synod_core::store::{Revision, SessionId, Stat};
use synod_core::value::encode;

use super::*;
use crate::crew::crew_worker::CrewWorker;
use crate::crew::new_task::NewTask;
use crate::crew::worker_record::WorkerRecord;

fn node(path: &str, created: u64, owner: Option<u64>, data: Bytes) -> Node {
    let (created, written) = (Revision::new(created), Revision::new(created + 1));
    let stat = Stat::new(created, written, Version::new(0), owner.map(SessionId::new));
    Node::new(Path::new(path).expect("valid")).with(data, stat)
}

fn todo(task: &str, created: u64, new: &NewTask) -> Node {
    let path = Path::new(&format!("/todo/{task}")).expect("valid");
    let data = encode(&path, &new.terms).expect("JSON");
    node(path.as_str(), created, None, data)
}

fn worker(name: &str, offers: &CrewWorker) -> Node {
    let path = Path::new(&format!("/workers/{name}")).expect("valid");
    node(path.as_str(), 1, Some(7), record(offers, false))
}

fn record(offers: &CrewWorker, drained: bool) -> Bytes {
    encode(&Path::root(), &WorkerRecord::new(offers, drained)).expect("JSON")
}

fn switched(paused: bool) -> Node {
    let data = encode(&Path::root(), &CrewSwitch { paused }).expect("JSON");
    node("/switch", 1, None, data)
}

/// Of a crew that is not paused.
fn roster() -> CrewRoster {
    let mut roster = CrewRoster::default();
    roster.is_switched(&switched(false));
    roster
}

fn waits(roster: &mut CrewRoster, node: &Node) {
    roster.waits(node, |_terms| Duration::ZERO, clock::now());
}

fn two() -> CrewWorker {
    CrewWorker::new().capacity(NonZeroU32::new(2).expect("not zero"))
}

/// The tasks that are assigned next, each with its worker.
fn assigns(roster: &mut CrewRoster) -> Vec<(String, String)> {
    let steps = std::iter::from_fn(|| roster.next(clock::now()));
    let assigned = steps.map(|step| match step {
        MasterStep::Assign { task, worker, .. } => (task, worker),
        MasterStep::TakeBack { task, worker, .. } => (format!("-{task}"), worker),
        MasterStep::Expire { .. } | MasterStep::Remove { .. } => {
            unreachable!("a roster ends nothing")
        }
    });
    assigned.collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(task, worker): &(&str, &str)| ((*task).to_owned(), (*worker).to_owned());
    expected.iter().map(owned).collect()
}

#[test]
fn the_least_loaded_worker_gets_the_first_task_up_to_its_capacity() {
    let mut roster = roster();
    for (place, task) in (5..).zip(["e", "d", "c", "b"]) {
        waits(&mut roster, &todo(task, place, &NewTask::new("")));
    }
    waits(&mut roster, &todo("urgent", 9, &NewTask::new("").priority(1)));
    waits(&mut roster, &node("/todo/other", 1, None, Bytes::from_static(b"not ours")));
    assert_eq!(assigns(&mut roster), [], "there is no worker");
    roster.is_there(&worker("ann", &two()));
    roster.is_there(&worker("bob", &CrewWorker::new()));
    // A node that no session owns is no worker.
    roster.is_there(&node("/workers/cid", 1, None, record(&two(), false)));

    let expected = [("urgent", "ann"), ("e", "bob"), ("d", "ann")];
    assert_eq!(assigns(&mut roster), pairs(&expected));
    roster.gave_up("bob", "d");
    assert_eq!(assigns(&mut roster), [], "it was not his");
    roster.gave_up("bob", "e");
    assert_eq!(assigns(&mut roster), pairs(&[("c", "bob")]));
}

#[test]
fn a_task_waits_for_a_worker_that_has_what_it_needs() {
    let mut roster = roster();
    waits(&mut roster, &todo("a", 1, &NewTask::new("").needs("gpu", "yes")));
    waits(&mut roster, &todo("b", 2, &NewTask::new("")));
    roster.is_there(&worker("ann", &two().property("gpu", "no")));
    assert_eq!(assigns(&mut roster), pairs(&[("b", "ann")]));
    roster.is_there(&worker("bob", &two().property("gpu", "yes").property("disk", "big")));
    assert_eq!(assigns(&mut roster), pairs(&[("a", "bob")]));
}

#[test]
fn an_assignment_that_is_seen_stays_when_its_repetition_is_refused() {
    for outcome in [StepOutcome::Elsewhere, StepOutcome::OtherWorker] {
        let mut roster = roster();
        roster.is_there(&worker("ann", &two()));
        waits(&mut roster, &todo("a", 1, &NewTask::new("")));
        let step = roster.next(clock::now()).expect("it is assigned");
        roster.has("ann", "a", Bytes::new());

        roster.came_to(step, outcome, clock::now());

        roster.is_gone("ann");
        let taken_back = pairs(&[("-a", "ann")]);
        assert!(assigns(&mut roster).ends_with(&taken_back), "{outcome:?}");
    }
}

#[test]
fn a_drained_worker_gets_nothing_and_keeps_what_it_has() {
    let mut roster = roster();
    roster.is_there(&worker("ann", &two()));
    waits(&mut roster, &todo("a", 1, &NewTask::new("")));
    assert_eq!(assigns(&mut roster), pairs(&[("a", "ann")]));
    roster.is_there(&node("/workers/ann", 1, Some(7), record(&two(), true)));
    waits(&mut roster, &todo("b", 2, &NewTask::new("")));
    assert_eq!(assigns(&mut roster), []);
    assert_eq!(roster.holder("a"), Some("ann"));
    roster.is_there(&worker("bob", &two()));
    assert_eq!(assigns(&mut roster), pairs(&[("b", "bob")]));
}

#[test]
fn a_paused_crew_assigns_nothing_and_takes_back_what_the_lost_had() {
    let mut roster = roster();
    roster.is_there(&worker("ann", &two()));
    waits(&mut roster, &todo("a", 1, &NewTask::new("")));
    assert_eq!(assigns(&mut roster), pairs(&[("a", "ann")]));
    roster.is_switched(&switched(true));
    waits(&mut roster, &todo("b", 2, &NewTask::new("")));
    roster.is_there(&worker("bob", &two()));
    roster.is_gone("ann");
    assert_eq!(assigns(&mut roster), pairs(&[("-a", "ann")]));
    roster.is_switched(&switched(false));
    assert_eq!(assigns(&mut roster), pairs(&[("b", "bob")]));
}

#[test]
fn the_tasks_of_a_worker_that_is_gone_are_taken_back_once() {
    let mut roster = roster();
    roster.is_there(&worker("ann", &two()));
    waits(&mut roster, &todo("a", 1, &NewTask::new("")));
    assert_eq!(assigns(&mut roster), pairs(&[("a", "ann")]));
    roster.is_gone("ann");
    assert_eq!(assigns(&mut roster), pairs(&[("-a", "ann")]));
    assert_eq!(assigns(&mut roster), []);

    // It waits again, in another incarnation. The end of the first one is reported late.
    waits(&mut roster, &todo("a", 2, &NewTask::new("")));
    roster.waits_no_more(&todo("a", 1, &NewTask::new("")));
    roster.is_there(&worker("bob", &two()));
    assert_eq!(assigns(&mut roster), pairs(&[("a", "bob")]));
    roster.has("cid", "b", Bytes::new());
    assert_eq!(assigns(&mut roster), pairs(&[("-b", "cid")]), "of a worker that is not known");

    roster.forget_workers();
    roster.find_orphans();
    assert_eq!(assigns(&mut roster).len(), 2);
    assert_eq!(roster.holder("a"), Some("bob"));
}

#[test]
fn a_task_whose_pause_is_not_over_is_in_the_way_of_no_other() {
    let (mut roster, now) = (roster(), clock::now());
    let second = Duration::from_secs(1);
    roster.is_there(&worker("ann", &two()));
    roster.waits(&todo("a", 1, &NewTask::new("").priority(9)), |_terms| 5 * second, now);
    roster.waits(&todo("never", 2, &NewTask::new("")), |_terms| Duration::MAX, now);
    roster.waits(&todo("b", 3, &NewTask::new("")), |_terms| Duration::ZERO, now);
    let mut assigned = |after: Duration| match roster.next(now + after) {
        Some(MasterStep::Assign { task, .. }) => Some(task),
        _ => None,
    };
    assert_eq!(assigned(Duration::ZERO).as_deref(), Some("b"));
    assert_eq!(assigned(4 * second), None);
    assert_eq!(assigned(5 * second).as_deref(), Some("a"));
    assert_eq!(roster.next_due(), Some(now + FAR));
    assert!(roster.knows("never") && roster.ends("never") && !roster.knows("never"));
}

#[test]
fn an_assignment_that_comes_and_goes_unseen_leaves_its_worker_free() {
    let (mut roster, now) = (roster(), clock::now());
    roster.is_there(&worker("ann", &CrewWorker::new()));
    for (place, task) in (1..).zip(["a", "b", "c"]) {
        waits(&mut roster, &todo(task, place, &NewTask::new("")));
    }
    let step = roster.next(now).expect("ann is free");
    roster.came_to(step, StepOutcome::Applied, now);
    assert_eq!((roster.next(now), roster.next_due()), (None, Some(now + UNSEEN)));

    let step = roster.next(now + UNSEEN).expect("there was no such task");
    assert_eq!(step.task(), "b");
    roster.came_to(step, StepOutcome::Applied, now + UNSEEN);
    roster.has("ann", "b", Bytes::new());
    assert_eq!((roster.next(now + 9 * UNSEEN), roster.next_due()), (None, None), "it is seen");
}

#[test]
fn a_node_that_is_no_worker_any_more_gets_nothing() {
    let mut roster = roster();
    roster.is_there(&worker("ann", &two()));
    roster.is_there(&node("/workers/ann", 1, Some(7), Bytes::from_static(b"not ours")));
    waits(&mut roster, &todo("a", 1, &NewTask::new("")));
    assert_eq!(assigns(&mut roster), []);
}

#[test]
fn a_task_for_which_the_policy_panics_is_set_aside() {
    let policy = CrewPolicy::chosen(|task, _| {
        assert_ne!(task.id, "a", "on purpose");
        Some(0)
    });
    let mut roster = CrewRoster::new(policy);
    roster.is_switched(&switched(false));
    roster.is_there(&worker("ann", &two()));
    for (place, task) in (1..).zip(["a", "b"]) {
        waits(&mut roster, &todo(task, place, &NewTask::new("")));
    }
    let before = clock::now();
    assert_eq!(assigns(&mut roster), pairs(&[("b", "ann")]));
    assert!(roster.next_due().is_some_and(|at| at >= before + AFTER_PANIC));
    assert!(roster.knows("a"));
}
