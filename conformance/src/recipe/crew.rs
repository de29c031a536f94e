//! The crew: each task gets one result, whichever masters, workers and submitters are lost.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, join_all, select};
use synod_core::error::ErrorKind;
use synod_core::store::Expect;
use synod_recipes::crew::{CrewSnapshot, CrewTask, CrewWorker, NewTask, TaskEnd, TaskStatus};
use synod_testkit::fault::{Cue, Site, Verb};
use tokio::time::sleep;

use crate::door::answer;
use crate::door::gate::{Gate, Way};
use crate::recipe::Waiting;
use crate::recipe::crew_members::{
    Slow, at_once, below, by, crew, leads, reads_no_more, reads_only, shown, works, works_as,
};
use crate::world::World;

cases![
    "L-MW-1 L-MW-7" breaks [WakeIsLift] => the_result_of_a_task_reaches_all_that_wait_for_it,
    "L-MW-6 L-MW-1" catches [CreateOverwrites] => a_task_that_is_submitted_again_is_the_same_task,
    "L-MW-6 L-OUT-3" catches [CreateOverwrites] => a_submission_whose_answer_is_lost_is_one_task,
    "L-MW-6 L-OUT-3" needs [Expiry] catches [ExpiryUntold] => a_submission_whose_session_is_lost_is_sent_again,
    "L-MW-1 L-MW-2" breaks [ResultUnguarded] => a_result_of_a_former_worker_is_refused,
    "L-MW-3" needs [Expiry] catches [ExpiryUntoldToWatchers] => the_tasks_of_a_lost_worker_are_done_by_another,
    "L-MW-4 L-MW-1 L-X-2" needs [Expiry] breaks [AssignsInTwoCalls] => no_task_is_lost_when_a_master_ends_at_any_call,
    "L-MW-5" breaks [TxnUnguarded] => a_master_that_was_replaced_assigns_nothing,
    "L-MW-8" catches [CasIgnoresVersion] => no_result_is_accepted_after_a_task_was_cancelled,
    "L-MW-9" catches [EventDropped] => nothing_is_left_of_a_finished_task,
    "L-MW-10" catches [TwoNodesShareCreated] => workers_get_what_they_can_do_by_its_priority,
    "L-MW-11" catches [RecreationUntold EventDropped] => a_failed_attempt_is_repeated_as_often_as_allowed,
    "L-MW-12" breaks [DrainIgnored] => a_drained_worker_gets_no_new_task,
    "L-MW-12" catches [CasNeverMatches] => a_worker_confirms_each_change_of_whether_it_is_drained,
    "L-MW-12" needs [Expiry] breaks [DrainForgotten] => a_drained_worker_stays_drained_in_its_next_session,
    "L-MW-13 L-MW-7" breaks [PauseIgnored] => nothing_is_assigned_while_a_crew_is_paused,
    "L-MW-14" breaks [SnapshotMixesMoments] => a_snapshot_shows_each_task_in_one_place,
];

async fn the_result_of_a_task_reaches_all_that_wait_for_it(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    assert_eq!(answer(answer(crew(&world, &bob).task("none")).wait().await), None);
    let task = world.submits(&ann, "a/b %", "data").await;
    assert_eq!(answer(task.status().await), Some(TaskStatus::Waiting));
    let waits = [&ann, &bob].map(|client| {
        let task = answer(crew(&world, client).task("a/b %"));
        Waiting::new(async move { task.wait().await })
    });
    sleep(world.brief()).await;

    let _master = leads(&world, &ann);
    let _worker = works(&world, &bob, "bob");

    for wait in waits {
        let end = wait.gets(&world, "the end of a task").await;
        assert_eq!(shown(end.as_ref()), "data by bob");
    }
    assert_eq!(answer(task.status().await), Some(TaskStatus::Over(by("data by bob"))));
    assert_eq!(task.id(), "a/b %");
    let more = (0..20).map(async |number| {
        let task = world.submits(&ann, &format!("more-{number}"), "more").await;
        world.ends(&task, by("more by bob")).await;
    });
    join_all(more).await;
}

