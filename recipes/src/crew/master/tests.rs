//! The state of a master after its directories were reported, and reported anew.

use bytes::Bytes;
use synod_core::store::{Revision, SessionId, Stat, Version};
use synod_core::value::encode;

use crate::crew::layout::CrewSwitch;
use crate::crew::submitting::NewTask;
use crate::crew::worker::{CrewWorker, WorkerRecord};
use super::*;

const HOUR: Duration = Duration::from_secs(60 * 60);

fn paths() -> CrewPaths {
    CrewPaths::of(&Path::new("/crew").expect("valid")).expect("short")
}

/// A node below the crew that was created at this revision, and written at the next one.
fn node(below: &str, created: u64, data: Bytes) -> Node {
    let path = Path::new(&format!("/crew/{below}")).expect("valid");
    let (created, written) = (Revision::new(created), Revision::new(created + 1));
    let owner = below.starts_with("workers/").then(|| SessionId::new(7));
    Node::new(path).with(data, Stat::new(created, written, Version::new(0), owner))
}

/// A node of a task that waits or is assigned, and expires after this time.
fn task(below: &str, created: u64, time: Duration) -> Node {
    let terms = NewTask::new("").terms.submitted(date(), Some(time));
    node(below, created, encode(&Path::root(), &terms).expect("JSON"))
}

fn worker(name: &str) -> Node {
    let record = WorkerRecord::new(&CrewWorker::new(), false);
    node(&format!("workers/{name}"), 1, encode(&Path::root(), &record).expect("JSON"))
}

/// Creates the master of a crew that is not paused, to which these nodes were reported.
fn master(paths: &CrewPaths, retention: Duration, there: Vec<(CrewDir, Node)>) -> MasterTerm<'_> {
    let mut master = MasterTerm::new(paths, retention, CrewPolicy::default());
    let switch = encode(&Path::root(), &CrewSwitch { paused: false }).expect("JSON");
    master.apply(CrewChange::Set(CrewDir::Switch, node("switch", 1, switch)));
    for (dir, node) in there {
        master.apply(CrewChange::Set(dir, node));
    }
    master.apply(CrewChange::Complete);
    master
}

/// Reports a directory anew, with these nodes.
fn reset(master: &mut MasterTerm<'_>, dir: CrewDir, there: Vec<Node>) {
    master.apply(CrewChange::Reset(dir));
    for node in there {
        master.apply(CrewChange::Set(dir, node));
    }
    master.apply(CrewChange::Complete);
}

/// Returns the kind of the next step, and its task.
fn next(master: &mut MasterTerm<'_>) -> Option<(&'static str, String)> {
    let step = master.next_step()?;
    let kind = match step {
        MasterStep::Assign { .. } => "assign",
        MasterStep::TakeBack { .. } => "take back",
        MasterStep::Expire { .. } => "expire",
        MasterStep::Remove { .. } => "remove",
    };
    Some((kind, step.task().to_owned()))
}

fn some(kind: &'static str, task: &str) -> Option<(&'static str, String)> {
    Some((kind, task.to_owned()))
}

#[test]
fn a_worker_that_is_missing_in_a_new_report_is_gone() {
    let paths = paths();
    let assigned = (CrewDir::Assigned, task("assigned/ann/a", 2, HOUR));
    let there = vec![(CrewDir::Workers, worker("ann")), assigned];
    let mut master = master(&paths, HOUR, there);
    assert_eq!(next(&mut master), None);

    reset(&mut master, CrewDir::Workers, vec![worker("bob")]);

    assert_eq!(next(&mut master), some("take back", "a"));
    assert_eq!(next(&mut master), None, "once");
}

