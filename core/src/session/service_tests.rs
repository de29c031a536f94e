//! The promises of the calls that a session offers to recipes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::{self, sleep};
use crate::session::Session;
use crate::session::script::Fault;
use crate::session::script::idle;
use crate::session::tests::{LONG, draw, opened, path};
use crate::store::{Lifetime, Query, Txn};

#[tokio::test(start_paused = true)]
async fn a_commit_is_settled_unless_a_request_of_unknown_effect_was_repeated() {
    let (script, session) = opened().await;
    for (fault, settled) in [
        (Fault::None, true),
        (Fault::Refused, true),
        (Fault::Exists, true),
        (Fault::RequestLost, false),
        (Fault::ReplyLost, false),
    ] {
        script.commits([fault]);
        let ticket = session.unique(&path("/q/t-")).expect("short");
        let txn = Txn::new().create_sequential(ticket, "", Lifetime::Session);
        let (_outcome, requests) = session.commit_tracked(txn).await.expect("reachable");
        assert_eq!(requests.is_settled(), settled, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_removal_is_settled_if_its_first_request_removed_the_node() {
    let (script, session) = opened().await;
    for (fault, settled) in [
        (Fault::None, true),
        (Fault::Refused, false),
        (Fault::RequestLost, false),
        (Fault::ReplyLost, false),
    ] {
        let done = draw(&session).await;
        script.commits([fault]);
        let requests = session.remove_tracked(&done).await.expect("reachable");
        assert_eq!(requests.is_settled(), settled, "{fault:?}");
    }
    assert_eq!(script.nodes().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_rewrite_goes_on_until_it_is_done_or_the_node_is_gone() {
    let (script, session) = opened().await;
    let done = draw(&session).await;
    script.commits([vec![Fault::Refused; 20], vec![Fault::ReplyLost]].concat());
    session.rewrite(done.path.clone(), "new".into());
    sleep(LONG).await;
    let view = session.read(Query::node(done.path.clone())).await.expect("reachable");
    assert_eq!(view.into_node().expect("there").data, "new");
    let sent = script.count("set");

    session.remove(&done).await.expect("reachable");
    session.rewrite(done.path, "newer".into());
    sleep(LONG).await;
    assert_eq!((script.nodes().len(), script.count("set")), (0, sent + 1));

    script.commits([Fault::Refused; 3]);
    session.rewrite(path("/a"), "late".into());
    drop(session);
    sleep(LONG).await;
    idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_guarded_node_goes_with_its_guard_or_when_its_session_is_closed() {
    let (script, session) = opened().await;
    let make = async |name: &str| {
        let created = session.create_sequential(&path(name), "", Lifetime::Persistent).await;
        let created = created.expect("reachable").required().expect("it is new");
        (session.guard(&created).expect("it has a sequence"), created)
    };
    let ((dropped, _), (left, leaves)) = (make("/q/dropped-").await, make("/q/left-").await);
    let (kept, _) = make("/q/kept-").await;
    script.commits([Fault::RequestLost, Fault::ReplyLost]);
    drop(dropped);
    left.leave();
    sleep(LONG).await;
    assert_eq!(script.nodes().len(), 2, "the guard of one was dropped");

    session.close().await.expect("reachable");

    assert_eq!(script.nodes(), [leaves.path.to_string()]);
    drop(kept);
    idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_guarded_node_of_a_session_that_expired_stays() {
    let (script, session) = opened().await;
    let created = session.create_sequential(&path("/q/it-"), "", Lifetime::Persistent).await;
    let created = created.expect("reachable").required().expect("it is new");
    let guard = session.guard(&created).expect("it has a sequence");
    script.lose(session.info().id.get());
    session.lost().await;
    drop(guard);
    sleep(LONG).await;
    assert_eq!(script.nodes().len(), 1);
    drop(session);
    idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_value_is_kept_for_one_session() {
    #[derive(Default)]
    struct Counter(AtomicU64);
    let ((_, session), (_, other)) = (opened().await, opened().await);
    let count = |session: &Session| session.local::<Counter>().0.fetch_add(1, Ordering::Relaxed);

    assert_eq!((count(&session), count(&session.clone())), (0, 1));
    assert_eq!(count(&session.namespace(path("/app"))), 2);
    assert_eq!(session.local::<AtomicU64>().load(Ordering::Relaxed), 0);
    assert_eq!(count(&other), 0);

    let value = Arc::downgrade(&session.local::<Counter>());
    drop(session);
    assert!(value.upgrade().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_is_that_of_a_call() {
    let (script, session) = opened().await;
    script.commits([Fault::Silence]);
    let start = clock::now();

    let failed = session.commit(Txn::new().create(path("/a"), "", Lifetime::Session)).await;

    assert!(failed.is_err_and(|error| error.has_unknown_effect()));
    assert_eq!(clock::elapsed(start), session.timeout());
}

#[tokio::test(start_paused = true)]
async fn one_seed_gives_all_ids_of_a_session() {
    let ((_, session), (_, same)) = (opened().await, opened().await);
    let unique = |session: &Session| session.unique(&path("/t-")).expect("short");
    let ids = [unique(&session).to_string(), session.random().id()];
    assert_eq!(ids, [unique(&same).to_string(), same.random().id()]);
    assert!(!ids[0].contains(&ids[1]));
}

#[tokio::test(start_paused = true)]
async fn a_node_at_a_path_that_was_given_up_is_removed_unless_it_is_kept() {
    const KEPT: u64 = 1;
    const LATE: u64 = 2;
    let (script, session) = opened().await;
    let verdict = Arc::new(AtomicU64::new(0));
    let (verdict_now, node) = (verdict.clone(), path("/node"));
    for (number, there) in [(0, 1), (KEPT, 1), (LATE, 0)] {
        verdict.store(number, Ordering::Relaxed);
        let verdict_now = verdict_now.clone();
        if number == 0 {
            let txn = Txn::new().create(node.clone(), "", Lifetime::Session);
            session.commit(txn).await.expect("reachable").required().expect("it is free");
        }
        session.remove_created_in_background(node.clone(), move |_created| {
            match verdict_now.load(Ordering::Relaxed) {
                0 => None,
                number => Some(number == KEPT),
            }
        });
        sleep(LONG).await;
        assert_eq!(script.nodes().len(), there, "{number}");
    }
    // A node of another session is not removed.
    script.put(&node, Some(u64::MAX));
    session.remove_created_in_background(node, |_created| Some(false));
    sleep(LONG).await;
    assert_eq!(script.nodes().len(), 1);
}