async fn a_task_that_is_submitted_again_is_the_same_task(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let task = world.submits(&ann, "same", "first").await;
    world.submits(&bob, "same", "second").await;
    let _master = leads(&world, &ann);
    let slow = Slow::default();
    let worker = slow.works(&world, &bob, CrewWorker::new());
    world.eventually("it is begun", async || slow.begun() == 1).await;
    world.submits(&bob, "same", "third").await;
    drop(worker);
    world.eventually("its work is dropped", async || slow.over() == 1).await;

    let _worker = works(&world, &bob, "bob");

    world.ends(&task, by("first by bob")).await;
    let again = world.submits(&bob, "same", "fourth").await;
    world.ends(&again, by("first by bob")).await;
    let refused = crew(&world, &ann).submit("", "no id").await;
    assert_eq!(refused.expect_err("it has no id").kind(), ErrorKind::Invalid);
}

async fn a_submission_whose_answer_is_lost_is_one_task(world: World) {
    let (ann, done) = (world.client().await, Arc::new(AtomicUsize::new(0)));
    let _master = leads(&world, &ann);
    let count = done.clone();
    let _worker = works_as(&world, &ann, CrewWorker::new(), move |_task| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok(Bytes::from_static(b"done")) }
    });
    for site in [Site::ReplyLost, Site::RequestLost, Site::AppliedLate, Site::Unsent] {
        let (bob, plan) = world.scripted([]).await;
        plan.cue(Cue::new(site));
        let before = done.load(Ordering::Relaxed);

        let task = world.submits(&bob, &format!("{site:?}"), "data").await;

        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        world.ends(&task, by("done")).await;
        sleep(world.brief()).await;
        assert_eq!(done.load(Ordering::Relaxed), before + 1, "{site:?}");
    }
}

async fn a_submission_whose_session_is_lost_is_sent_again(world: World) {
    let gate = world.gate();
    let client = world.client_on(gate.clone(), world.options()).await;
    let session = answer(client.session().await);
    let crew = crew(&world, &client);
    gate.hold_behind([(Verb::Commit, gate.count(Verb::Commit))]);
    let submits = Waiting::new(async move { crew.submit("task", "data").await });
    world.in_time("the task is stored", gate.held(1)).await;

    world.expire(session.info().id).await;
    world.in_time("the loss", session.lost()).await;
    gate.hold_behind([]);

    let task = submits.gets(&world, "the task, in the next session").await;
    assert_eq!(answer(task.status().await), Some(TaskStatus::Waiting));
}

/// A worker that has begun a task, and then receives no more notifications.
async fn unaware(world: &World, slow: &Slow, task: &CrewTask) -> (Gate, Waiting<Infallible>) {
    let (gate, working) = reads_only(world, slow).await;
    world.eventually("it is begun", async || slow.begun() == 1).await;
    assert_eq!(answer(task.status().await), Some(TaskStatus::Assigned));
    reads_no_more(&gate);
    (gate, working)
}

async fn a_result_of_a_former_worker_is_refused(world: World) {
    let (ann, slow) = (world.client().await, Slow::default());
    let _master = leads(&world, &ann);
    let task = world.submits(&ann, "task", "data").await;
    let (gate, _unaware) = unaware(&world, &slow, &task).await;
    let workers = below(&ann, &world.at("crew/workers")).await;
    assert_eq!(workers.len(), 1);

    answer(answer(ann.delete(&workers[0].path, Expect::Any).await).required());
    let _worker = works(&world, &ann, "ann");
    world.ends(&task, by("data by ann")).await;
    slow.let_go();

    // The result of the former worker is sent now.
    world.eventually("the former worker is done", async || slow.over() == 1).await;
    sleep(world.brief()).await;
    world.ends(&task, by("data by ann")).await;
    gate.hold_behind(None);
}

