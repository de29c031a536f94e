//! Writes through the client: the writes that are repeated, and the results of the other writes.

use futures_util::future::join;
use synod_core::error::{Effect, ErrorKind};
use synod_core::store::{Expect, Lifetime, Query, Txn};
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::gate::Way;
use crate::door::{answer, done, failure};
use crate::world::World;

cases![
    "L-OUT-3 L-OUT-4 D-REPEAT" breaks [AmbiguousRepeated] => a_write_that_may_have_happened_is_not_repeated,
    "L-OUT-1 D-REPEAT" breaks [GivesUpAtOnce] => what_certainly_did_not_happen_is_tried_again,
    "L-OUT-7" breaks [PathUntold] => an_error_names_the_path_of_its_call,
    "L-OUT-6 L-SES-3" breaks [LostAnswered] => an_answer_that_comes_after_the_end_is_none,
    "D-NEXT L-SES-10" needs [Expiry] breaks [StaysWithLostSession] => a_call_that_did_nothing_goes_on_in_the_next_session,
];

async fn a_write_that_may_have_happened_is_not_repeated(world: World) {
    let (gate, bob) = (world.gate(), world.bob().await);
    let (client, plan) = world.scripted_on(gate.clone(), world.options(), []).await;
    let (a, b, c) = (world.at("a"), world.at("b"), world.at("c"));
    bob.create(&a, "").await;
    bob.create(&b, "").await;
    let txns = [
        Txn::new().set(&a, "1", Expect::Any),
        Txn::new().delete(&b, Expect::Any),
        Txn::new().create(&c, "", Lifetime::Persistent),
        Txn::new().set(&a, "2", Expect::Any).delete(&c, Expect::Any),
    ];

    for (sent, txn) in txns.into_iter().enumerate() {
        plan.cue(Cue::new(Site::ReplyLost).of(Verb::Commit));
        let error = failure(client.commit(txn).await, "a write whose answer was lost");
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::Unknown));
        assert_eq!((gate.count(Verb::Commit), plan.pending()), (sent + 1, 0));
    }
    assert_eq!(bob.text(&a).await.as_deref(), Some("2"));
    assert!(!bob.exists(&b).await && !bob.exists(&c).await, "each happened");
}

async fn what_certainly_did_not_happen_is_tried_again(world: World) {
    let (a, bob) = (world.at("a"), world.bob().await);
    let unsent = |verb, n| Cue::new(Site::Unsent).of(verb).nth(n);
    let cues = [Verb::Create, Verb::Set, Verb::Read, Verb::Watch]
        .into_iter()
        .flat_map(|verb| [unsent(verb, 1), unsent(verb, 2)]);
    let (client, plan) = world.scripted(cues).await;

    let made = done(client.create(&a, "1", Lifetime::Persistent).await);
    let version = made.stat.expect("a stat").version;
    let set = done(client.set(&a, "2", Expect::Version(version)).await);
    let node = answer(client.get(&a).await).expect("it was created");
    let (view, _watch) = answer(client.watch(Query::node(&a)).await);

    assert_eq!(plan.pending(), 0);
    assert_eq!(node.stat, set.stat);
    assert_eq!(view.into_node().map(|node| node.data), Some("2".into()));
    assert_eq!(bob.text(&a).await.as_deref(), Some("2"));
}

async fn an_error_names_the_path_of_its_call(world: World) {
    let (a, gate) = (world.at("a"), world.gate());
    let client = world.client_on(gate.clone(), world.options().timeout(world.brief())).await;
    gate.set(Way::Silent);

    let errors = [
        failure(client.get(&a).await, "get"),
        failure(client.create(&a, "", Lifetime::Persistent).await, "create"),
        failure(client.set(&a, "", Expect::Any).await, "set"),
        failure(client.delete(&a, Expect::Any).await, "delete"),
    ];

    for error in errors {
        assert_eq!(error.path(), Some(&a), "{error}");
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    }
}

async fn an_answer_that_comes_after_the_end_is_none(world: World) {
    let (a, gate, bob) = (world.at("a"), world.gate(), world.bob().await);
    let client = world.client_on(gate.clone(), world.options()).await;
    let session = answer(client.session().await);
    gate.set(Way::Holding);

    let txn = Txn::new().create(&a, "", Lifetime::Persistent);
    let ending = async {
        gate.held(1).await;
        gate.set(Way::Open);
        session.close().await
    };
    let (written, closed) = join(session.commit(txn), ending).await;

    answer(closed);
    let error = failure(written, "a write on a closed session");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::SessionLost, Effect::Unknown));
    assert!(bob.exists(&a).await, "it happened all the same");
}

async fn a_call_that_did_nothing_goes_on_in_the_next_session(world: World) {
    let (client, a) = (world.client().await, world.at("a"));
    for reads in [true, false, true] {
        let session = answer(client.session().await);
        world.expire(session.info().id).await;

        if reads {
            assert_eq!(answer(client.get(&a).await), None);
        } else {
            let made = client.create(&a, "", Lifetime::Persistent).await;
            // Only the store knows whether the write was applied.
            match made {
                Ok(made) => assert!(made.is_committed(), "nothing is in the way"),
                Err(error) => assert!(error.has_unknown_effect(), "{error}"),
            }
        }

        // A store that had not noticed the end may have answered in the old session.
        world.in_time("the loss", session.lost()).await;
        let next = answer(client.session().await);
        assert_ne!(next.info().id, session.info().id);
        answer(client.delete(&a, Expect::Any).await.map(drop));
    }
}
