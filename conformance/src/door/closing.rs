//! The end of a client: the sessions and tasks that end with it, and the nodes that remain.

use futures_util::future::{join, join_all};
use synod_core::client::{Client, ConnectionState};
use synod_core::error::{Effect, ErrorKind};
use synod_core::store::{Expect, Lifetime, Query};
use synod_testkit::cancel::cancel_at_every_await;
use synod_testkit::fault::Verb;
use synod_testkit::hesitant::HesitantBackend;
use tokio::runtime::Handle;

use crate::door::gate::Way;
use crate::door::{answer, done, failure};
use crate::harness::Ability;
use crate::world::{World, dropped_enough};

cases![
    "L-SES-7" breaks [ClosesByForgetting] => a_client_that_is_closed_releases_at_once,
    "L-OUT-5 L-OUT-6" breaks [CallOutlivesSession] => closing_ends_the_calls_in_flight,
    "L-OUT-6 L-SES-4" breaks [ClosedClientWaits] => nothing_answers_after_closing,
    "L-SES-7 L-OUT-2" breaks [LossIsEnd] => a_client_closed_between_sessions_does_not_say_that_the_last_is_over,
    "L-SES-7 L-X-5" breaks [LastDropForgotten] => the_last_clone_closes,
    "L-X-5 L-OUT-8 L-X-1" needs [TaskCount] breaks [KeeperStays] => what_a_client_needs_goes_with_it,
];

async fn a_client_that_is_closed_releases_at_once(world: World) {
    let (client, bob, a) = (world.client().await, world.bob().await, world.at("a"));
    done(client.create(&a, "", Lifetime::Session).await);
    done(client.create_sequential(&world.at("t-"), "", Lifetime::Session).await);
    assert!(bob.exists(&a).await);

    answer(client.close().await);

    assert_eq!(bob.names(&world.dir).await, [""; 0]);
    answer(client.close().await);
    answer(client.clone().close().await);
}

async fn closing_ends_the_calls_in_flight(world: World) {
    let (gate, a) = (world.gate(), world.at("a"));
    let long = world.profile.patience * 2;
    let client = world.client_on(gate.clone(), world.options().timeout(long)).await;
    gate.set(Way::Silent);

    let reads = join_all((0..3).map(|_| client.get(&a)));
    let writes = join_all((0..3).map(|_| client.set(&a, "", Expect::Any)));
    let calls = join(reads, writes);
    let closing = async {
        gate.called(Verb::Commit, 3).await;
        client.close().await
    };
    let all = join(calls, closing);
    let ((reads, writes), closed) = world.in_time("the calls of a closed client", all).await;

    answer(closed);
    for read in reads {
        assert_eq!(failure(read, "a read").kind(), ErrorKind::SessionLost);
    }
    for write in writes {
        let error = failure(write, "a write");
        assert_eq!((error.kind(), error.effect()), (ErrorKind::SessionLost, Effect::Unknown));
    }
}

async fn nothing_answers_after_closing(world: World) {
    let (client, a) = (world.client().await, world.at("a"));
    let namespace = client.namespace(&world.dir).expect("short");
    answer(client.close().await);

    for client in [client, namespace] {
        let errors = [
            failure(client.session().await.map(drop), "session"),
            failure(client.get(&a).await, "get"),
            failure(client.watch(Query::node(&a)).await, "watch"),
            failure(client.create(&a, "", Lifetime::Persistent).await, "create"),
            failure(client.set(&a, "", Expect::Any).await, "set"),
        ];
        for error in errors {
            assert_eq!((error.kind(), error.effect()), (ErrorKind::SessionLost, Effect::None));
        }
        assert_eq!(*client.state().borrow(), ConnectionState::Closed);
    }
    assert!(!world.bob().await.exists(&a).await);
}

async fn a_client_closed_between_sessions_does_not_say_that_the_last_is_over(world: World) {
    let (gate, bob, a) = (world.gate(), world.bob().await, world.at("a"));
    gate.may_lose();
    let client = world.client_on(gate.clone(), world.options()).await;
    done(client.create(&a, "", Lifetime::Session).await);
    let mut state = client.state();
    gate.set(Way::Shut);
    gate.lose();
    let lost =
        world.in_time("word of the loss", state.wait_for(|now| *now == ConnectionState::Lost));
    assert!(lost.await.is_ok());

    let closed = failure(client.close().await, "a close that reaches no server");

    assert_eq!((closed.kind(), closed.effect()), (ErrorKind::Unreachable, Effect::Unknown));
    let again = failure(client.close().await, "a second close");
    assert_eq!(again.effect(), Effect::Unknown);
    let gone = async || !bob.exists(&a).await;
    world.eventually_after(world.profile.ttl, "its nodes go with their time", gone).await;
}

async fn the_last_clone_closes(world: World) {
    let (gate, bob, a) = (world.gate(), world.bob().await, world.at("a"));
    let client = world.client_on(gate.clone(), world.options()).await;
    done(client.create(&a, "", Lifetime::Session).await);
    let (clone, namespace) = (client.clone(), client.namespace(&world.dir).expect("short"));
    drop(client);
    drop(clone);
    assert!(answer(namespace.get(&world.at("b")).await).is_none(), "one is left");
    assert_eq!(gate.count(Verb::Close), 0);

    drop(namespace);

    world.eventually("the session is closed", async || gate.count(Verb::Close) == 1).await;
    world.eventually("its nodes go", async || !bob.exists(&a).await).await;
}

/// Opens a client, makes calls that are dropped before their end, and closes or drops the client.
async fn come_and_go(world: &World, closes: bool) {
    let backend = HesitantBackend::new(world.harness.backend());
    let client: Client = world.client_on(backend, world.options()).await;
    let (a, prefix) = (world.at("a"), world.at("t-"));
    let (_view, watch) = answer(client.watch(Query::children(&world.dir)).await);
    let drops = cancel_at_every_await(async || {
        let _dropped = answer(client.watch(Query::node(&a)).await);
        answer(client.children(&world.dir).await);
        done(client.create_sequential(&prefix, "", Lifetime::Session).await);
    });
    dropped_enough(drops.await, 4);
    if closes {
        answer(client.close().await);
    }
    drop((client, watch));
}

async fn what_a_client_needs_goes_with_it(world: World) {
    let tasks = || Handle::current().metrics().num_alive_tasks();
    // A backend may start its own resources with the first session; they do not belong to the
    // client.
    let bob = world.bob().await;
    let counts = world.profile.can(Ability::WatchCount);
    let watches = async || if counts { world.harness.watches().await } else { 0 };
    let watches_before = watches().await;
    come_and_go(&world, true).await;
    world.eventually("its nodes go", async || bob.names(&world.dir).await.is_empty()).await;
    let tasks_before = tasks();

    for round in 0..8 {
        come_and_go(&world, round % 2 == 0).await;
    }

    world.eventually("its nodes go", async || bob.names(&world.dir).await.is_empty()).await;
    world.eventually("its tasks end", async || tasks() <= tasks_before).await;
    world.eventually("its watches go", async || watches().await <= watches_before).await;
}