async fn the_tasks_of_a_lost_worker_are_done_by_another(world: World) {
    let (ann, gate, slow) = (world.client().await, world.gate(), Slow::default());
    let bob = world.client_on(gate.clone(), world.options()).await;
    let _master = leads(&world, &ann);
    let task = world.submits(&ann, "task", "data").await;
    let _working = slow.works(&world, &bob, CrewWorker::new());
    world.eventually("it is begun", async || slow.begun() == 1).await;
    let _worker = works(&world, &ann, "ann");
    sleep(world.brief()).await;
    // While it is alive, it keeps its task.
    assert_eq!(answer(task.status().await), Some(TaskStatus::Assigned));

    let session = answer(bob.session().await);
    gate.die_after(0);
    world.expire(session.info().id).await;

    world.ends(&task, by("data by ann")).await;
    world.in_time("the loss", session.lost()).await;
    world.eventually("its work is dropped", async || slow.over() == 1).await;
}

async fn no_task_is_lost_when_a_master_ends_at_any_call(world: World) {
    let bob = world.client().await;
    let _worker = works(&world, &bob, "bob");
    world.each_master_ends(&bob, || NewTask::new("data"), by("data by bob")).await;
}

async fn a_master_that_was_replaced_assigns_nothing(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let _master = leads(&world, &ann);
    let first = world.submits(&bob, "first", "data").await;
    let slow = Slow::default();
    let two = CrewWorker::new().capacity(NonZeroU32::new(2).expect("not zero"));
    let _working = slow.works(&world, &bob, two);
    world.eventually("it leads", async || slow.begun() == 1).await;
    assert_eq!(answer(first.status().await), Some(TaskStatus::Assigned));
    let tickets = below(&bob, &world.at("crew/master")).await;

    answer(answer(bob.delete(&tickets[0].path, Expect::Any).await).required());
    world.submits(&bob, "second", "data").await;

    world.eventually("the next one assigns it", async || slow.begun() == 2).await;
    let tickets = below(&bob, &world.at("crew/master")).await;
    let lead = tickets.first().expect("it was assigned while no client led").stat;
    let lead = lead.expect("it is a ticket").created;
    let worker = below(&bob, &world.at("crew/workers")).await[0].path.name().to_owned();
    let assigned = below(&bob, &world.at(&format!("crew/assigned/{worker}"))).await;
    let second = assigned.iter().find(|node| node.path.name() == "second").expect("it has it");
    assert!(second.stat.expect("it is a node").created > lead, "by one that does not lead");
    slow.let_go();
    world.ends(&first, by("slow")).await;
}

async fn no_result_is_accepted_after_a_task_was_cancelled(world: World) {
    let (ann, slow) = (world.client().await, Slow::default());
    let waiting = world.submits(&ann, "waiting", "data").await;
    assert_eq!(answer(waiting.cancel().await), Some(TaskEnd::Cancelled));
    assert_eq!(answer(answer(crew(&world, &ann).task("none")).cancel().await), None);
    let _master = leads(&world, &ann);
    let task = world.submits(&ann, "task", "data").await;
    let (gate, unaware) = unaware(&world, &slow, &task).await;

    assert_eq!(answer(task.cancel().await), Some(TaskEnd::Cancelled));
    slow.let_go();

    world.eventually("its worker is done", async || slow.over() == 1).await;
    sleep(world.brief()).await;
    for cancelled in [waiting, task] {
        assert_eq!(answer(cancelled.wait().await), Some(TaskEnd::Cancelled));
    }
    gate.hold_behind(None);
    drop(unaware);

    // A worker that is notified of it stops.
    let slow = Slow::default();
    let _working = slow.works(&world, &ann, CrewWorker::new());
    let task = world.submits(&ann, "another", "data").await;
    world.eventually("it is begun", async || slow.begun() == 1).await;
    assert_eq!(answer(task.cancel().await), Some(TaskEnd::Cancelled));
    world.eventually("its work is dropped", async || slow.over() == 1).await;
    slow.let_go();
    let task = world.submits(&ann, "done", "data").await;
    world.ends(&task, by("slow")).await;
    assert_eq!(answer(task.cancel().await), Some(by("slow")));
}

