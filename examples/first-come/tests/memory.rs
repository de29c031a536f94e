//! The promises of the recipe, on the store in memory.

use std::time::Duration;

use futures_util::future::join;
use synod_core::client::{Client, ClientOptions};
use synod_core::clock::{self, sleep};
use synod_core::error::ErrorKind;
use synod_core::held::{Held as _, Release as _};
use synod_core::path;
use synod_core::random::Random;
use synod_core::store::{Expect, Lifetime, Txn};
use synod_first_come::FirstCome;
use synod_mem::MemBackend;
use synod_testkit::cancel::cancel_at_every_await;
use synod_testkit::fault::{Actor, Cue, FaultyBackend, Plan, Site, Verb};
use synod_testkit::hesitant::HesitantBackend;

async fn client(store: &MemBackend, seed: u64) -> Client {
    let options = ClientOptions::default().random(Random::seeded(seed));
    Client::open(store.clone(), options).await.expect("opens")
}

fn claim(client: &Client) -> FirstCome {
    FirstCome::new(client, path!("/claim"))
}

#[tokio::test(start_paused = true)]
async fn one_client_has_it_until_it_releases_or_drops_it() {
    let store = MemBackend::new();
    let (ann, bob) = (client(&store, 1).await, client(&store, 2).await);
    let (anns, bobs) = (claim(&ann), claim(&bob));

    let first = anns.try_claim().await.expect("reachable").expect("free");
    assert!(bobs.try_claim().await.expect("reachable").is_none());
    assert!(first.is_held());
    first.release().await.expect("held");
    // The node of the claim that failed is removed in the background.
    sleep(Duration::from_secs(1)).await;

    let second = bobs.try_claim().await.expect("reachable").expect("free");
    drop(second);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(store.census().nodes, 0);
    assert!(anns.try_claim().await.expect("reachable").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_claim_costs_one_call_and_so_does_its_release() {
    // Each call takes two pauses.
    let pause = Duration::from_millis(10);
    let slow = HesitantBackend::new(MemBackend::new()).pausing(pause);
    let ann = Client::open(slow, ClientOptions::default()).await.expect("opens");

    let started = clock::now();
    let guard = claim(&ann).try_claim().await.expect("reachable").expect("free");
    assert_eq!(clock::elapsed(started), pause * 2);
    let token = guard.token();
    guard.release().await.expect("held");
    assert_eq!(clock::elapsed(started), pause * 4);

    let later = claim(&ann).try_claim().await.expect("reachable").expect("free");
    assert!(later.token() > token);
}

#[tokio::test(start_paused = true)]
async fn one_of_two_that_come_at_once_has_it() {
    for seed in 0..20 {
        let store = MemBackend::new();
        let (ann, bob) = (client(&store, seed).await, client(&store, seed + 100).await);
        let (anns, bobs) = (claim(&ann), claim(&bob));
        let both = join(anns.try_claim(), bobs.try_claim()).await;
        let held = [both.0, both.1].map(|guard| guard.expect("reachable"));
        assert_eq!(held.iter().flatten().filter(|guard| guard.is_held()).count(), 1, "{seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_written_under_a_claim_that_was_lost_is_rejected() {
    let store = MemBackend::new();
    let (ann, bob) = (client(&store, 1).await, client(&store, 2).await);
    let created = bob.create(&path!("/data"), "", Lifetime::Persistent).await;
    created.expect("reachable").required().expect("free");
    let guard = claim(&ann).try_claim().await.expect("reachable").expect("free");
    let write =
        |data: &'static str| Txn::new().under(&guard).set(path!("/data"), data, Expect::Any);

    assert!(bob.commit(write("a")).await.expect("reachable").is_committed());
    bob.delete(guard.path(), Expect::Any).await.expect("reachable").required().expect("there");
    assert!(bob.commit(write("b")).await.expect("reachable").rejected().is_some());

    let worked = guard.run(std::future::pending::<()>()).await;
    assert_eq!(worked.expect_err("lost").kind(), ErrorKind::SessionLost);
    assert!(!guard.is_held());
    assert_eq!(guard.release().await.expect_err("lost").kind(), ErrorKind::SessionLost);
}

#[tokio::test(start_paused = true)]
async fn a_lost_session_frees_it() {
    let store = MemBackend::new();
    let (ann, bob) = (client(&store, 1).await, client(&store, 2).await);
    let guard = claim(&ann).try_claim().await.expect("reachable").expect("free");

    store.expire(ann.session().await.expect("open").info().id);
    guard.lost().await;

    assert!(!guard.is_held());
    assert!(claim(&bob).try_claim().await.expect("reachable").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_does_no_harm() {
    for site in [Site::RequestLost, Site::ReplyLost, Site::AppliedLate] {
        let store = MemBackend::new();
        let plan = Plan::scripted([Cue::new(site).of(Verb::Create)]);
        let faulty = FaultyBackend::new(store.clone(), plan.clone(), Actor::new(1));
        let ann = Client::open(faulty, ClientOptions::default()).await.expect("opens");

        let guard = claim(&ann).try_claim().await.expect("reachable").expect("free");

        assert!(guard.is_held() && plan.pending() == 0, "{site:?}");
        guard.release().await.expect("held");
        sleep(Duration::from_secs(60)).await;
        assert_eq!(store.census().nodes, 0, "{site:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_at_any_await_leaves_no_node() {
    let store = MemBackend::new();
    let hesitant = HesitantBackend::new(store.clone());
    let ann = Client::open(hesitant, ClientOptions::default()).await.expect("opens");

    let drops = cancel_at_every_await(async || {
        // An earlier claim is removed in the background, and may still be first.
        if let Some(guard) = claim(&ann).try_claim().await.expect("reachable") {
            guard.release().await.expect("held");
        }
    });

    assert!(drops.await > 1, "the store never pauses");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(store.census().nodes, 0);
}
