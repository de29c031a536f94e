//! A cache at its limits: code of the application that panics or calls back, silent outages, waits,
//! and order.

use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};

use synod_core::client::{Client, ConnectionState};
use synod_core::error::ErrorKind;
use synod_core::store::{Expect, Txn};
use synod_recipes::cache::{Cache, CacheState, Extent};
use synod_testkit::fault::Verb;
use tokio::time::sleep;

use crate::door::answer;
use crate::door::gate::Way;
use crate::recipe::Waiting;
use crate::recipe::cache::{Shadow, open, settles};
use crate::world::World;

cases![
    "L-CA-12" catches [WatchFiresOnce] => a_filter_may_ask_its_cache,
    "L-CA-12" catches [WatchFiresOnce] => a_filter_or_a_reader_that_panics_harms_nothing_else,
    "L-CA-4" breaks [ResyncUnread] => what_is_missed_during_a_read_of_the_whole_is_read_before_it_is_complete,
    "L-CA-1 L-CA-5" breaks [CopyIsNeverStale] => what_was_missed_in_an_outage_that_no_watch_reports_is_read,
    "L-CA-5 L-OUT-6" breaks [CopyIsNeverStale] => a_wait_ends_when_the_session_is_certain_again,
    "L-CA-3" breaks [ResyncOnlyAdds] => a_tree_goes_from_its_leaves_to_its_root,
];

async fn a_filter_may_ask_its_cache(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let own: Arc<OnceLock<Cache>> = Arc::default();
    let asked = own.clone();
    let extent = Extent::subtree(world.at("tree")).filtered(move |path| {
        let known = asked.get().map(|cache| (cache.get(path), cache.snapshot().len()));
        known.is_none_or(|(_, nodes)| nodes < 1_000)
    });
    let cache = Cache::start(&ann, extent);
    assert!(own.set(cache.clone()).is_ok());
    answer(world.in_time("a cache", cache.complete()).await);
    let shadow = Shadow::of(&cache);
    for value in ["first", "second", "third"] {
        for name in ["tree/a", "tree/b/c"] {
            answer(bob.put(&world.at(name), value).await);
        }
        settles(&world, &bob, &cache, &shadow).await;
    }
    answer(answer(bob.delete(&world.at("tree/a"), Expect::Any).await).required());
    settles(&world, &bob, &cache, &shadow).await;
}

async fn a_filter_or_a_reader_that_panics_harms_nothing_else(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let extent = Extent::subtree(world.at("tree")).filtered(|path| {
        if path.name() == "bad" {
            application_panics();
        }
        true
    });
    let (bad, cache) = (Cache::start(&ann, extent), open(&world, &ann).await);
    answer(world.in_time("a cache", bad.complete()).await);
    let shadow = Shadow::of(&cache);
    let events = cache.events();
    let mut reader = Waiting::<()>::new(async move {
        let _events = events;
        application_panics()
    });
    answer(bob.put(&world.at("tree/good"), "1").await);
    settles(&world, &bob, &cache, &shadow).await;
    answer(bob.put(&world.at("tree/bad"), "1").await);

    let ended = async || matches!(bad.state(), CacheState::Refused(_));
    world.eventually("a cache whose filter panics says so", ended).await;

    let failed = world.in_time("an answer", bad.complete()).await.expect_err("it is not complete");
    assert!(
        failed.kind() == ErrorKind::Invalid && failed.to_string().contains("filter"),
        "{failed}"
    );
    assert!(bad.get(&world.at("tree/good")).is_some(), "the content stays");
    assert!(world.in_time("the reader", &mut reader.told).await.is_err(), "it panics");
    answer(bob.put(&world.at("tree/good"), "2").await);
    settles(&world, &bob, &cache, &shadow).await;
    assert!(!answer(ann.session().await).is_lost());
}

/// Panics like code of an application, not like a failed case.
fn application_panics() -> ! {
    resume_unwind(Box::new("a mistake of the application"))
}