async fn nothing_is_left_of_a_finished_task(world: World) {
    let ann = world.client().await;
    let crew = crew(&world, &ann).retention(world.brief());
    let leading = crew.clone();
    let _master = Waiting::new(async move { leading.lead().await });
    let worker = works(&world, &ann, "ann");
    for round in 0..3 {
        let tasks = join_all((0..5).map(|number| {
            let id = format!("{round}-{number}");
            let (world, ann) = (&world, &ann);
            async move { world.submits(ann, &id, "data").await }
        }));
        for task in tasks.await {
            if round == 1 {
                answer(world.in_time("cancelling", task.cancel()).await);
            } else {
                // The task may be over already, and no longer kept.
                let end = answer(world.in_time("the end of a task", task.wait()).await);
                assert!(end.is_none() || end == Some(by("data by ann")), "{task:?}: {end:?}");
            }
        }
    }
    drop(worker);

    for dir in ["tasks", "todo", "assigned", "attempts", "done", "workers"] {
        let dir = world.at("crew").join(dir).expect("it is valid");
        let empty = async || below(&ann, &dir).await.is_empty();
        world.eventually(&format!("nothing is in {dir}"), empty).await;
    }
    assert_eq!(answer(answer(crew.task("0-0")).wait().await), None);
}

async fn workers_get_what_they_can_do_by_its_priority(world: World) {
    let (ann, order) = (world.client().await, Arc::new(Mutex::new(Vec::new())));
    for (id, priority) in [("second", 0), ("fourth", 1), ("not-second", 0), ("first", -7)] {
        world.submits(&ann, id, NewTask::new("").priority(priority)).await;
    }
    world.submits(&ann, "special", NewTask::new("").priority(-9).needs("disk", "big")).await;
    let _master = leads(&world, &ann);
    let noted = order.clone();
    let _worker = works_as(&world, &ann, CrewWorker::new(), move |task| {
        noted.lock().unwrap_or_else(PoisonError::into_inner).push(task.id);
        async { Ok(Bytes::new()) }
    });

    let task = answer(crew(&world, &ann).task("fourth"));
    world.ends(&task, by("")).await;

    let order = order.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(order, ["first", "second", "not-second", "fourth"]);
    let special = answer(crew(&world, &ann).task("special"));
    assert_eq!(answer(special.status().await), Some(TaskStatus::Waiting));
    let slow = Slow::default();
    let able = CrewWorker::new().property("disk", "big");
    let _able = slow.works(&world, &ann, able.capacity(NonZeroU32::new(2).expect("not zero")));
    world.eventually("it is begun", async || slow.begun() == 1).await;
    for number in 0..3 {
        let task = NewTask::new("").needs("disk", "big");
        world.submits(&ann, &format!("more-{number}"), task).await;
    }
    world.eventually("it is full", async || slow.begun() == 2).await;
    sleep(world.brief()).await;
    assert_eq!(slow.begun(), 2);
    slow.let_go();
    world.ends(&special, by("slow")).await;
    world.eventually("it does the others", async || slow.over() == 4).await;
}

async fn a_failed_attempt_is_repeated_as_often_as_allowed(world: World) {
    let ann = world.client().await;
    let _master = leads(&world, &ann);
    let _worker = works_as(&world, &ann, CrewWorker::new(), |task| async move {
        if task.data == task.failed.to_string() {
            return Ok(task.data);
        }
        Err(format!("attempt {}", task.failed))
    });
    let ends = async |id: &str, task: NewTask, end: TaskEnd| {
        let task = world.submits(&ann, id, task).await;
        world.ends(&task, end).await;
    };

    ends("once", NewTask::new("0"), by("0")).await;
    ends("thrice", at_once(NewTask::new("2").retries(2)), by("2")).await;
    ends("twice", at_once(NewTask::new("2").retries(1)), TaskEnd::Failed("attempt 1".into())).await;
    ends("never", NewTask::new("1"), TaskEnd::Failed("attempt 0".into())).await;
    let huge = vec![b'x'; 3 << 20];
    assert_eq!(
        crew(&world, &ann).submit("huge", huge).await.expect_err("too large").kind(),
        ErrorKind::TooLarge
    );
}

