//! A failed follow-up read does not change the result of the commit before it: L-OUT-1, L-OUT-4.

use synod_core::store::{Expect, Lifetime, Query, RejectReason, Txn, Version};
use synod_recipes::lock::Mutex;
use tokio::time::timeout;

use crate::effects::{agrees, ticket, times};
use crate::protocol::{code, op};
use crate::scene::{LONG, PATIENCE, client, create, done, make, open, path, peer};
use crate::script::{Deed, Rule};
use crate::world::World;

/// The commit was applied, but its follow-up read was not answered, for various reasons.
pub(crate) async fn a_look_that_fails_says_nothing_of_the_commit() {
    let errors = [code::NO_AUTH, code::THROTTLED, code::UNIMPLEMENTED, -9_999];
    for (round, error) in errors.into_iter().enumerate() {
        for number in [op::GET_CHILDREN, op::GET_CHILDREN_2] {
            let peer = peer(1);
            let (dir, store) = (format!("/look/{round}"), open(&peer, LONG).await);
            done(&*store, create(&format!("{dir}/old"), "")).await;
            peer.when(Rule::new(Deed::Refuse(error)).op(number).at(&dir).times(100));

            let outcome = timeout(PATIENCE, store.commit(ticket(&dir))).await.expect("it ends");

            let times = times(&peer, &dir);
            assert!(
                times == 1 && agrees(&outcome, times),
                "{error}: {times} times, and {outcome:?}"
            );
        }
    }
}

/// The transaction was rejected, and its follow-up read was not answered, for various reasons.
pub(crate) async fn a_look_that_fails_says_nothing_of_the_rejection() {
    for error in [code::NO_AUTH, code::THROTTLED, -9_999] {
        let (peer, node) = (peer(1), path("/look/node"));
        let store = open(&peer, LONG).await;
        done(&*store, create("/look/node", "")).await;
        peer.when(Rule::new(Deed::Refuse(error)).op(op::GET_DATA).at("/look/node").times(100));

        let stale = Txn::new().set(&node, "", Expect::Version(Version::new(9)));
        let commit_and_read = store.commit(stale.look(Query::node(&node)));
        let outcome =
            timeout(PATIENCE, commit_and_read).await.expect("it ends").expect("it is answered");

        let no = outcome.rejected().expect("it has another version");
        assert_eq!((no.reason, no.look.as_ref()), (RejectReason::OtherVersion, None), "{error}");
    }
}

/// A follow-up read shows the tickets before the own one, of the same directory only.
pub(crate) async fn a_ticket_hides_nothing_in_another_directory() {
    let (peer, names) = (peer(1), |dir| Query::children(path(dir)).names_only());
    let store = open(&peer, LONG).await;
    let seen = async |dir: &str, look: Query| {
        let at = path(&format!("{dir}/t-"));
        let draw = Txn::new().create_sequential(at, "", Lifetime::Session).look(look);
        let created = store.commit(draw).await.expect("it answers");
        let look = created.required().expect("nothing is against it").look;
        look.expect("it was asked for").nodes.len()
    };
    for count in 1..=3 {
        assert_eq!(seen("/one", names("/one")).await, count);
    }
    assert_eq!(seen("/other", names("/one").newest(9)).await, 3);
}

/// [`a_look_that_fails_says_nothing_of_the_commit`] for a waiter of a lock: no ticket of a failed
/// call remains.
pub(crate) async fn a_lock_whose_looks_are_refused_leaves_no_ticket() {
    for error in [code::NO_AUTH, code::THROTTLED] {
        let peer = peer(1);
        let ann = client(&peer, LONG).await;
        let mutex = Mutex::new(&ann, path("/lock"));
        mutex.lock().await.expect("the peer answers").release().await.expect("it answers");
        for number in [op::GET_CHILDREN, op::GET_CHILDREN_2] {
            peer.when(Rule::new(Deed::Refuse(error)).op(number).at("/lock").times(3));
        }

        // The lock may be granted, or not.
        match timeout(PATIENCE, mutex.lock()).await.expect("it ends") {
            Ok(guard) => guard.release().await.expect("the peer answers"),
            Err(_refused) => peer.change(|world| world.script.calm()),
        }

        let none = |world: &mut World| {
            !world.servers[0].tree.nodes.keys().any(|at| at.starts_with("/lock/"))
        };
        timeout(PATIENCE, peer.until(none)).await.expect("the ticket goes");
    }
}

/// Another client creates a ticket between the commit and its follow-up read, which requests the
/// newest.
pub(crate) async fn a_look_shows_no_ticket_after_the_own_one() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    done(&*store, create("/after/t-0000000001", "")).await;
    for (number, several) in [false, true, false, true].into_iter().enumerate() {
        let later = vec![make(&format!("/after/t-00000009{number:02}"))];
        let sent = if several { op::MULTI } else { op::CREATE_2 };
        peer.when(Rule::new(Deed::Afterwards(later)).op(sent));
        let look = Query::children(path("/after")).newest(9);
        let mut draw = ticket("/after").look(look);
        if several {
            draw = draw.set(path("/after/t-0000000001"), "", Expect::Any);
        }
        let created = store.commit(draw).await.expect("the peer answers");
        let commit = created.required().expect("nothing is against it");
        let look = commit.look.expect("it was asked for");
        assert_eq!(look.nodes.last().map(|node| &node.path), Some(&commit.results[0].path));
        assert_eq!(look.nodes.len(), number + 2, "{look:?}");
    }
}

/// The connection is lost before the follow-up read: it is sent on the next one.
pub(crate) async fn a_look_that_was_lost_is_asked_for_again() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    done(&*store, create("/lost/old", "")).await;
    for deed in [Deed::CloseBefore, Deed::CloseAfter] {
        for number in [op::GET_CHILDREN, op::GET_CHILDREN_2] {
            peer.when(Rule::new(deed.clone()).op(number).at("/lost"));
        }
        let created = timeout(PATIENCE, store.commit(ticket("/lost"))).await.expect("it ends");
        let commit = created.expect("the peer answers").required().expect("nothing is against it");
        let look = commit.look.expect("it is asked for again");
        assert!(look.nodes.iter().any(|node| node.path == commit.results[0].path), "{look:?}");
        peer.change(|world| world.script.calm());
    }
}