async fn what_is_missed_during_a_read_of_the_whole_is_read_before_it_is_complete(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let node = world.at("tree/n");
    answer(bob.put(&node, "0").await);
    let cache = open(&world, &ann).await;
    let shadow = Shadow::of(&cache);
    settles(&world, &bob, &cache, &shadow).await;
    let reads = gate.count(Verb::Read);
    gate.hold_behind([(Verb::Read, reads)]);
    gate.lose_events(true);
    answer(bob.put(&node, "1").await);
    world.in_time("the first read", gate.held(1)).await;
    answer(bob.put(&node, "2").await);
    // In paused time that has been reported by now. Otherwise it may be reported after the read.
    sleep(world.brief()).await;
    shadow.take_log();

    gate.lose_events(false);
    gate.hold_behind(None);

    settles(&world, &bob, &cache, &shadow).await;
    let log = shadow.take_log();
    assert_eq!(log.last().map(String::as_str), Some("complete"), "it missed a change: {log:?}");
    assert_eq!(cache.get(&node).expect("it is there").data, "2");
}

async fn what_was_missed_in_an_outage_that_no_watch_reports_is_read(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    gate.may_lose();
    let ann = world.client_on(gate.clone(), world.options()).await;
    let node = world.at("tree/n");
    answer(bob.put(&node, "0").await);
    let cache = open(&world, &ann).await;
    let shadow = Shadow::of(&cache);
    for value in 1..=3 {
        settles(&world, &bob, &cache, &shadow).await;
        gate.mute(true);
        answer(bob.put(&node, value.to_string()).await);
        gate.suspend();
        is(&world, &ann, ConnectionState::Suspended).await;
        world.eventually("readers are notified", async || !shadow.seen_complete()).await;
        gate.mute(false);

        gate.freeze(false);

        is(&world, &ann, ConnectionState::Reconnected).await;
    }
    settles(&world, &bob, &cache, &shadow).await;
}

/// Waits until the connection of a client is in this state.
async fn is(world: &World, client: &Client, state: ConnectionState) {
    let mut now = client.state();
    let reached = now.wait_for(|now| *now == state);
    world.in_time(&format!("{state:?}"), reached).await.expect("it is open");
}

async fn a_wait_ends_when_the_session_is_certain_again(world: World) {
    let gate = world.gate();
    gate.may_lose();
    let ann = world.client_on(gate.clone(), world.options()).await;
    let cache = open(&world, &ann).await;
    // No outage is reported: the session is uncertain by the clock alone.
    gate.freeze(true);
    let ttl = world.profile.ttl;
    world.eventually_after(ttl * 2, "it is not certain", async || !cache.state().is_live()).await;
    let CacheState::Stale(since) = cache.state() else { panic!("{:?}", cache.state()) };
    let waits = cache.clone();
    let mut waiting = Waiting::new(async move { waits.complete().await });
    waiting.waits_for(world.brief(), "it is not certain").await;
    assert!(matches!(cache.state(), CacheState::Stale(again) if again == since), "it says later");

    gate.freeze(false);

    waiting.gets(&world, "the session is certain again").await;
    assert!(cache.state().is_live());
}

async fn a_tree_goes_from_its_leaves_to_its_root(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    gate.may_lose();
    let ann = world.client_on(gate.clone(), world.options()).await;
    let paths = ["tree", "tree/a", "tree/a/b", "tree/a/b/c", "tree/d"].map(|path| world.at(path));
    let cache = open(&world, &ann).await;
    let shadow = Shadow::of(&cache);
    for is_away in [false, true] {
        for path in &paths {
            answer(bob.put(path, "").await);
        }
        settles(&world, &bob, &cache, &shadow).await;
        shadow.take_log();
        if is_away {
            gate.set(Way::Shut);
            gate.lose();
            let stale = async || !shadow.seen_complete();
            world.eventually("readers are notified", stale).await;
        }
        let all = paths.iter().rev().fold(Txn::new(), |txn, path| txn.delete(path, Expect::Any));
        answer(answer(bob.commit(all).await).required());
        gate.set(Way::Open);

        settles(&world, &bob, &cache, &shadow).await;

        let log = shadow.take_log();
        let gone: Vec<_> = log.iter().filter(|it| it.starts_with('-')).collect();
        let place = |name: &str| gone.iter().position(|it| *it == name).expect("it is gone");
        let order = ["-c", "-b", "-a", "-tree"].map(place);
        // Events of one commit may come from several watches, in any order.
        assert!(!is_away || order.is_sorted() && place("-d") < place("-tree"), "{gone:?}");
    }
    assert!(cache.snapshot().is_empty());
}