#[test]
fn a_deadline_is_kept_as_long_as_its_task_across_new_reports() {
    let paths = paths();
    let waits = |name: &str, time| task(&format!("todo/{name}"), 2, time);
    let there = vec![(CrewDir::Todo, waits("late", Duration::ZERO))];
    let mut late = master(&paths, HOUR, there);
    assert_eq!(next(&mut late), some("expire", "late"));

    let there = vec![(CrewDir::Todo, waits("a", HOUR)), (CrewDir::Todo, waits("b", HOUR))];
    let mut master = master(&paths, HOUR, there);
    reset(&mut master, CrewDir::Todo, vec![waits("a", HOUR)]);
    assert!(master.deadlines.next_due().is_some());
    reset(&mut master, CrewDir::Todo, vec![]);
    assert_eq!(master.deadlines.next_due(), None, "of tasks that are gone");
}

#[test]
fn a_deadline_is_kept_when_the_end_of_an_earlier_attempt_is_reported_late() {
    let paths = paths();
    let there = vec![(CrewDir::Workers, worker("ann")), (CrewDir::Todo, task("todo/a", 5, HOUR))];
    let mut master = master(&paths, HOUR, there);
    let assigns = master.next_step().expect("ann is free");
    // The earlier attempt, of the same worker.
    master.apply(CrewChange::Removed(CrewDir::Assigned, task("assigned/ann/a", 2, HOUR)));

    master.record_outcome(assigns, StepOutcome::NotNow);

    assert_eq!(next(&mut master), some("assign", "a"));
    assert!(master.deadlines.next_due().is_some());
}

#[test]
fn a_rejected_assignment_does_not_affect_a_later_wait_of_its_task() {
    let paths = paths();
    let there = vec![(CrewDir::Workers, worker("ann")), (CrewDir::Todo, task("todo/a", 2, HOUR))];
    let mut master = master(&paths, HOUR, there);
    let assigns = master.next_step().expect("ann is free");
    master.apply(CrewChange::Set(CrewDir::Todo, task("todo/a", 9, HOUR)));

    master.record_outcome(assigns, StepOutcome::NotNow);

    match master.next_step() {
        Some(MasterStep::Assign { queued, .. }) => assert_eq!(queued.since, Revision::new(9)),
        step => panic!("{step:?} is no assignment"),
    }
    assert_eq!(next(&mut master), None, "it waits once");
}

#[test]
fn a_finished_task_is_removed_only_when_no_step_and_no_worker_has_it() {
    let paths = paths();
    let there = vec![
        (CrewDir::Workers, worker("ann")),
        (CrewDir::Assigned, task("assigned/ann/a", 2, HOUR)),
        (CrewDir::Todo, task("todo/late", 3, Duration::ZERO)),
    ];
    let mut master = master(&paths, Duration::ZERO, there);
    let expires = master.next_step().expect("it is late");
    for name in ["done/a", "done/late", "done/other"] {
        master.apply(CrewChange::Set(CrewDir::Done, node(name, 7, Bytes::new())));
    }
    assert_eq!(next(&mut master), some("remove", "other"));
    assert_eq!(next(&mut master), None);

    master.record_outcome(expires, StepOutcome::Applied);
    master.apply(CrewChange::Removed(CrewDir::Assigned, task("assigned/ann/a", 2, HOUR)));
    assert!(master.finished.next_due().is_some(), "they are checked again");
    reset(&mut master, CrewDir::Done, vec![]);
    assert_eq!(master.finished.next_due(), None, "they are gone");
}

