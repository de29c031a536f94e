//! The end of a directory's counter: L-SEQ-7.

use std::time::Duration;

use futures_util::future::join_all;
use synod_core::store::{Lifetime, Query, RejectReason, Sequence, Txn};
use synod_recipes::lock::Mutex;
use tokio::time::timeout;

use crate::peer::Peer;
use crate::protocol::op;
use crate::scene::{LONG, client, committed, create, done, make, open, path, peer};
use crate::script::{Deed, Rule};

/// The server's counter stops at its end, and gives the same number to all later children.
pub(crate) async fn a_lock_whose_numbers_end_is_held_by_one() {
    join_all((0..12).map(async |round| {
        let (left, peer) = (round % 2, peer(1));
        let keep = open(&peer, LONG).await;
        done(&*keep, create("/end/keep", "")).await;
        given(&peer, "/end", i32::MAX - left);
        let (ann, bob) = (client(&peer, LONG).await, client(&peer, LONG).await);
        let mut guards = Vec::new();
        for who in [&ann, &bob, &ann, &bob] {
            let mutex = Mutex::new(who, path("/end"));
            let limit = Duration::from_millis(300);
            if let Ok(Ok(guard)) = timeout(limit, mutex.lock()).await {
                guards.push(guard);
            }
        }
        let held = guards.iter().filter(|guard| guard.is_held()).count();
        assert!(held <= 1, "{held} hold it, with {left} numbers left");
    }))
    .await;
}

/// The last number that is given, except for a reserve.
const LAST: i32 = i32::MAX - (1 << 20);

/// Leaves a directory with this many numbers.
fn given(peer: &Peer, dir: &str, children_created: i32) {
    peer.change(|world| {
        world.servers[0].tree.nodes.get_mut(dir).expect("it was made").children_created =
            children_created;
    });
}

/// The operations of a transaction of several cannot be undone, and a number from the reserve is
/// accepted.
pub(crate) async fn a_number_from_the_reserve_is_of_use_in_a_transaction_of_several() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    done(&*store, create("/end/keep", "")).await;
    given(&peer, "/end", LAST);
    let session = store.session().id.get();
    peer.when(Rule::new(Deed::Meanwhile(vec![make("/end/other")])).op(op::MULTI).of(session));

    let draw = Txn::new().create_sequential(path("/end/t-"), "", Lifetime::Session);
    let several = draw.create(path("/beside"), "", Lifetime::Persistent);
    let created = committed(&*store, several).await;

    assert_eq!(
        created.results[0].sequence,
        Some(Sequence::new(u64::from(LAST.unsigned_abs()) + 1))
    );
}

/// After the last number of a directory a create is refused and has no effect, also in a
/// transaction of several operations.
pub(crate) async fn a_directory_without_numbers_refuses() {
    for several in [false, true] {
        let peer = peer(1);
        let store = open(&peer, LONG).await;
        done(&*store, create("/end/keep", "")).await;
        given(&peer, "/end", LAST);
        let draw = |beside: &str| {
            let txn = Txn::new().create_sequential(path("/end/t-"), "", Lifetime::Session);
            if several { txn.create(path(beside), "", Lifetime::Persistent) } else { txn }
        };

        let first = store.commit(draw("/first")).await.expect("the peer answers");
        let number = first.required().expect("it has a number").results[0].sequence;
        assert_eq!(number, Some(Sequence::new(u64::from(LAST.unsigned_abs()))));
        for _ in 0..2 {
            let next = store.commit(draw("/next")).await.expect("the peer answers");
            let refused = next.rejected().map(|no| (no.index, no.reason));
            assert_eq!(refused, Some((0, RejectReason::SequenceExhausted)), "several: {several}");
        }
        done(&*store, create("/end/named", "")).await;

        let view = store.read(Query::subtree(path("/end"))).await.expect("the peer answers");
        assert_eq!(view.nodes.len(), 3, "{view:?}");
    }
}
