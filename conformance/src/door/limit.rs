//! The bounds of a call: its deadline, its policy, and its session.

use std::num::NonZeroU32;
use std::time::Duration;

use futures_util::future::join;
use synod_core::client::Client;
use synod_core::error::{Effect, Error, ErrorKind};
use synod_core::path::Path;
use synod_core::retry::{Backoff, Retry};
use synod_core::store::{Expect, Lifetime, Query};
use synod_testkit::fault::Verb;
use tokio::time::{Instant, sleep};

use crate::door::gate::Way;
use crate::door::{answer, done, failure};
use crate::world::World;

cases![
    "L-OUT-5" breaks [DeadlinePerAttempt] => one_deadline_covers_all_repetitions,
    "L-OUT-5" breaks [DeadlineIgnored] => a_black_hole_ends_by_the_deadline,
    "L-OUT-5 L-OUT-6" breaks [CallOutlivesSession] => a_call_ends_with_its_session,
    "L-OUT-5" needs [Expiry] breaks [DeadlineIgnored] => the_wait_for_a_session_ends_by_the_deadline,
    "D-REPEAT L-X-8" breaks [PolicyIgnored] => a_policy_ends_the_repetitions,
    "L-X-8" breaks [RetriesInAStorm] => an_outage_is_not_met_with_a_storm_of_calls,
    "L-X-8" needs [Expiry] breaks [RetriesInAStorm] => a_lost_session_is_not_met_with_a_storm_of_openings,
    "L-SES-2 L-SES-3" breaks [CertainUntilTold] => certainty_ends_although_no_loss_is_reported,
];

const FIRST: Duration = Duration::from_millis(10);
const CAP: Duration = Duration::from_millis(80);

/// Delays from 10 ms to 80 ms, half of each random.
fn steady() -> Retry {
    Retry::Forever { backoff: Backoff::default().first(FIRST).cap(CAP).jitter(0.5) }
}

/// The maximum number of attempts that `steady` makes in this time.
fn most(time: Duration) -> usize {
    let shortest = CAP.as_micros() / 2;
    // The first attempt, the attempts while the delays still grow, and a margin.
    usize::try_from(time.as_micros() / shortest).expect("a short time") + 5
}

/// The error with which each verb fails.
async fn failures(client: &Client, at: &Path) -> Vec<Error> {
    let life = Lifetime::Persistent;
    vec![
        failure(client.get(at).await, "get"),
        failure(client.children(at).await, "children"),
        failure(client.watch(Query::node(at)).await, "watch"),
        failure(client.create(at, "", life).await, "create"),
        failure(client.create_sequential(at, "", life).await, "create_sequential"),
        failure(client.set(at, "", Expect::Any).await, "set"),
        failure(client.delete(at, Expect::Any).await, "delete"),
    ]
}

async fn one_deadline_covers_all_repetitions(world: World) {
    let (gate, limit) = (world.gate(), world.brief());
    let options = world.options().timeout(limit).retry(steady());
    let client = world.client_on(gate.clone(), options).await;
    gate.set(Way::Shut);

    let start = Instant::now();
    let errors = world.in_time("every call", failures(&client, &world.at("a"))).await;

    assert!(start.elapsed() >= limit * 7, "the deadline is for trying");
    for error in errors {
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::None));
    }
}

async fn a_black_hole_ends_by_the_deadline(world: World) {
    let (gate, limit) = (world.gate(), world.brief());
    let client = world.client_on(gate.clone(), world.options().timeout(limit)).await;
    let drawn = done(client.create_sequential(&world.at("t-"), "", Lifetime::Session).await);
    let session = answer(client.session().await);
    gate.set(Way::Silent);

    let errors = world.in_time("every call", failures(&client, &world.at("a"))).await;
    let removal = world.in_time("remove", session.remove(&drawn)).await;

    for (number, error) in errors.into_iter().enumerate() {
        let effect = if number < 3 { Effect::None } else { Effect::Unknown };
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, effect), "{error}");
    }
    assert_eq!(failure(removal, "remove").effect(), Effect::Unknown);
}

