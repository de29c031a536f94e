//! The crew: the progress of a task, and its attempts.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::store::Expect;
use synod_recipes::crew::{
    Assignment, AttemptEnd, CrewAttempt, CrewTask, CrewWorker, NewTask, TaskEnd, TaskHistory,
    TaskStatus,
};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::door::answer;
use crate::recipe::Waiting;
use crate::recipe::crew_members::{
    Slow, at_once, below, by, crew, leads, no_worker_is_there, reads_no_more, works, works_as,
};
use crate::world::World;

cases![
    "L-MW-17" catches [EventDropped] => progress_reaches_all_that_follow_a_task,
    "L-MW-17 L-MW-18" breaks [ProgressUnguarded] => the_progress_of_a_former_worker_is_refused,
    "L-MW-18" breaks [AttemptsForgotten] => each_attempt_that_ended_is_in_the_history_of_its_task,
];

/// An order to a worker: to report this text, or to end with it.
#[derive(Clone, Copy)]
enum Order {
    Report(&'static str),
    End(&'static str),
}

/// A worker that follows its orders.
fn obeys(
    world: &World,
    client: &Client,
    orders: &Arc<watch::Sender<Order>>,
) -> Waiting<Infallible> {
    let orders = orders.clone();
    works_as(world, client, CrewWorker::new(), move |task: Assignment| {
        let mut orders = orders.subscribe();
        async move {
            loop {
                let order = *orders.borrow_and_update();
                match order {
                    Order::Report(text) => task.report(text),
                    Order::End(text) => return Ok(Bytes::from_static(text.as_bytes())),
                }
                if orders.changed().await.is_err() {
                    pending::<()>().await;
                }
            }
        }
    })
}

async fn history(task: &CrewTask) -> TaskHistory {
    answer(task.history().await).expect("it was submitted")
}

/// Returns the progress that the last attempt has reported.
fn progress(shown: &TaskHistory) -> Option<&str> {
    shown.attempts.last().and_then(|attempt| attempt.progress.as_deref())
}

async fn progress_reaches_all_that_follow_a_task(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let orders = Arc::new(watch::Sender::new(Order::Report("begun")));
    let none = answer(crew(&world, &ann).task("none"));
    assert_eq!(answer(none.follow().next().await), None);
    assert_eq!(answer(none.history().await), None);
    let task = world.submits(&ann, "task", "data").await;
    let mut followers = [&ann, &bob].map(|it| answer(crew(&world, it).task("task")).follow());
    for follower in &mut followers {
        let first = answer(follower.next().await).expect("it was submitted");
        assert_eq!((first.status, first.attempts), (TaskStatus::Waiting, vec![]));
    }

    let _master = leads(&world, &ann);
    let _worker = obeys(&world, &bob, &orders);

    for (text, next) in [("begun", Order::Report("half")), ("half", Order::End("done"))] {
        for follower in &mut followers {
            loop {
                let next = answer(world.in_time(text, follower.next()).await);
                let shown = next.expect("it is not over");
                if progress(&shown) == Some(text) {
                    assert_eq!(
                        (shown.status, &shown.attempts[0].end),
                        (TaskStatus::Assigned, &None)
                    );
                    break;
                }
            }
        }
        orders.send_replace(next);
    }
    for mut follower in followers {
        let mut last = None;
        while let Some(shown) = answer(world.in_time("the end", follower.next()).await) {
            last = Some(shown);
        }
        let last = last.expect("it ended after that");
        assert_eq!((&last.status, progress(&last)), (&TaskStatus::Over(by("done")), Some("half")));
        assert_eq!(last, history(&task).await);
    }
}

async fn the_progress_of_a_former_worker_is_refused(world: World) {
    let (ann, gate) = (world.client().await, world.gate());
    let orders = Arc::new(watch::Sender::new(Order::Report("begun")));
    let master = leads(&world, &ann);
    let task = world.submits(&ann, "task", "data").await;
    let unaware = world.client_on(gate.clone(), world.options()).await;
    gate.lose_events(true);
    let obeying = obeys(&world, &unaware, &orders);
    let has_begun = async || progress(&history(&task).await) == Some("begun");
    world.eventually("it is begun", has_begun).await;
    // No master takes the task from it yet.
    master.stop().await;
    sleep(world.brief()).await;
    reads_no_more(&gate);
    let workers = below(&ann, &world.at("crew/workers")).await;

    answer(answer(ann.delete(&workers[0].path, Expect::Any).await).required());
    orders.send_replace(Order::Report("stale"));

    sleep(world.brief()).await;
    assert_eq!(progress(&history(&task).await), Some("begun"));
    // The client may have become a worker again, which would get the task.
    gate.hold_behind(None);
    obeying.stop().await;
    no_worker_is_there(&world, &ann).await;
    let _worker = works(&world, &ann, "ann");
    let _master = leads(&world, &ann);
    world.ends(&task, by("data by ann")).await;
    let made = history(&task).await.attempts;
    let ends: Vec<_> = made.iter().map(|it| (it.progress.as_deref(), it.end.clone())).collect();
    assert_eq!(
        ends,
        [(Some("begun"), Some(AttemptEnd::Lost)), (None, Some(AttemptEnd::Done))],
        "{made:?}"
    );
}

/// Returns the end of each attempt. Asserts that each has a worker and both dates.
fn ends(made: &[CrewAttempt]) -> Vec<Option<AttemptEnd>> {
    for attempt in made {
        assert!(!attempt.worker.is_empty(), "{attempt:?}");
        assert!(attempt.begun.is_some() && attempt.ended.is_some(), "{attempt:?}");
    }
    made.iter().map(|attempt| attempt.end.clone()).collect()
}

async fn each_attempt_that_ended_is_in_the_history_of_its_task(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let _master = leads(&world, &ann);
    let failed = || Some(AttemptEnd::Failed("on purpose".to_owned()));
    let first = works_as(&world, &bob, CrewWorker::new(), |task| async move {
        if task.failed > 0 {
            pending::<()>().await;
        }
        Err("on purpose".to_owned())
    });
    let task = world.submits(&ann, "task", at_once(NewTask::new("data").retries(1))).await;
    let is_again = async || {
        let shown = history(&task).await;
        shown.status == TaskStatus::Assigned && shown.attempts.len() == 1
    };
    world.eventually("it is done again", is_again).await;
    drop(first);
    let worker = works(&world, &ann, "ann");
    world.ends(&task, by("data by ann")).await;
    let made = history(&task).await.attempts;
    assert_eq!(ends(&made), [failed(), Some(AttemptEnd::Lost), Some(AttemptEnd::Done)]);
    assert!(made[0].worker == made[1].worker && made[1].worker != made[2].worker, "{made:?}");
    let shown = answer(crew(&world, &bob).snapshot().await).tasks;
    assert_eq!(shown[0].attempts, made);
    worker.stop().await;
    no_worker_is_there(&world, &ann).await;

    let slow = Slow::default();
    let working = slow.works(&world, &bob, CrewWorker::new());
    let task = world.submits(&ann, "cancelled", "data").await;
    world.eventually("it is begun", async || slow.begun() == 1).await;
    assert_eq!(answer(task.cancel().await), Some(TaskEnd::Cancelled));
    let is_known = async || {
        let made = history(&task).await.attempts;
        ends(&made).last() == Some(&Some(AttemptEnd::Revoked))
    };
    world.eventually("its worker knows that", is_known).await;
    working.stop().await;
    no_worker_is_there(&world, &ann).await;

    // The last ones are kept.
    let _worker =
        works_as(&world, &ann, CrewWorker::new(), |_task| async { Err("on purpose".to_owned()) });
    let task = world.submits(&ann, "often", at_once(NewTask::new("data").retries(19))).await;
    world.ends(&task, TaskEnd::Failed("on purpose".to_owned())).await;
    let shown = history(&task).await;
    assert_eq!((ends(&shown.attempts), shown.earlier), (vec![failed(); 16], 4));
}
