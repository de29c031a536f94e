//! One session that is used by many tasks, on as many threads as the runtime of the case has.

use std::sync::Arc;
use std::thread;

use synod_core::path::Path;
use synod_core::store::{Change, Kind, Lifetime, Query, Txn};
use synod_core::task::{Task, spawn};
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::actor::{Actor, only};
use crate::world::World;

cases![
    "L-SES-9" catches [NoHeartbeat] => a_session_lives_while_other_workers_are_blocked,
    "L-SES-18 C-OBS-1" catches [WatchMissesDelete] => many_tasks_use_one_session_at_once,
];

/// Returns the number of workers of the runtime that can be blocked so that one remains: zero on a
/// runtime with one thread.
fn to_spare() -> usize {
    Handle::current().metrics().num_workers() - 1
}

async fn a_session_lives_while_other_workers_are_blocked(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let long = ann.ttl() * 2;
    ann.ephemeral(&world.at("e")).await;

    let mut blocked: Vec<Task> =
        (0..to_spare()).map(|_| spawn(async move { thread::sleep(long) })).collect();
    for _ in 0..20 {
        sleep(long / 20).await;
        assert!(!ann.status().is_lost(), "its heartbeats are sent by a worker that is not blocked");
    }

    for task in &mut blocked {
        task.finished().await;
    }
    assert!(bob.exists(&world.at("e")).await);
    ann.ephemeral(&world.at("f")).await;
}

async fn many_tasks_use_one_session_at_once(world: World) {
    const TASKS: usize = 8;

    let (ann, dir) = (Arc::new(world.ann().await), world.at("d"));
    ann.create(&world.at("d/stays"), "").await;
    let tasks = (0..TASKS).map(|task| spawn(pass_through(ann.clone(), dir.clone(), task)));
    for task in &mut tasks.collect::<Vec<_>>() {
        world.in_time("a task", task.finished()).await;
    }
    assert_eq!(ann.names(&dir).await, ["stays"], "each task deleted what it made");
}

/// Creates nodes, observes their deletion concurrently with other tasks on the same paths, and
/// waits for the event.
async fn pass_through(ann: Arc<Actor>, dir: Path, task: usize) {
    const ROUNDS: usize = 12;

    let at = |name: &str| dir.join(name).expect("valid");
    let [stays, never] = ["stays", "never"].map(at);
    for round in 0..ROUNDS {
        // No other call uses this path.
        let ticket = at(&format!("t{task}-{round}-"));
        let draw = Txn::new().create_sequential(&ticket, "", Lifetime::Session);
        let look = Query::children(&dir).names_only();
        let drawn = only(ann.commit(draw.look(look)).await.results).path;
        let (view, mut until_gone) = ann.watch(Query::until_gone(&drawn).local()).await;
        assert!(view.node().is_some(), "the session reads what it wrote");
        let (view, _dropped) = ann.watch(Query::until_gone(&stays).local()).await;
        assert!(view.node().is_some());
        let (_view, mut all) = ann.watch(Query::children(&dir)).await;
        let (view, _dropped) = ann.watch(Query::node(&never).once()).await;
        assert!(view.node().is_none());

        ann.delete(&drawn).await;
        let is_end = |change: &Change| change.path == drawn && change.kind == Kind::Deleted;
        until_gone.hears_or_ends("the end of the ticket", is_end).await;
        all.hears("the end of the ticket", is_end).await;
    }
}
