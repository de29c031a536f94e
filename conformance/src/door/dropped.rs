//! Calls that are dropped at any of their awaits, and the nodes that they leave in the store.

use std::sync::Arc;

use synod_core::client::ConnectionState;
use synod_core::error::Result;
use synod_core::store::{Expect, Lifetime, OpResult, Outcome, Txn};
use synod_testkit::cancel::{cancel_at_every_await, stop_at};
use synod_testkit::fault::{Actor, Cue, FaultyBackend, Plan, Site, Verb};
use synod_testkit::hesitant::HesitantBackend;

use crate::door::gate::Gate;
use crate::door::{answer, done};
use crate::world::{World, dropped_enough};

cases![
    "L-SEQ-10 L-X-1 D-DROP" breaks [DroppedCreateStays] => a_ticket_dropped_at_any_await_is_gone,
    "L-SEQ-10 L-X-1" breaks [DroppedTicketForgotten] => a_ticket_dropped_while_it_is_looked_for_is_gone,
    "L-SEQ-10 L-OUT-2" breaks [OneLateComerExpected] => a_dropped_ticket_that_is_made_twice_is_gone_twice,
    "L-X-1 D-DROP" breaks [DroppedCreateStays] => a_create_dropped_at_any_await_is_gone,
    "L-X-1 D-DROP" breaks [DroppedWriteAborted] => a_write_dropped_at_any_await_happens,
    "L-X-1 L-SEQ-10" breaks [DroppedCreateStays] => whatever_is_created_together_goes_together,
    "L-X-1 L-KV-8" breaks [RemovalNeedsItsCaller] => a_removal_dropped_at_any_await_goes_on,
    "L-X-1 L-SES-7" breaks [CloseNeedsItsCaller] => a_close_dropped_at_any_await_goes_on,
];

const LIFETIMES: [Lifetime; 2] = [Lifetime::Session, Lifetime::Persistent];

/// Waits until the directory of the case is empty.
async fn emptied(world: &World, what: &str) {
    let bob = world.bob().await;
    let empty = async || bob.names(&world.dir).await.is_empty();
    world.eventually(what, empty).await;
}

async fn a_ticket_dropped_at_any_await_is_gone(world: World) {
    let (client, prefix) = (world.hesitant().await, world.at("t-"));
    for lifetime in LIFETIMES {
        let drops = cancel_at_every_await(async || {
            let drawn = done(client.create_sequential(&prefix, "", lifetime).await);
            answer(answer(client.session().await).remove(&drawn).await);
        });
        dropped_enough(drops.await, 2);
        emptied(&world, "what was dropped is gone").await;
    }
}

async fn a_ticket_dropped_while_it_is_looked_for_is_gone(world: World) {
    let plan = Plan::scripted([]);
    let faulty = FaultyBackend::new(world.harness.backend(), plan.clone(), Actor::new(1));
    let client = world.client_on(HesitantBackend::new(faulty), world.options()).await;
    let prefix = world.at("t-");

    let drops = cancel_at_every_await(async || {
        plan.cue(Cue::new(Site::ReplyLost).of(Verb::Create));
        plan.cue(Cue::new(Site::Unsent).of(Verb::Read));
        let drawn = done(client.create_sequential(&prefix, "", Lifetime::Persistent).await);
        answer(answer(client.session().await).remove(&drawn).await);
    });

    dropped_enough(drops.await, 4);
    assert!(plan.fired().len() > 4, "nothing was lost");
    emptied(&world, "what was dropped is gone").await;
}

async fn a_dropped_ticket_that_is_made_twice_is_gone_twice(world: World) {
    let other = world.client().await;
    let mut sent_twice = 0;
    for waits in 1.. {
        // One call takes all cues that are due, so two backends with one cue each are chained.
        let plan = || Plan::scripted([Cue::new(Site::RequestLost).of(Verb::Create)]);
        let (first, second) = (plan(), plan());
        let arrived = world.gate();
        let faulty = FaultyBackend::new(arrived.clone(), second.clone(), Actor::new(1));
        let faulty = FaultyBackend::new(faulty, first, Actor::new(1));
        let sent = Gate::new(Arc::new(faulty));
        let client = world.client_on(HesitantBackend::new(sent.clone()), world.unhurried()).await;
        let session = answer(client.session().await);
        let path = answer(session.unique(&world.at("t-")));
        let draw = || Txn::new().create_sequential(path.clone(), "", Lifetime::Persistent);

        if let Some(drawn) = stop_at(waits, session.commit(draw())).await {
            assert!(sent_twice > 0, "it was never dropped after the second sending");
            let drawn = answer(drawn).ok().expect("the name is free").results.remove(0);
            return answer(session.remove(&drawn).await);
        }
        if second.pending() == 0 {
            sent_twice += 1;
            // A third request may be in flight: it arrives before the check that nothing is left.
            let lost = 2;
            let settled = async || sent.count(Verb::Commit) - lost == arrived.answers(Verb::Commit);
            world.eventually("what was sent since arrives", settled).await;
            emptied(&world, "what was sent since is gone").await;
            // Both requests arrive late, the second after the node of the first was removed.
            for _ in 0..2 {
                answer(other.commit(draw()).await).required().expect("there is none");
                emptied(&world, "what was dropped is gone").await;
            }
        }
    }
}

