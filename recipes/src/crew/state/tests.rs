//! The next step of a master, by the state that it knows.

use std::num::NonZeroU32;

use synod_core::clock;
use synod_core::path::Path;
use synod_core::store::{Revision, SessionId, Stat};
use synod_core::value::encode;

use super::*;
use crate::crew::submitting::NewTask;
use crate::crew::worker::{CrewWorker, WorkerRecord};

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

fn assigned(worker: &str, task: &str) -> Node {
    node(&format!("/assigned/{worker}/{task}"), 1, None, Bytes::new())
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

/// Creates the state of a crew that is not paused.
fn state() -> CrewState {
    let mut state = CrewState::default();
    state.set_switch(&switched(false));
    state
}

fn add_waiting(state: &mut CrewState, node: &Node) {
    state.add_waiting(node, |_terms| Duration::ZERO, clock::now());
}

fn two() -> CrewWorker {
    CrewWorker::new().capacity(NonZeroU32::new(2).expect("not zero"))
}

/// Returns the next steps: the tasks and their workers, with `-` before a task that is taken back.
fn next_steps(state: &mut CrewState) -> Vec<(String, String)> {
    let steps = std::iter::from_fn(|| state.next_step(clock::now()));
    let assigned = steps.map(|step| match step {
        MasterStep::Assign { task, worker, .. } => (task, worker),
        MasterStep::TakeBack { task, worker, .. } => (format!("-{task}"), worker),
        MasterStep::Expire { .. } | MasterStep::Remove { .. } => {
            unreachable!("the state of a crew chooses no such step")
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
    let mut state = state();
    for (place, task) in (5..).zip(["e", "d", "c", "b"]) {
        add_waiting(&mut state, &todo(task, place, &NewTask::new("")));
    }
    add_waiting(&mut state, &todo("urgent", 9, &NewTask::new("").priority(-1)));
    add_waiting(&mut state, &node("/todo/other", 1, None, Bytes::from_static(b"not ours")));
    assert_eq!(next_steps(&mut state), [], "there is no worker");
    state.add_worker(&worker("ann", &two()));
    state.add_worker(&worker("bob", &CrewWorker::new()));
    // A node without an owner is not a worker.
    state.add_worker(&node("/workers/cid", 1, None, record(&two(), false)));

    let expected = [("urgent", "ann"), ("e", "bob"), ("d", "ann")];
    assert_eq!(next_steps(&mut state), pairs(&expected));
    state.remove_assignment("bob", "d");
    assert_eq!(next_steps(&mut state), [], "bob does not have it");
    state.remove_assignment("bob", "e");
    assert_eq!(next_steps(&mut state), pairs(&[("c", "bob")]));
}

#[test]
fn a_task_waits_for_a_worker_that_has_what_it_needs() {
    let mut state = state();
    add_waiting(&mut state, &todo("a", 1, &NewTask::new("").needs("gpu", "yes")));
    add_waiting(&mut state, &todo("b", 2, &NewTask::new("")));
    state.add_worker(&worker("ann", &two().property("gpu", "no")));
    assert_eq!(next_steps(&mut state), pairs(&[("b", "ann")]));
    state.add_worker(&worker("bob", &two().property("gpu", "yes").property("disk", "big")));
    assert_eq!(next_steps(&mut state), pairs(&[("a", "bob")]));
}

#[test]
fn a_reported_assignment_stays_when_its_repetition_is_rejected() {
    for outcome in [StepOutcome::Elsewhere, StepOutcome::OtherWorker] {
        let mut state = state();
        state.add_worker(&worker("ann", &two()));
        add_waiting(&mut state, &todo("a", 1, &NewTask::new("")));
        let step = state.next_step(clock::now()).expect("it is assigned");
        state.add_assignment("ann", &assigned("ann", "a"));

        state.record_outcome(step, outcome, clock::now());

        state.remove_worker("ann");
        let taken_back = pairs(&[("-a", "ann")]);
        assert!(next_steps(&mut state).ends_with(&taken_back), "{outcome:?}");
    }
}

#[test]
fn a_drained_worker_gets_nothing_and_keeps_what_it_has() {
    let mut state = state();
    state.add_worker(&worker("ann", &two()));
    add_waiting(&mut state, &todo("a", 1, &NewTask::new("")));
    assert_eq!(next_steps(&mut state), pairs(&[("a", "ann")]));
    state.add_worker(&node("/workers/ann", 1, Some(7), record(&two(), true)));
    add_waiting(&mut state, &todo("b", 2, &NewTask::new("")));
    assert_eq!(next_steps(&mut state), []);
    assert_eq!(state.holder("a"), Some("ann"));
    state.add_worker(&worker("bob", &two()));
    assert_eq!(next_steps(&mut state), pairs(&[("b", "bob")]));
}

#[test]
fn a_paused_crew_assigns_nothing_and_takes_back_tasks_of_lost_workers() {
    let mut state = state();
    state.add_worker(&worker("ann", &two()));
    add_waiting(&mut state, &todo("a", 1, &NewTask::new("")));
    assert_eq!(next_steps(&mut state), pairs(&[("a", "ann")]));
    state.set_switch(&switched(true));
    add_waiting(&mut state, &todo("b", 2, &NewTask::new("")));
    state.add_worker(&worker("bob", &two()));
    state.remove_worker("ann");
    assert_eq!(next_steps(&mut state), pairs(&[("-a", "ann")]));
    state.set_switch(&switched(false));
    assert_eq!(next_steps(&mut state), pairs(&[("b", "bob")]));
}

#[test]
fn the_tasks_of_a_worker_that_is_gone_are_taken_back_once() {
    let mut state = state();
    state.add_worker(&worker("ann", &two()));
    add_waiting(&mut state, &todo("a", 1, &NewTask::new("")));
    assert_eq!(next_steps(&mut state), pairs(&[("a", "ann")]));
    state.remove_worker("ann");
    assert_eq!(next_steps(&mut state), pairs(&[("-a", "ann")]));
    assert_eq!(next_steps(&mut state), []);

    // The task waits again, in another incarnation. The end of the first one is reported late.
    add_waiting(&mut state, &todo("a", 2, &NewTask::new("")));
    state.remove_waiting(&todo("a", 1, &NewTask::new("")));
    state.add_worker(&worker("bob", &two()));
    assert_eq!(next_steps(&mut state), pairs(&[("a", "bob")]));
    state.add_assignment("cid", &assigned("cid", "b"));
    assert_eq!(next_steps(&mut state), pairs(&[("-b", "cid")]), "an unknown worker has it");

    state.forget_workers();
    state.find_orphans();
    assert_eq!(next_steps(&mut state).len(), 2);
    assert_eq!(state.holder("a"), Some("bob"));
}

#[test]
fn a_task_in_its_pause_blocks_no_other() {
    let (mut state, now) = (state(), clock::now());
    let second = Duration::from_secs(1);
    state.add_worker(&worker("ann", &two()));
    state.add_waiting(&todo("a", 1, &NewTask::new("").priority(-9)), |_terms| 5 * second, now);
    state.add_waiting(&todo("never", 2, &NewTask::new("")), |_terms| Duration::MAX, now);
    state.add_waiting(&todo("b", 3, &NewTask::new("")), |_terms| Duration::ZERO, now);
    let mut assigned = |after: Duration| match state.next_step(now + after) {
        Some(MasterStep::Assign { task, .. }) => Some(task),
        _ => None,
    };
    assert_eq!(assigned(Duration::ZERO).as_deref(), Some("b"));
    assert_eq!(assigned(4 * second), None);
    assert_eq!(assigned(5 * second).as_deref(), Some("a"));
    assert_eq!(state.next_due(), Some(now + FAR_FUTURE));
    assert!(state.knows("never") && state.remove_waiting_task("never") && !state.knows("never"));
}

#[test]
fn an_assignment_that_ends_unreported_leaves_its_worker_free() {
    let (mut state, now) = (state(), clock::now());
    state.add_worker(&worker("ann", &CrewWorker::new()));
    for (place, task) in (1..).zip(["a", "b", "c"]) {
        add_waiting(&mut state, &todo(task, place, &NewTask::new("")));
    }
    let step = state.next_step(now).expect("ann is free");
    state.record_outcome(step, StepOutcome::Applied, now);
    assert_eq!((state.next_step(now), state.next_due()), (None, Some(now + MAX_UNREPORTED)));

    let step = state.next_step(now + MAX_UNREPORTED).expect("there was no such task");
    assert_eq!(step.task(), "b");
    state.record_outcome(step, StepOutcome::Applied, now + MAX_UNREPORTED);
    state.add_assignment("ann", &assigned("ann", "b"));
    assert_eq!(
        (state.next_step(now + 9 * MAX_UNREPORTED), state.next_due()),
        (None, None),
        "the assignment is reported"
    );
}

#[test]
fn a_node_that_is_no_longer_a_worker_gets_nothing() {
    let mut state = state();
    state.add_worker(&worker("ann", &two()));
    state.add_worker(&node("/workers/ann", 1, Some(7), Bytes::from_static(b"not ours")));
    add_waiting(&mut state, &todo("a", 1, &NewTask::new("")));
    assert_eq!(next_steps(&mut state), []);
}

#[test]
fn a_task_for_which_the_policy_panics_is_set_aside() {
    let policy = CrewPolicy::chosen(|task, _| {
        assert_ne!(task.id, "a", "on purpose");
        Some(0)
    });
    let mut state = CrewState::new(policy);
    state.set_switch(&switched(false));
    state.add_worker(&worker("ann", &two()));
    for (place, task) in (1..).zip(["a", "b"]) {
        add_waiting(&mut state, &todo(task, place, &NewTask::new("")));
    }
    let before = clock::now();
    assert_eq!(next_steps(&mut state), pairs(&[("b", "ann")]));
    assert!(state.next_due().is_some_and(|at| at >= before + AFTER_PANIC));
    assert!(state.knows("a"));
}

fn queued(since: u64, new: NewTask) -> Queued {
    let (version, since) = (Version::new(0), Revision::new(since));
    Queued { version, since, terms: new.terms, stored: Bytes::new() }
}

fn names(queue: &TodoQueue, are_met: impl Fn(&Needs) -> bool) -> Vec<&str> {
    queue.with_needs_met(are_met).map(|(task, _)| task).collect()
}

#[test]
fn tasks_with_different_needs_are_in_one_order() {
    let (mut queue, plain) = (TodoQueue::default(), || NewTask::new(""));
    let gpu = || plain().needs("gpu", "yes");
    for (since, (task, new)) in (1..).zip([
        ("third", plain()),
        ("fourth", gpu()),
        ("fifth", plain()),
        ("first", gpu().priority(-1)),
        ("sixth", gpu()),
        ("second", plain().priority(-1)),
    ]) {
        queue.insert(task, queued(since, new));
    }
    let all = ["first", "second", "third", "fourth", "fifth", "sixth"];
    assert_eq!(names(&queue, |_| true), all);
    assert_eq!(names(&queue, Needs::is_empty), ["second", "third", "fifth"]);
    assert_eq!(queue.remove("fourth").map(|it| it.since), Some(Revision::new(2)));
    // A task that is inserted again waits once.
    queue.insert("first", queued(9, plain()));
    assert_eq!(names(&queue, |_| true), ["second", "third", "fifth", "sixth", "first"]);
    for task in ["sixth", "second", "third", "fifth", "first"] {
        assert!(!queue.is_empty() && queue.remove(task).is_some());
    }
    assert!(queue.is_empty() && queue.ready.is_empty() && queue.remove("first").is_none());
}

#[test]
fn a_task_in_its_pause_is_known_and_not_ready() {
    let (mut queue, now) = (TodoQueue::default(), clock::now());
    let after = |seconds| now + Duration::from_secs(seconds);
    queue.insert("a", queued(1, NewTask::new("")));
    queue.insert_resting("a", queued(1, NewTask::new("")), after(5));
    queue.insert_resting("b", queued(2, NewTask::new("")), after(3));
    queue.insert_resting("c", queued(3, NewTask::new("")), after(4));
    assert!(queue.is_empty() && queue.contains("a"));
    assert_eq!((queue.since("b"), queue.next_wake()), (Some(Revision::new(2)), Some(after(3))));
    assert!(queue.remove("c").is_some());

    queue.wake(after(2));
    assert!(queue.is_empty());
    queue.wake(after(3));
    assert_eq!((names(&queue, |_| true), queue.next_wake()), (vec!["b"], Some(after(5))));
    queue.wake(after(9));
    assert_eq!((names(&queue, |_| true), queue.next_wake()), (vec!["a", "b"], None));
    queue.insert_resting("b", queued(2, NewTask::new("")), after(30));
    queue.clear();
    assert!(queue.is_empty() && !queue.contains("b") && queue.next_wake().is_none());
}