async fn a_call_ends_with_its_session(world: World) {
    let gate = world.gate();
    let long = world.profile.patience * 2;
    let client = world.client_on(gate.clone(), world.options().timeout(long)).await;
    let (session, a) = (answer(client.session().await), world.at("a"));
    gate.set(Way::Silent);

    let ending = async {
        gate.called(Verb::Read, 1).await;
        session.close().await
    };
    let calls = join(session.read(Query::node(&a)), ending);
    let (read, closed) = world.in_time("a call on a closed session", calls).await;

    answer(closed);
    assert_eq!(failure(read, "a read").kind(), ErrorKind::SessionLost);
}

async fn the_wait_for_a_session_ends_by_the_deadline(world: World) {
    let (gate, limit) = (world.gate(), world.brief());
    let client = world.client_on(gate.clone(), world.options().timeout(limit)).await;
    for way in [Way::Shut, Way::Silent] {
        gate.set(Way::Open);
        let (session, a) = (answer(client.session().await), world.at("a"));
        gate.set(way);
        world.expire(session.info().id).await;
        world.in_time("the loss", session.lost()).await;

        let read = world.in_time("the wait for a session", client.get(&a)).await;

        let error = failure(read, "a client without a session");
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::None));
    }
}

async fn a_policy_ends_the_repetitions(world: World) {
    let (gate, a) = (world.gate(), world.at("a"));
    let twice = Retry::times(NonZeroU32::new(2).expect("not zero"));
    let client = world.client_on(gate.clone(), world.options().retry(twice)).await;
    gate.set(Way::Shut);

    let read = failure(client.get(&a).await, "get");
    let written = failure(client.create(&a, "", Lifetime::Session).await, "create");
    let drawn = failure(client.create_sequential(&a, "", Lifetime::Session).await, "draw");

    for error in [read, written, drawn] {
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::None));
    }
    assert_eq!((gate.count(Verb::Read), gate.count(Verb::Commit)), (3, 6));
}

async fn an_outage_is_not_met_with_a_storm_of_calls(world: World) {
    let (gate, time) = (world.gate(), CAP * 10);
    let options = world.options().timeout(time).retry(steady());
    let client = world.client_on(gate.clone(), options).await;
    gate.set(Way::Shut);

    let _errors = failures(&client, &world.at("a")).await;

    for (verb, verbs) in [(Verb::Read, 2), (Verb::Watch, 1), (Verb::Commit, 4)] {
        let calls = gate.count(verb);
        assert!(calls > verbs, "{verb:?}: nothing was repeated");
        assert!(calls <= most(time) * verbs, "{verb:?}: {calls} calls");
    }
}

async fn a_lost_session_is_not_met_with_a_storm_of_openings(world: World) {
    let (gate, time) = (world.gate(), CAP * 10);
    let client = world.client_on(gate.clone(), world.options().session_retry(steady())).await;
    let session = answer(client.session().await);
    gate.set(Way::Shut);
    world.expire(session.info().id).await;
    world.in_time("the loss", session.lost()).await;

    let before = gate.count(Verb::Open);
    let start = Instant::now();
    sleep(time).await;
    let (opened, took) = (gate.count(Verb::Open) - before, start.elapsed());

    assert!(opened > 1, "it goes on trying");
    assert!(opened <= most(took), "{opened} attempts in {took:?}");
    gate.set(Way::Open);
    answer(client.session().await);
}

async fn certainty_ends_although_no_loss_is_reported(world: World) {
    let gate = world.gate();
    gate.starve();
    let client = world.client_on(gate, world.options()).await;
    let session = answer(client.session().await);
    assert!(session.is_certain(), "it was just opened");

    sleep(session.info().ttl).await;

    assert!(!session.is_certain(), "it was silent for its time to live");
    assert!(!session.is_lost(), "no server said so");
}
