//! Uses of a recipe during which the process, session, client or time ends.

use std::time::Duration;

use futures_util::future::join_all;
use synod_core::client::Client;
use synod_core::error::{ErrorKind, Result};
use synod_core::store::{Lifetime, SessionOptions};
use synod_testkit::recipe::{Act, Obstacle};
use tokio::time::sleep;

use crate::door::gate::{Gate, Way};
use crate::door::{answer, failure};
use crate::every::trial::{Trial, each};
use crate::recipe::Waiting;
use crate::world::World;

cases![
    "L-X-2" needs [Expiry] catches [ExpiryUntoldToWatchers] => a_process_that_ends_at_any_call_is_outlived,
    "" needs [Expiry] catches [ExpiryUntoldToWatchers] breaks [TxnUnguarded] => what_a_lost_session_held_is_granted_to_the_next,
    "L-SES-10" needs [Expiry] breaks [WaitsInOneSession WakeIsLift] => a_wait_goes_on_in_the_next_session,
    "L-WAT-7" needs [Expiry] breaks [LiftIsAnEvent] => a_wait_whose_way_was_cleared_while_it_had_no_session_ends,
    "L-OUT-5 L-OUT-6" breaks [ClosedClientWaits] => a_wait_ends_when_its_client_is_closed,
    "L-OUT-5" breaks [DeadlineIgnored] => a_use_without_answers_from_any_call_on_fails_in_time,
];

/// Waits in a separate task, as another client.
fn waits(trial: &Trial, client: &Client) -> Waiting<()> {
    let (trial, client) = (trial.clone(), client.clone());
    Waiting::new(async move { trial.it.waiting(&client, &trial.path).await })
}

/// Runs a use in a separate task.
fn using(trial: &Trial, client: &Client) -> Waiting<()> {
    let (trial, client) = (trial.clone(), client.clone());
    Waiting::new(async move { trial.it.whole(&client, &trial.path).await })
}

/// All waits of `bob`, each with the obstacle that `ann` created.
async fn all_wait(world: &World, ann: &Client, bob: &Client) -> Vec<Obstructed> {
    let mut all = Vec::new();
    for trial in Trial::waiting(world) {
        let obstacle = answer(trial.it.obstruct(ann, &trial.path).await).expect("it waits");
        all.push(Obstructed { waiting: waits(&trial, bob), obstacle, trial });
    }
    sleep(world.brief()).await;
    all
}

struct Obstructed {
    trial: Trial,
    obstacle: Obstacle,
    waiting: Waiting<()>,
}

async fn a_process_that_ends_at_any_call_is_outlived(world: World) {
    let bob = &world.unhurried_client().await;
    each(Trial::all(&world), async |trial| {
        for calls in 0.. {
            let (trial, gate) = (trial.round(calls), world.gate());
            let ann = world.client_on(gate.clone(), world.unhurried()).await;
            let session = answer(ann.session().await).info().id;
            gate.die_after(calls);
            let mut dying = using(&trial, &ann);
            let ended = world.in_time("its end", dying.ends_before(gate.died())).await;

            let next = using(&trial, bob);
            sleep(world.brief()).await;
            world.expire(session).await;

            next.gets(&world, trial.it.name).await;
            trial.until_over(&world, bob).await;
            if ended {
                return assert!(calls > 0, "it makes no call");
            }
        }
    })
    .await;
}

async fn what_a_lost_session_held_is_granted_to_the_next(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let mut all = Vec::new();
    for trial in Trial::all(&world) {
        let Act::Hold { take, rival, .. } = trial.it.act else { continue };
        let stale = answer(take(ann.clone(), trial.path.clone()).await);
        let waits = Waiting::new(rival(bob.clone(), trial.path.clone()));
        all.push((trial, stale, waits));
    }
    sleep(world.brief()).await;

    world.expire(answer(ann.session().await).info().id).await;

    for (trial, mut stale, waits) in all {
        let name = trial.it.name;
        let next = waits.gets(&world, name).await;
        world.in_time(name, stale.lost()).await;
        assert!(!stale.is_held() && next.is_held(), "{name}");
        assert!(next.token() > stale.token(), "{name}: tokens rise");
        let late =
            stale.txn().create(trial.path.join("late").expect("valid"), "", Lifetime::Session);
        assert!(answer(bob.commit(late).await).rejected().is_some(), "{name}: it was lost");
        let stopped = world.in_time(name, stale.work()).await;
        assert_eq!(failure(stopped, "work under what is lost").kind(), ErrorKind::SessionLost);
        // A candidate of a latch leaves without an error.
        if let Err(error) = world.in_time(name, stale.release()).await {
            assert_eq!(error.kind(), ErrorKind::SessionLost, "{name}");
        }
        assert!(next.is_held(), "{name}: what was lost took nothing with it");
        answer(world.in_time(name, next.release()).await);
        trial.until_over(&world, &bob).await;
    }
}

