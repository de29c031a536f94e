//! One session used by tasks on several threads, where an answer may arrive before its caller waits
//! for it.

use std::sync::Arc;
use std::thread;

use libtest_mimic::Failed;
use synod_conformance::workers::on_workers;
use synod_core::store::{Expect, Lifetime, Query, Store, Txn};
use synod_core::task::spawn;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::{PATIENCE, Quirk, create, done, path, session};

/// More threads than the machine may have processors, so that they interrupt each other at any
/// point.
const WORKERS: usize = 4;
const TASKS: usize = 8;
/// Enough rounds that the original bug occurred several times on two processors.
const ROUNDS: usize = 2_500;

/// Each runs on several threads; the other quirks have one thread.
pub(super) const QUIRKS: &[Quirk] = &[
    ("a_persistent_node_is_observed_until_it_goes_on_many_threads", || {
        Box::pin(a_persistent_node_is_observed_until_it_goes_on_many_threads())
    }),
    ("an_absent_node_is_observed_until_it_goes_on_many_threads", || {
        Box::pin(async { an_absent_node_is_observed_until_it_goes_on_many_threads() })
    }),
    ("watches_of_all_kinds_are_made_and_dropped_by_many_tasks", || {
        Box::pin(watches_of_all_kinds_are_made_and_dropped_by_many_tasks())
    }),
    ("a_session_that_ends_ends_the_calls_of_many_tasks", || {
        Box::pin(a_session_that_ends_ends_the_calls_of_many_tasks())
    }),
];

/// Fails with the first panic of any thread, or if the quirk does not end in time.
pub(super) fn run(quirk: Quirk) -> Result<(), Failed> {
    on_workers(WORKERS, PATIENCE * 6, quirk.1).map_err(Failed::from)
}

/// Calls `work` repeatedly on several threads, each with its own session. They are not workers of
/// the runtime: a worker would run the task of the session itself once the call waits, so the
/// answer could never arrive before the call waits.
fn on_callers<F>(rounds: usize, work: impl Fn(usize, Arc<dyn Store>) -> F + Sync)
where
    F: Future<Output = ()>,
{
    let (runtime, work) = (Handle::current(), &work);
    thread::scope(|scope| {
        for number in 0..WORKERS {
            let runtime = runtime.clone();
            scope.spawn(move || {
                runtime.block_on(async {
                    let store: Arc<dyn Store> = Arc::from(session().await);
                    for _ in 0..rounds {
                        work(number, store.clone()).await;
                    }
                });
            });
        }
    });
}

/// Runs `work` in several concurrent tasks, each with a number and the session that they share.
async fn at_once<F>(store: &Arc<dyn Store>, work: impl Fn(usize, Arc<dyn Store>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut tasks: Vec<_> = (0..TASKS).map(|number| spawn(work(number, store.clone()))).collect();
    for task in &mut tasks {
        task.finished().await;
    }
}

/// A one-event watch does not suit such a node, so a persistent watch is set in addition.
async fn a_persistent_node_is_observed_until_it_goes_on_many_threads() {
    done(&*session().await, create("/threads/stays", "")).await;
    on_callers(ROUNDS, |_, store| async move {
        let query = Query::until_gone(path("/threads/stays")).local();
        let (view, _watch) = store.watch(query).await.expect("answers");
        assert!(view.node().is_some());
    });
}

fn an_absent_node_is_observed_until_it_goes_on_many_threads() {
    on_callers(ROUNDS, |number, store| async move {
        let query = Query::until_gone(path(&format!("/threads/absent{number}"))).local();
        let (view, _watch) = store.watch(query).await.expect("answers");
        assert!(view.node().is_none());
    });
}

/// Observes one path, so that the watches at the server are joined, replaced and removed all the
/// time. At the end each observer gets the deletion of the node.
async fn watches_of_all_kinds_are_made_and_dropped_by_many_tasks() {
    let store = Arc::from(session().await);
    at_once(&store, |number, store| async move {
        let node = path(&format!("/threads/kinds/{}", number % 2));
        let queries = || {
            [
                Query::until_gone(&node),
                Query::node(&node),
                Query::node(&node).once(),
                Query::children(&node),
                Query::subtree(&node).local(),
            ]
        };
        for round in 0..60 {
            let draw = Txn::new().create_sequential(
                node.join("x-").expect("valid"),
                "",
                Lifetime::Session,
            );
            let created = done(&*store, draw.look(Query::children(&node).names_only())).await;
            for query in queries().into_iter().cycle().skip(number + round).take(3) {
                let (_view, _watch) = store.watch(query).await.expect("answers");
            }
            let ticket = &created.results[0].path;
            let (view, mut watch) = store.watch(Query::until_gone(ticket)).await.expect("answers");
            assert!(view.node().is_some());
            done(&*store, Txn::new().delete(ticket, Expect::Any)).await;
            let event = timeout(PATIENCE, watch.next()).await.expect("in time");
            assert!(event.is_some());
        }
    })
    .await;
}

/// The tasks may be in any call.
async fn a_session_that_ends_ends_the_calls_of_many_tasks() {
    for _ in 0..20 {
        let store = Arc::from(session().await);
        let closing: Arc<dyn Store> = Arc::clone(&store);
        let observing = at_once(&store, |number, store| async move {
            let nowhere = path(&format!("/threads/ends{number}"));
            loop {
                let until_gone = store.watch(Query::until_gone(&nowhere)).await.is_err();
                let for_good = store.watch(Query::subtree(&nowhere)).await.is_err();
                if until_gone && for_good {
                    break;
                }
            }
        });
        let close = async {
            tokio::task::yield_now().await;
            closing.close().await.expect("the server answers");
        };
        let both = futures_util::future::join(observing, close);
        timeout(PATIENCE, both).await.expect("every call ends");
    }
}
