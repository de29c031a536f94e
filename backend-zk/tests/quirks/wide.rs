//! Transactions in which each operation needs several parents to be created.

use synod_core::store::{Expect, Lifetime, Txn};
use synod_servers::verb::Verb;

use super::{create, done, linked, names, path, patient, session_with, there};

/// Almost as many operations as a transaction takes.
const WIDE: usize = 40;

/// The number of multi requests in which a transaction is sent.
async fn sent(txn: Txn) -> usize {
    let (links, store) = linked().await;
    let _before = links.take_requests(store.session().id);
    done(&*store, txn).await;
    let requests = links.take_requests(store.session().id);
    requests.iter().filter(|verb| **verb == Verb::Multi).count()
}

pub(super) async fn all_parents_that_a_transaction_misses_are_made_at_once() {
    let node = |at: usize| path(&format!("/wide/{at}/b/c/node"));
    let txn = (0..WIDE).fold(Txn::new(), |txn, at| txn.create(node(at), "", Lifetime::Persistent));

    // First without missing parents, and then with three parents for each.
    assert_eq!(sent(txn).await, 2);

    let (_links, store) = linked().await;
    assert_eq!(names(&*store, "/wide").await.len(), WIDE);
    assert!(there(&*store, node(WIDE - 1).as_str()).await);
}

pub(super) async fn a_parent_that_the_transaction_makes_itself_is_made_once() {
    let txn = (0..WIDE / 2).fold(Txn::new(), |txn, at| {
        let parent = path(&format!("/family/a/{at}"));
        let child = path(&format!("/family/a/{at}/b/child"));
        txn.create(parent, "", Lifetime::Persistent).create(child, "", Lifetime::Session)
    });

    assert_eq!(sent(txn).await, 2);

    let (_links, store) = linked().await;
    assert!(there(&*store, "/family/a/7").await && !there(&*store, "/family/a").await);
}

pub(super) async fn what_is_absent_with_all_above_it_is_seen_to_be_at_once() {
    let txn = (0..WIDE)
        .fold(Txn::new(), |txn, at| txn.check(path(&format!("/no/{at}/b/c/node")), Expect::Absent));

    assert_eq!(sent(txn).await, 2);
}

pub(super) async fn all_empty_containers_give_way_to_one_transaction() {
    let patient = patient();
    let store = session_with(&patient).await;
    done(&*store, create("/gaps/anchor", "")).await;
    let places = || (0..WIDE).map(|at| path(&format!("/gaps/{at}")));
    let below = |txn: Txn, each: fn(Txn, synod_core::path::Path) -> Txn| {
        places().fold(txn, |txn, place| each(txn, place.join("x").expect("valid")))
    };
    done(&*store, below(Txn::new(), |txn, at| txn.create(at, "", Lifetime::Persistent))).await;
    done(&*store, below(Txn::new(), |txn, at| txn.delete(at, Expect::Any))).await;

    let replace = |txn: Txn, place| txn.create(place, "node", Lifetime::Session);
    done(&*store, places().fold(Txn::new(), replace)).await;

    for place in places() {
        assert!(there(&*store, place.as_str()).await, "{place}");
    }
}