async fn a_wait_goes_on_in_the_next_session(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let mut all = all_wait(&world, &ann, &bob).await;
    for _ in 0..2 {
        let session = answer(bob.session().await);

        world.expire(session.info().id).await;

        world.in_time("the loss", session.lost()).await;
        answer(world.in_time("the next session", bob.session()).await);
        sleep(world.brief()).await;
        for one in &mut all {
            let said = format!("{} is obstructed", one.trial.it.name);
            one.waiting.waits_for(Duration::ZERO, &said).await;
        }
    }
    for Obstructed { trial, obstacle, waiting } in all {
        answer(obstacle.remove().await);
        waiting.gets(&world, trial.it.name).await;
        trial.until_over(&world, &ann).await;
    }
}

async fn a_wait_whose_way_was_cleared_while_it_had_no_session_ends(world: World) {
    let (ann, gate) = (world.client().await, world.gate());
    let bob = world.client_on(gate.clone(), world.options()).await;
    let all = all_wait(&world, &ann, &bob).await;
    let session = answer(bob.session().await);
    gate.set(Way::Shut);
    world.expire(session.info().id).await;
    world.in_time("the loss", session.lost()).await;
    let mut waiting = Vec::new();
    for one in all {
        answer(one.obstacle.remove().await);
        waiting.push((one.trial, one.waiting));
    }

    gate.set(Way::Open);

    for (trial, one) in waiting {
        one.gets(&world, trial.it.name).await;
        trial.until_over(&world, &ann).await;
    }
}

async fn a_wait_ends_when_its_client_is_closed(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let all = all_wait(&world, &ann, &bob).await;

    answer(world.in_time("the end of a client", bob.close()).await);

    for Obstructed { trial, obstacle, waiting } in all {
        let name = trial.it.name;
        let ended = world.in_time(name, waiting.told).await.expect("the waiter does not panic");
        assert_eq!(failure(ended, name).kind(), ErrorKind::SessionLost, "{name}");
        answer(obstacle.remove().await);
        trial.until_over(&world, &ann).await;
    }
}

async fn a_use_without_answers_from_any_call_on_fails_in_time(world: World) {
    /// The number of rounds that run concurrently: each waits for its deadline.
    const TOGETHER: usize = 4;
    let bob = &world.client().await;
    each(Trial::all(&world), async |trial| {
        for first in (0..).step_by(TOGETHER) {
            let rounds = first..first + TOGETHER;
            let ended =
                join_all(rounds.map(|calls| trial.ends_without_answers(calls, &world, bob))).await;
            if ended.contains(&true) {
                return assert!(first > 0 || !ended[0], "it makes no call");
            }
        }
    })
    .await;
}

impl Trial {
    /// Returns `true` if a use ends before it makes this number of calls. No later call is
    /// answered.
    async fn ends_without_answers(&self, calls: usize, world: &World, bob: &Client) -> bool {
        /// The maximum factor by which a use gets more time than usual.
        const LAST: u32 = 8;
        let (mut trial, mut factor) = (self.round(calls), 1);
        loop {
            match trial.ends_within(factor, calls, world, bob).await {
                Ok(ended) => return ended,
                // The machine was too slow for the answered calls, or for heartbeats.
                Err(error)
                    if factor < LAST
                        && matches!(
                            error.kind(),
                            ErrorKind::Unreachable | ErrorKind::SessionLost
                        ) =>
                {
                    (trial, factor) = (trial.round(calls), factor * 2);
                }
                Err(error) => answer(Err(error)),
            }
        }
    }

    /// The same with `factor` times the usual time for each call and the session. Returns an error
    /// if an answered call took longer.
    async fn ends_within(
        &self,
        factor: u32,
        calls: usize,
        world: &World,
        bob: &Client,
    ) -> Result<bool> {
        let gate = world.gate();
        let session = SessionOptions::new(world.profile.ttl * factor);
        let options = world.options().session(session).timeout(world.brief() * 5 * factor);
        let ann = world.client_on(gate.clone(), options).await;
        answer(ann.session().await);
        gate.die_after(calls);

        let using = using(self, &ann);
        let ended = world.in_time(self.it.name, self.ends(using, &gate)).await;

        gate.revive();
        // If the close is not answered in time, the session expires.
        let _closed = world.in_time("the end of a client", ann.close()).await.is_ok();
        self.until_over(world, bob).await;
        ended
    }

    /// Returns `true` if a use ends before the gate stops all calls. Otherwise asserts that it
    /// reports an unreachable store, or continues when calls are answered again.
    async fn ends(&self, mut using: Waiting<()>, gate: &Gate) -> Result<bool> {
        if let Some(result) = using.result_before(gate.died()).await {
            return result.map(|()| true);
        }
        if self.it.outlasts {
            gate.revive();
        }
        // A removal in the background needs no answer.
        match using.told.await.expect("it does not panic") {
            Err(error) if error.kind() != ErrorKind::Unreachable => Err(error),
            _ => Ok(false),
        }
    }
}
