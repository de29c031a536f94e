//! Containers whose names look like tickets: a listing of names may not show that no node exists.

use futures_util::StreamExt as _;
use synod_core::client::Client;
use synod_core::path::Path;
use synod_core::store::Lifetime;
use synod_recipes::election::Election;
use synod_recipes::lock::{Mutex, RwLock, Semaphore, UnfairLock};
use synod_testkit::fault::Verb;

use crate::door::gate::Gate;
use crate::door::{answer, done};
use crate::recipe::many;
use crate::world::World;

cases![
    "L-MX-18 L-MX-14" breaks [ContainerIsTicket] => a_container_that_looks_like_a_ticket_is_not_waited_for,
    "L-MX-18 L-EL-5 L-MX-14" breaks [ContainerIsTicket] => a_container_that_looks_like_a_candidate_does_not_lead,
    "L-MX-18 L-SEM-6" breaks [ContainerIsTicket] => a_container_that_looks_like_a_ticket_takes_no_permit,
    "L-MX-18 L-MX-14" breaks [ContainerIsTicket] => a_container_at_the_path_of_a_recent_ticket_is_not_waited_for,
];

/// The id of a ticket of this library, of the year 1970.
const OLD: &str = "01234567-89ab-8def-a123-000000000abc";

/// A client whose listings of `dir` contain a container of this name.
async fn beside(world: &World, dir: &Path, name: &str) -> (Gate, Client) {
    let (ann, gate) = (world.client().await, world.gate());
    let strange = dir.join(name).expect("valid");
    let below = strange.join("x").expect("valid");
    done(ann.create(&below, "", Lifetime::Persistent).await);
    gate.name_container(&strange);
    let client = world.client_on(gate.clone(), world.options()).await;
    (gate, client)
}

fn calls(gate: &Gate) -> usize {
    [Verb::Read, Verb::Watch, Verb::Commit].map(|verb| gate.count(verb)).iter().sum()
}

async fn a_container_that_looks_like_a_ticket_is_not_waited_for(world: World) {
    let names =
        ["order-lock-0000000000", "_c_order-lock-0000000000", &format!("_c_{OLD}-lock-0000000000")];
    for (number, name) in names.iter().enumerate() {
        let dir = world.at(&format!("line-{number}"));
        let (gate, client) = beside(&world, &dir, name).await;

        let lock = Mutex::new(&client, dir.clone());
        answer(world.in_time("the lock", lock.lock()).await.expect("it is free").release().await);
        let rwlock = RwLock::new(&client, dir.clone());
        answer(
            world.in_time("to write", rwlock.write()).await.expect("it is free").release().await,
        );
        answer(world.in_time("to read", rwlock.read()).await.expect("it is free").release().await);
        assert!(calls(&gate) <= 3 * 8, "{} calls", calls(&gate));

        let tried = answer(lock.try_lock().await).expect("a try finds it free");
        answer(tried.release().await);
        let unfair = UnfairLock::new(&client, dir.clone());
        let got = world.in_time("the unfair lock", unfair.lock()).await;
        answer(answer(got).release().await);
        answer(answer(unfair.try_lock().await).expect("a try finds it free").release().await);
    }
}

/// A write below the path of a guard that was just lost. A `try_` call cannot immediately know that
/// no node exists, and does not wait; a call that waits detects it.
async fn a_container_at_the_path_of_a_recent_ticket_is_not_waited_for(world: World) {
    let dir = world.at("line");
    let ann = world.client().await;
    let lost = answer(Mutex::new(&ann, dir.clone()).lock().await);
    let name = lost.path().name().to_owned();
    answer(lost.release().await);
    let (gate, client) = beside(&world, &dir, &name).await;

    let lock = Mutex::new(&client, dir.clone());
    answer(world.in_time("the lock", lock.lock()).await.expect("it is free").release().await);
    let unfair = UnfairLock::new(&client, dir.clone());
    let got = world.in_time("the unfair lock", unfair.lock()).await;
    answer(answer(got).release().await);
    assert!(calls(&gate) <= 4 * 8, "{} calls", calls(&gate));
}

async fn a_container_that_looks_like_a_candidate_does_not_lead(world: World) {
    let dir = world.at("elect");
    let (gate, client) = beside(&world, &dir, "order-latch-0000000000").await;
    let election = Election::new(&client, dir);
    let mut observed = Box::pin(election.observe());

    let campaign = async {
        // The candidate looks for a leader while there is only the container.
        gate.called(Verb::Watch, 2).await;
        election.campaign("ann").await
    };
    let both = futures_util::future::join(observed.next(), campaign);
    let (told, leader) = world.in_time("the leader, and to hear of it", both).await;

    assert_eq!(answer(told.expect("it goes on")).label, "ann");
    assert!(calls(&gate) <= 16, "{} calls", calls(&gate));
    answer(answer(leader).resign().await);
}

async fn a_container_that_looks_like_a_ticket_takes_no_permit(world: World) {
    let names =
        ["x-lease-0000000000", "_c_x-lease-0000000000", &format!("_c_{OLD}-lease-0000000000")];
    for (number, name) in names.iter().enumerate() {
        let dir = world.at(&format!("pool-{number}"));
        let (_gate, client) = beside(&world, &dir, name).await;
        let pool = Semaphore::new(&client, dir, many(1));

        let permit = answer(world.in_time("the only permit", pool.acquire()).await);
        answer(permit.release().await);
        let permit = answer(pool.try_acquire().await).expect("a try finds it free");
        answer(permit.release().await);
    }
}