async fn a_create_dropped_at_any_await_is_gone(world: World) {
    let client = world.hesitant().await;
    for lifetime in LIFETIMES {
        for waits in 1.. {
            let at = world.at(&format!("n{waits}"));
            let ended: Option<Result<Outcome<OpResult>>> =
                stop_at(waits, client.create(&at, "", lifetime)).await;
            let Some(made) = ended else { continue };
            dropped_enough(waits, 2);
            answer(answer(client.session().await).remove(&done(made)).await);
            break;
        }
        emptied(&world, "what was dropped is gone").await;
    }
}

async fn a_write_dropped_at_any_await_happens(world: World) {
    let (client, bob, a) = (world.hesitant().await, world.bob().await, world.at("a"));
    bob.create(&a, "0").await;
    for waits in 1.. {
        let data = waits.to_string();

        let ended = stop_at(waits, client.set(&a, data.clone(), Expect::Any)).await;

        let written = async || bob.text(&a).await.as_deref() == Some(&data);
        world.eventually("a write that was sent is driven to its end", written).await;
        if ended.is_some() {
            dropped_enough(waits, 2);
            return;
        }
    }
}

async fn whatever_is_created_together_goes_together(world: World) {
    let (client, bob) = (world.hesitant().await, world.bob().await);
    let both = |round: usize| {
        let paths = ["a", "a/b"].map(|name| world.at(&format!("d{round}/{name}")));
        let [a, b] = paths.clone();
        let life = Lifetime::Persistent;
        (paths, Txn::new().create(a, "", life).create(b, "", life))
    };
    let mut told = true;
    for waits in 1.. {
        let ([a, b], txn) = both(waits);
        let Some(made) = stop_at(waits, client.commit(txn)).await else { continue };
        dropped_enough(waits, 2);
        let commit = answer(made).ok().expect("nothing is in the way");
        // A store need not report which incarnations it created; then they cannot be removed
        // safely.
        told = commit.revision.is_some() || commit.results.iter().all(|done| done.stat.is_some());
        bob.delete(&b).await;
        bob.delete(&a).await;
        break;
    }
    if told {
        emptied(&world, "what was dropped is gone").await;
    }
}

async fn a_removal_dropped_at_any_await_goes_on(world: World) {
    let client = world.hesitant().await;
    let session = answer(client.session().await);
    for sequential in [true, false] {
        for waits in 1.. {
            let at = world.at(&format!("n{waits}"));
            let made = if sequential {
                done(client.create_sequential(&at, "", Lifetime::Persistent).await)
            } else {
                done(client.create(&at, "", Lifetime::Persistent).await)
            };

            let ended = stop_at(waits, session.remove(&made)).await;

            emptied(&world, "what is to be removed is gone").await;
            if let Some(removed) = ended {
                answer(removed);
                dropped_enough(waits, 1);
                break;
            }
        }
    }
}

async fn a_close_dropped_at_any_await_goes_on(world: World) {
    for waits in 1.. {
        let (client, bob) = (world.hesitant().await, world.bob().await);
        let made = done(client.create(&world.at("a"), "", Lifetime::Session).await);
        let mut state = client.state();

        let ended = stop_at(waits, client.close()).await;

        let closed = state.wait_for(|state| *state == ConnectionState::Closed);
        assert!(world.in_time("the end of a client", closed).await.is_ok());
        assert!(!bob.exists(&made.path).await, "dropped at await {waits}");
        if let Some(closed) = ended {
            answer(closed);
            dropped_enough(waits, 1);
            return;
        }
    }
}
