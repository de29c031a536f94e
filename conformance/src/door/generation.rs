//! Sessions that follow each other in one client, and the notifications about them.

use futures_util::future::join;
use synod_core::client::{Client, ConnectionState};
use synod_core::error::{Effect, ErrorKind};
use synod_core::store::{Lifetime, Query, Txn};
use synod_testkit::fault::{Cue, Site, Verb};
use synod_testkit::hesitant::HesitantBackend;
use tokio::sync::watch;

use crate::door::gate::Way;
use crate::door::{answer, done, failure};
use crate::world::World;

cases![
    "D-STATE L-SES-3" needs [Expiry] breaks [LossUntold] => a_loss_is_reported_before_the_next_session,
    "L-SES-4 D-STATE" needs [Expiry] breaks [LateSubscriberUntold] => a_late_receiver_gets_the_current_state,
    "D-STATE-2" breaks [StateNeverEnds] => the_states_end_with_the_client,
    "L-SES-3 C-SES-2" breaks [LostTakenBack] => a_session_that_is_over_stays_over,
    "L-SES-10 L-SES-6 L-OUT-6" needs [Expiry] catches [SessionIdReused] => the_next_session_inherits_nothing,
    "D-STATE" breaks [RefusalIsFinal] => a_later_session_that_is_refused_is_asked_for_again,
    "L-SES-10 L-OUT-6" catches [SessionIdReused] => a_session_that_is_over_is_not_given_out,
    "D-LAZY D-STATE" breaks [LateSubscriberUntold] => a_lazy_client_begins_with_its_first_session,
];

/// The states, up to and including `Closed`.
async fn history(mut state: watch::Receiver<ConnectionState>) -> Vec<ConnectionState> {
    let mut told = vec![*state.borrow_and_update()];
    while told.last() != Some(&ConnectionState::Closed) && state.changed().await.is_ok() {
        told.push(*state.borrow_and_update());
    }
    told
}

/// Ends the session that lives now, and waits for the next one.
async fn lose(world: &World, client: &Client) {
    let session = answer(client.session().await);
    world.expire(session.info().id).await;
    world.in_time("the loss", session.lost()).await;
    let next = answer(client.session().await);
    assert_ne!(next.info().id, session.info().id, "it was lost");
}

async fn a_loss_is_reported_before_the_next_session(world: World) {
    use ConnectionState::{Closed, Connected, Lost, Reconnected, Suspended};

    let pause = world.profile.ttl / 100;
    let slow = HesitantBackend::new(world.harness.backend()).pausing(pause);
    let client = world.client_on(slow, world.options()).await;

    let losing = async {
        lose(&world, &client).await;
        lose(&world, &client).await;
        answer(client.close().await);
    };
    let (mut told, ()) = join(history(client.state()), losing).await;

    // A store may or may not have been silent for a while before the session was lost.
    told.retain(|state| *state != Suspended);
    assert_eq!(told, [Connected, Lost, Reconnected, Lost, Reconnected, Closed]);
}

async fn a_late_receiver_gets_the_current_state(world: World) {
    let client = world.client().await;
    let first = answer(client.session().await);
    lose(&world, &client).await;
    let reconnected = async || *client.state().borrow() == ConnectionState::Reconnected;
    world.eventually("the state of the next session", reconnected).await;
    assert!(first.status().borrow().is_lost());
    let mut early = client.state();

    answer(client.close().await);

    assert_eq!(*client.state().borrow(), ConnectionState::Closed);
    assert!(early.changed().await.is_ok(), "the end is a state that it has not seen");
    assert_eq!(*early.borrow_and_update(), ConnectionState::Closed);
}

async fn the_states_end_with_the_client(world: World) {
    let client = world.client().await;
    let mut state = client.state();
    let following = async {
        let mut last = *state.borrow();
        while state.changed().await.is_ok() {
            last = *state.borrow_and_update();
        }
        last
    };

    let ended = join(following, client.close());
    let (last, closed) = world.in_time("the end of the states", ended).await;

    answer(closed);
    assert_eq!(last, ConnectionState::Closed);
    let mut late = client.state();
    let changed = world.in_time("the end of a late receiver", late.changed()).await;
    assert!(changed.is_err(), "nothing comes after the end");
    assert_eq!(*late.borrow(), ConnectionState::Closed);
}