#[test]
fn a_finished_task_is_removed_only_if_the_last_worker_that_may_have_it_does_not() {
    let paths = paths();
    let there = vec![(CrewDir::Workers, worker("ann")), (CrewDir::Todo, task("todo/a", 5, HOUR))];
    let mut master = master(&paths, Duration::ZERO, there);
    let done = || CrewChange::Set(CrewDir::Done, node("done/a", 9, Bytes::new()));
    let removal = |possible_holder: Option<&str>| {
        let possible_holder = possible_holder.map(str::to_owned);
        Some(MasterStep::Remove { task: "a".to_owned(), possible_holder })
    };
    let assigns = master.next_step().expect("ann is free");
    master.record_outcome(assigns, StepOutcome::Applied);

    // It was cancelled. Its assignment is not reported yet.
    master.apply(done());
    assert_eq!(master.next_step(), removal(Some("ann")));

    // An earlier assignment to this worker proves nothing about the last one.
    for earlier in [CrewChange::Set, CrewChange::Removed] {
        master.apply(earlier(CrewDir::Assigned, task("assigned/ann/a", 2, HOUR)));
    }
    master.finished.put_off("a", clock::now(), Duration::ZERO);
    assert_eq!(master.next_step(), removal(Some("ann")));

    let last = || task("assigned/ann/a", 6, HOUR);
    master.apply(CrewChange::Set(CrewDir::Assigned, last()));
    master.finished.put_off("a", clock::now(), Duration::ZERO);
    assert_eq!(master.next_step(), None, "ann has it");
    master.apply(CrewChange::Removed(CrewDir::Assigned, last()));
    master.finished.put_off("a", clock::now(), Duration::ZERO);
    assert_eq!(master.next_step(), removal(None), "ann has given it up");
}

#[test]
fn an_assignment_that_the_store_rejected_may_have_been_made() {
    let paths = paths();
    let there = vec![(CrewDir::Workers, worker("ann")), (CrewDir::Todo, task("todo/a", 5, HOUR))];
    let mut master = master(&paths, Duration::ZERO, there);
    let assigns = master.next_step().expect("ann is free");
    master.record_outcome(assigns, StepOutcome::Elsewhere);
    master.apply(CrewChange::Set(CrewDir::Done, node("done/a", 9, Bytes::new())));

    let possible_holder = Some("ann".to_owned());
    let removal = MasterStep::Remove { task: "a".to_owned(), possible_holder };
    assert_eq!(master.next_step(), Some(removal));

    for is_reload in [false, true] {
        if is_reload {
            reset(&mut master, CrewDir::Done, vec![]);
        } else {
            master.apply(CrewChange::Removed(CrewDir::Done, node("done/a", 9, Bytes::new())));
        }
        assert_eq!(master.state.possible_holder("a"), None, "the task is gone");
        master.apply(CrewChange::Set(CrewDir::Todo, task("todo/a", 11, HOUR)));
        assert!(matches!(master.next_step(), Some(MasterStep::Assign { .. })));
        master.apply(CrewChange::Set(CrewDir::Done, node("done/a", 15, Bytes::new())));
        assert!(master.state.possible_holder("a").is_some(), "a later task of this name");
    }
}

#[test]
fn a_step_that_the_store_rejects_is_tried_again_later() {
    let paths = paths();
    let there = vec![
        (CrewDir::Workers, worker("ann")),
        (CrewDir::Todo, task("todo/a", 2, HOUR)),
        (CrewDir::Todo, task("todo/late", 3, Duration::ZERO)),
        (CrewDir::Assigned, task("assigned/lost/b", 4, HOUR)),
        (CrewDir::Done, node("done/c", 5, Bytes::new())),
    ];
    let mut master = master(&paths, Duration::ZERO, there);
    let kinds = ["expire", "take back", "assign", "remove"];
    let mut steps = Vec::new();
    while let Some(step) = master.next_step() {
        steps.push(step);
    }
    assert_eq!(steps.len(), kinds.len(), "{steps:?}");
    let aside = clock::now() + ASIDE;
    for step in steps {
        master.record_outcome(step, StepOutcome::SetAside);
    }

    assert_eq!(next(&mut master), None);
    assert!(master.deadlines.next_due().is_some_and(|at| at >= aside));
    assert!(master.state.next_due().is_some_and(|at| at >= aside));
    assert!(master.finished.next_due().is_some());
    for kind in ["take back", "assign"] {
        let step = master.state.next_step(clock::now() + ASIDE).expect("it is tried again");
        let task = if kind == "assign" { "a" } else { "b" };
        assert_eq!(step.task(), task, "{kind}");
    }
}
