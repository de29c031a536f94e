//! Members that die, hang and come back.

use std::time::Duration;

use synod_core::error::{Effect, ErrorKind};
use synod_core::store::{Expect, Lifetime, Query, Status, Txn};
use synod_servers::etcd::Flavour;

use crate::world::{World, create, eventually, exists, hears_of, path, set_in_the_end};

fn durable(size: usize) -> World {
    let mut flavour = Flavour::default();
    flavour.fsync = true;
    World::new(size, &flavour)
}

pub(crate) async fn a_leader_that_dies_is_not_missed() {
    let mut world = durable(3);
    let (ann, bob) = (
        world.session(Duration::from_secs(10)).await,
        world.session(Duration::from_secs(10)).await,
    );
    create(&*ann, "/e", Lifetime::Session).await;
    create(&*ann, "/n", Lifetime::Persistent).await;
    let (_view, mut watch) = bob.watch(Query::node(path("/n"))).await.expect("answered");

    let leader = world.cluster.leader().expect("one leads");
    world.cluster.kill(leader).expect("it runs");

    set_in_the_end(&*ann, "/n").await;
    hears_of(&mut watch, "/n").await;
    assert!(exists(&*bob, "/e").await, "its session lives");
    assert!(!ann.status().borrow().is_lost());
    world.cluster.restart(leader).expect("it can be started");
    world.cluster.await_ready().expect("ready");
}

pub(crate) async fn a_member_that_stands_still_is_passed_over() {
    let world = World::new(3, &Flavour::default());
    // Long enough that a busy machine renews it in time.
    let ann = world.session(Duration::from_secs(10)).await;
    create(&*ann, "/e", Lifetime::Session).await;
    let (_view, mut watch) = ann.watch(Query::children(path("/d"))).await.expect("answered");

    // Each member in turn, because the session picks the first one at random.
    for member in 0..3 {
        world.cluster.pause(member).expect("it runs");

        // A call that was sent to it may fail. The member is passed over after that, at the latest.
        let first = ann.read(Query::node(path("/e"))).await;
        if first.is_err() {
            assert!(exists(&*ann, "/e").await, "another member is asked: {first:?}");
        }
        let bob = world.session(Duration::from_secs(3)).await;
        let node = format!("/d/{member}");
        create(&*bob, &node, Lifetime::Persistent).await;
        hears_of(&mut watch, &node).await;
        tokio::time::sleep(ann.session().ttl * 2).await;
        // On a busy machine the renewal of this moment may be late.
        let live = async || matches!(*ann.status().borrow(), Status::Live { .. });
        eventually("another keeps it alive", live).await;
        assert!(exists(&*bob, "/e").await);
        world.cluster.resume(member).expect("it stands still");
    }
}

pub(crate) async fn a_server_that_comes_back_is_found_again() {
    let mut world = durable(1);
    let ann = world.session(Duration::from_secs(6)).await;
    create(&*ann, "/e", Lifetime::Session).await;
    create(&*ann, "/n", Lifetime::Persistent).await;
    let (_view, mut watch) = ann.watch(Query::subtree(path("/n"))).await.expect("answered");

    world.cluster.kill(0).expect("it runs");
    let suspended = async || matches!(*ann.status().borrow(), Status::Suspended { .. });
    eventually("the session says so", suspended).await;
    world.cluster.restart(0).expect("it can be started");
    world.cluster.await_ready().expect("ready");

    set_in_the_end(&*ann, "/n").await;
    hears_of(&mut watch, "/n").await;
    assert!(exists(&*ann, "/e").await);
    let live = async || matches!(*ann.status().borrow(), Status::Live { .. });
    eventually("the session is live again", live).await;
}

pub(crate) async fn what_was_never_sent_did_not_happen() {
    let mut world = World::alone();
    let ann = world.session(Duration::from_secs(5)).await;
    create(&*ann, "/n", Lifetime::Persistent).await;
    world.cluster.kill(0).expect("it runs");

    let set = || Txn::new().set(path("/n"), "y", Expect::Any);
    // The first call may fail when the connection breaks.
    let _either = ann.commit(set()).await;
    let error = ann.commit(set()).await.expect_err("no member answers");

    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::None), "{error}");
}