async fn a_session_that_is_over_stays_over(world: World) {
    let gate = world.gate();
    gate.starve();
    let client = world.client_on(gate, world.options()).await;
    let session = answer(client.session().await);
    let status = session.status();

    answer(session.close().await);

    // The store still reports the session as alive.
    assert!(session.is_lost() && !session.is_certain());
    assert!(status.borrow().is_lost() && session.status().borrow().is_lost());
    let read = failure(session.read(Query::node(&world.dir)).await, "a read");
    assert_eq!(read.kind(), ErrorKind::SessionLost);
}

async fn the_next_session_inherits_nothing(world: World) {
    let (client, bob) = (world.client().await, world.bob().await);
    let (first, a) = (answer(client.session().await), world.at("a"));
    let made = done(client.create(&a, "first", Lifetime::Session).await);
    assert_eq!(made.owner(), Some(first.info().id));
    lose(&world, &client).await;

    let next = answer(client.session().await);
    assert_ne!(next.info().id, first.info().id);
    assert!(!bob.exists(&a).await, "it went with its session");
    let again = done(client.create(&a, "next", Lifetime::Session).await);
    assert_eq!(again.owner(), Some(next.info().id));
    answer(first.remove(&made).await.or_else(|error| match error.kind() {
        ErrorKind::SessionLost => Ok(()),
        _ => Err(error),
    }));

    let late = Txn::new().create(world.at("late"), "", Lifetime::Persistent);
    let error = failure(first.commit(late).await, "a write on a lost session");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::SessionLost, Effect::None));
    assert_eq!(bob.text(&a).await.as_deref(), Some("next"));
    assert!(!bob.exists(&world.at("late")).await);
}

async fn a_later_session_that_is_refused_is_asked_for_again(world: World) {
    let (client, plan) = world.scripted([]).await;
    let session = answer(client.session().await);
    let mut state = client.state();
    plan.cue(Cue::new(Site::Denied).of(Verb::Open));

    let denied = async {
        answer(session.close().await);
        state.wait_for(|state| *state == ConnectionState::Denied).await.map(|state| *state)
    };
    let denied = world.in_time("word of the refusal", denied).await;

    assert_eq!(denied.ok(), Some(ConnectionState::Denied));
    let next = answer(client.session().await);
    assert_ne!(next.info().id, session.info().id);
    // On several threads the state may follow the session.
    let reconnected = async || *client.state().borrow() == ConnectionState::Reconnected;
    world.eventually("the state of the next session", reconnected).await;
}

async fn a_session_that_is_over_is_not_given_out(world: World) {
    let client = world.client().await;
    for _ in 0..3 {
        let session = answer(client.session().await);

        // The session is over as soon as its close is requested.
        let (closed, next) = join(session.close(), client.session()).await;

        answer(closed);
        let next = answer(next);
        assert!(!next.is_lost(), "it was over when it was asked for");
        assert_ne!(next.info().id, session.info().id);
    }
}

async fn a_lazy_client_begins_with_its_first_session(world: World) {
    let (gate, bob, a) = (world.gate(), world.bob().await, world.at("a"));
    gate.set(Way::Shut);
    let client = world.client_on(gate.clone(), world.options().lazy(true)).await;
    assert_eq!(*client.state().borrow(), ConnectionState::Connecting);
    let brief = world.options().lazy(true).timeout(world.brief());
    let hasty = world.client_on(gate.clone(), brief).await;
    let early = failure(hasty.get(&a).await, "a call without a session");
    assert_eq!((early.kind(), early.effect()), (ErrorKind::Unreachable, Effect::None));

    let opening = async {
        gate.called(Verb::Open, 3).await;
        gate.set(Way::Open);
    };
    let creating = client.create(&a, "1", Lifetime::Session);
    let (made, ()) = world.in_time("the first session", join(creating, opening)).await;

    done(made);
    assert!(bob.exists(&a).await);
    let connected = async || *client.state().borrow() == ConnectionState::Connected;
    world.eventually("the state of the first session", connected).await;
    answer(client.close().await);
    assert!(!bob.exists(&a).await, "it went with its session");

    // A client that never had a session has nothing to close.
    gate.set(Way::Silent);
    let client = world.client_on(gate.clone(), world.options().lazy(true)).await;
    let (read, closed) = world.in_time("the end", join(client.get(&a), client.close())).await;
    assert_eq!(failure(read, "a read").kind(), ErrorKind::SessionLost);
    answer(closed);
}