async fn a_drained_worker_gets_no_new_task(world: World) {
    let (ann, slow) = (world.client().await, Slow::default());
    let crew = crew(&world, &ann);
    let _master = leads(&world, &ann);
    let two = CrewWorker::new().capacity(NonZeroU32::new(2).expect("not zero"));
    let _drained = slow.works(&world, &ann, two);
    let first = world.submits(&ann, "first", "data").await;
    world.eventually("it is begun", async || slow.begun() == 1).await;
    let workers = answer(crew.snapshot().await).workers;
    assert_eq!((workers.len(), workers[0].drained), (1, false));

    // It is drained once, for any number of requests.
    for _ in 0..2 {
        assert!(answer(crew.drain(&workers[0].name).await));
    }
    let second = world.submits(&ann, "second", "data").await;
    sleep(world.brief()).await;

    assert_eq!(answer(second.status().await), Some(TaskStatus::Waiting));
    assert!(answer(crew.snapshot().await).workers[0].drained);
    let _worker = works(&world, &ann, "ann");
    world.ends(&second, by("data by ann")).await;
    slow.let_go();
    world.ends(&first, by("slow")).await;
    assert_eq!(slow.begun(), 1);
    assert!(!answer(crew.drain("none").await));
    assert_eq!(crew.drain("").await.expect_err("no name").kind(), ErrorKind::Invalid);
}

async fn a_drained_worker_stays_drained_in_its_next_session(world: World) {
    let (ann, bob, slow) = (world.client().await, world.client().await, Slow::default());
    let crew = crew(&world, &ann);
    let _master = leads(&world, &ann);
    let _working = slow.works(&world, &bob, CrewWorker::new());
    let worker_other_than = async |former: &str| {
        let other = world.eventually("it is registered", async || {
            answer(crew.snapshot().await).workers.iter().any(|it| it.name != former)
        });
        other.await;
        let workers = answer(crew.snapshot().await).workers;
        workers.into_iter().find(|it| it.name != former).expect("it is there")
    };
    let first = worker_other_than("").await;
    assert!(answer(world.in_time("draining", crew.drain(&first.name)).await));

    world.expire(answer(bob.session().await).info().id).await;

    let next = worker_other_than(&first.name).await;
    assert!(next.drained);
    let task = world.submits(&ann, "task", "data").await;
    sleep(world.brief()).await;
    assert_eq!(answer(task.status().await), Some(TaskStatus::Waiting));
    for _ in 0..2 {
        assert!(answer(world.in_time("undraining", crew.undrain(&next.name)).await));
    }
    world.eventually("it is begun", async || slow.begun() == 1).await;
    slow.let_go();
    world.ends(&task, by("slow")).await;
    assert!(!answer(crew.undrain(&first.name).await));
}

async fn a_worker_confirms_each_change_of_whether_it_is_drained(world: World) {
    let (ann, gate, slow) = (world.client().await, world.gate(), Slow::default());
    let bob = world.client_on(gate.clone(), world.options()).await;
    let crew = crew(&world, &ann);
    let _working = slow.works(&world, &bob, CrewWorker::new());
    let workers = async || answer(crew.snapshot().await).workers;
    world.eventually("it is registered", async || !workers().await.is_empty()).await;
    let worker = workers().await.swap_remove(0).name;
    assert!(answer(world.in_time("draining", crew.drain(&worker)).await));

    // It may know of the first change, and cannot report this.
    gate.set(Way::Silent);
    for drained in [false, true] {
        let change =
            async { if drained { crew.drain(&worker).await } else { crew.undrain(&worker).await } };
        let written = world.eventually("it is written", async || {
            workers().await.iter().all(|it| it.drained == drained)
        });
        let waited = async {
            written.await;
            sleep(world.brief()).await;
        };
        let (change, waited) = (pin!(change), pin!(waited));
        let first = select(change, waited).await;
        assert!(matches!(first, Either::Right(_)), "it has confirmed an earlier change");
    }

    gate.set(Way::Open);
    assert!(answer(world.in_time("draining again", crew.drain(&worker)).await));
}

