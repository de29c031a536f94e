//! Watches that outlive the sessions on which they were created.

use synod_core::client::{Client, ClientWatch};
use synod_core::store::{End, Event, Lifetime, Query, SessionEnd};
use synod_testkit::cancel::cancel_at_every_await;

use crate::door::{answer, done};
use crate::world::{World, dropped_enough};

cases![
    "L-WAT-7 L-SES-10" needs [Expiry] breaks [WatchEndsWithSession ResyncSwallowed] => a_watch_goes_on_in_the_next_session,
    "L-WAT-12" breaks [EndUntold] => a_watch_of_a_client_has_one_end,
    "L-WAT-14 L-X-1" needs [WatchCount] breaks [ObservesTwice] => a_watch_dropped_at_any_await_is_gone,
    "L-WAT-12 L-X-5" breaks [EndUntold LastDropForgotten] => a_watch_does_not_keep_its_client_open,
];

impl World {
    async fn expect_event(&self, of: &str, watch: &mut ClientWatch) -> Option<Event> {
        self.in_time(of, watch.next()).await
    }
}

/// Takes events up to the end, which must be that the client is closed.
async fn ended(world: &World, watch: &mut ClientWatch) {
    loop {
        match world.expect_event("the end of the client", watch).await {
            Some(Event::Ended(End::SessionOver(SessionEnd::Closed))) => return,
            Some(Event::Changed(_) | Event::Resync) => {}
            other => panic!("it is notified of {other:?}"),
        }
    }
}

async fn lose(world: &World, client: &Client) {
    let session = answer(client.session().await);
    world.expire(session.info().id).await;
    world.in_time("the loss", session.lost()).await;
}

async fn a_watch_goes_on_in_the_next_session(world: World) {
    let (client, bob) = (world.client().await, world.bob().await);
    let dir = world.at("d");
    let (view, mut watch) = answer(client.watch(Query::children(&dir)).await);
    assert_eq!(view.nodes, []);

    for round in 0..3 {
        lose(&world, &client).await;
        // Earlier events may come first.
        loop {
            match world.expect_event("the next session", &mut watch).await {
                Some(Event::Resync) => break,
                Some(Event::Changed(_)) => {}
                other => panic!("round {round}: {other:?}"),
            }
        }

        let node = dir.join(&format!("n{round}")).expect("short");
        bob.create(&node, "").await;
        let told = world.expect_event("a change in the next session", &mut watch).await;
        assert!(
            matches!(&told, Some(Event::Changed(change)) if change.path == node || change.path == dir),
            "round {round}: {told:?}"
        );
    }
}

async fn a_watch_of_a_client_has_one_end(world: World) {
    let client = world.client().await;
    let mut watches = Vec::new();
    for query in [Query::node(&world.dir), Query::children(&world.dir)] {
        watches.push(answer(client.watch(query).await).1);
    }

    answer(client.close().await);

    for watch in &mut watches {
        ended(&world, watch).await;
        for _ in 0..3 {
            assert!(world.expect_event("nothing", watch).await.is_none());
        }
    }
}

async fn a_watch_dropped_at_any_await_is_gone(world: World) {
    let client = world.hesitant().await;
    let before = world.harness.watches().await;

    for query in [Query::node(&world.dir), Query::subtree(&world.dir)] {
        let drops = cancel_at_every_await(async || {
            let (_view, watch) = answer(client.watch(query.clone()).await);
            drop(watch);
        });
        dropped_enough(drops.await, 1);
        let gone = async || world.harness.watches().await <= before;
        world.eventually("what watched is gone", gone).await;
    }
    answer(client.close().await);
}

async fn a_watch_does_not_keep_its_client_open(world: World) {
    let (client, bob, a) = (world.client().await, world.bob().await, world.at("a"));
    done(client.create(&a, "", Lifetime::Session).await);
    let (_view, mut watch) = answer(client.watch(Query::node(&a)).await);
    drop(client);

    ended(&world, &mut watch).await;
    assert!(world.expect_event("nothing", &mut watch).await.is_none());
    world.eventually("its nodes go", async || !bob.exists(&a).await).await;
}
