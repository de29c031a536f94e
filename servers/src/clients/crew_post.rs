//! The parts of a crew: [`serve`] as a member, and [`submit`].

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::try_join;
use futures_util::stream;
use synod_core::error::Result;
use synod_recipes::crew::{Assignment, Crew, CrewWorker, NewTask, TaskEnd};
use tokio::time::sleep;

use crate::clients::deed::{Deed, Part};
use crate::clients::post::{Post, effect};
use synod_testkit::history::Value;

/// The number of tasks that a worker runs concurrently.
const CAPACITY: u32 = 2;
/// The number of tasks that a submitter waits for concurrently.
const LANES: usize = 2;
/// The maximum duration of an attempt, in milliseconds.
const STAY: u64 = 600;
/// The maximum pause before a submission, in milliseconds.
const REST: u64 = 400;
/// The time for which a remover keeps finished tasks.
const SOON: Duration = Duration::from_millis(100);
/// The pause after a failure.
const AFTER: Duration = Duration::from_millis(100);

/// Works, and takes part in the election of the master.
pub(crate) async fn serve(post: &Post) -> Result<()> {
    let crew = Crew::new(&post.client, post.path.clone());
    let crew = if post.part == Part::Remover { crew.retention(SOON) } else { crew };
    loop {
        let worker = CrewWorker::new().capacity(CAPACITY.try_into().expect("not zero"));
        let working = crew.work(worker, |task| attempt(post, task));
        let _may_go_on = Box::pin(try_join(working, crew.lead())).await.is_ok();
        sleep(AFTER).await;
    }
}

async fn attempt(post: &Post, task: Assignment) -> std::result::Result<String, &'static str> {
    let run = post.random.number() >> 1;
    let task = task.id.parse().map_err(|_| "it is no task of this run")?;
    post.report(Deed::Runs { task, run });
    post.pause(STAY).await;
    post.report(Deed::Ran { task, run });
    if post.random.below(10) == 0 { Err("on purpose") } else { Ok(run.to_string()) }
}

/// Submits tasks, and waits for their ends.
pub(crate) async fn submit(post: &Post) -> Result<()> {
    let crew = Crew::new(&post.client, post.path.clone());
    let tasks = stream::iter(post.all());
    tasks.for_each_concurrent(LANES, |task| sees(post, &crew, task)).await;
    post.report(Deed::Rests);
    Ok(())
}

/// Submits a task until that succeeds, and waits for its end.
async fn sees(post: &Post, crew: &Crew, task: Value) {
    post.pause(REST).await;
    let submitted = loop {
        let new = NewTask::new(task.to_string()).retries(u32::MAX);
        let submitted = crew.submit(&task.to_string(), new).await;
        let effect = effect(&submitted);
        post.report(Deed::Submitted { task, effect });
        match submitted {
            Ok(submitted) => break submitted,
            Err(_) => sleep(AFTER).await,
        }
    };
    loop {
        match submitted.wait().await {
            Ok(end) => return post.report(Deed::Saw { task, run: end.and_then(run_of) }),
            Err(_) => sleep(AFTER).await,
        }
    }
}

fn run_of(end: TaskEnd) -> Option<Value> {
    match end {
        TaskEnd::Done(bytes) => std::str::from_utf8(&bytes).ok()?.parse().ok(),
        TaskEnd::Failed(_) | TaskEnd::Cancelled | TaskEnd::Expired => None,
    }
}