async fn nothing_is_assigned_while_a_crew_is_paused(world: World) {
    let (ann, bob, slow) = (world.client().await, world.client().await, Slow::default());
    let pausing = crew(&world, &bob);
    // A pause before there was a master.
    answer(pausing.pause().await);
    let _master = leads(&world, &ann);
    let two = CrewWorker::new().capacity(NonZeroU32::new(2).expect("not zero"));
    let _working = slow.works(&world, &ann, two);
    let first = world.submits(&bob, "first", "data").await;
    sleep(world.brief()).await;
    assert_eq!(answer(first.status().await), Some(TaskStatus::Waiting));
    assert!(answer(pausing.snapshot().await).paused);

    answer(pausing.resume().await);
    world.eventually("it is begun", async || slow.begun() == 1).await;

    // A pause while a task is running.
    answer(pausing.pause().await);
    let second = world.submits(&bob, "second", "data").await;
    slow.let_go();
    world.ends(&first, by("slow")).await;
    sleep(world.brief()).await;
    assert_eq!(answer(second.status().await), Some(TaskStatus::Waiting));
    answer(pausing.resume().await);
    world.ends(&second, by("slow")).await;
}

async fn a_snapshot_shows_each_task_in_one_place(world: World) {
    let (ann, slow) = (world.client().await, Slow::default());
    let crew = crew(&world, &ann);
    let empty = answer(crew.snapshot().await);
    assert!(empty.workers.is_empty() && empty.tasks.is_empty() && !empty.paused);
    let _master = leads(&world, &ann);
    let working = slow.works(&world, &ann, CrewWorker::new().property("disk", "big"));
    let done = world.submits(&ann, "a/b", "data").await;
    world.eventually("it is begun", async || slow.begun() == 1).await;
    world.submits(&ann, "waits", "data").await;
    let cancelled = world.submits(&ann, "cancelled", "data").await;
    answer(cancelled.cancel().await);

    let shown = answer(crew.snapshot().await);

    let worker = &shown.workers[0];
    assert_eq!(worker.offers, CrewWorker::new().property("disk", "big"));
    let tasks = |shown: &CrewSnapshot| {
        let all = shown.tasks.iter();
        let mut all: Vec<_> =
            all.map(|task| (task.id.clone(), task.status.clone(), task.worker.clone())).collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        all
    };
    let expected = [
        ("a/b".to_owned(), TaskStatus::Assigned, Some(worker.name.clone())),
        ("cancelled".to_owned(), TaskStatus::Over(TaskEnd::Cancelled), None),
        ("waits".to_owned(), TaskStatus::Waiting, None),
    ];
    assert_eq!(tasks(&shown), expected);

    // A task moves from one directory to the next: no task is shown in an earlier state, and no
    // finished task is shown with a worker.
    slow.let_go();
    world.ends(&done, by("slow")).await;
    drop(working);
    // A task that is assigned to the leaving worker returns to the waiting tasks.
    let left = async || answer(crew.snapshot().await).workers.is_empty();
    world.eventually("the worker has left", left).await;
    let _brief = works_as(&world, &ann, CrewWorker::new(), |_task| async {
        sleep(Duration::from_millis(3)).await;
        Ok(Bytes::from_static(b"brief"))
    });
    let looking = async {
        let mut begun = BTreeSet::new();
        loop {
            for (id, status, worker) in tasks(&answer(crew.snapshot().await)) {
                match status {
                    // The worker that left may have begun the task.
                    TaskStatus::Waiting if id == "waits" => {}
                    TaskStatus::Waiting => assert!(!begun.contains(&id), "{id} waits again"),
                    TaskStatus::Assigned => drop(begun.insert(id)),
                    _ => assert_eq!(worker, None, "{id} is {status:?}"),
                }
            }
            sleep(Duration::from_millis(1)).await;
        }
    };
    let working = async {
        let more = (0..20).map(async |number| {
            let task = world.submits(&ann, &format!("more-{number}"), "more").await;
            world.ends(&task, by("brief")).await;
        });
        join_all(more).await;
    };
    match select(pin!(working), pin!(looking)).await {
        Either::Left(((), _)) => {}
        Either::Right(_) => unreachable!("it looks until it is dropped"),
    }
}
