//! The cache of values: each version is decoded once, and what is no value affects no other.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt as _;
use synod_core::error::{Error, ErrorKind};
use synod_core::store::Expect;
use synod_recipes::cache::{CacheEvent, TypedCache};

use crate::door::answer;
use crate::recipe::queue_edges::panics;
use crate::world::World;

cases![
    "L-CA-1 L-CA-13" catches [WatchFiresOnce] => values_of_a_cache_are_those_of_its_nodes_in_the_end,
    "L-CA-13" catches [WatchFiresOnce] => a_version_is_decoded_once_for_all_readers,
    "L-CA-13 L-CA-12" catches [WatchFiresOnce] => a_decoder_that_fails_or_panics_affects_no_other_node,
];

async fn values_of_a_cache_are_those_of_its_nodes_in_the_end(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [one, two] = ["values/one", "values/two"].map(|name| world.at(name));
    answer(bob.put_value(&one, &1_u32).await);
    let opening = TypedCache::<u32>::open(&ann, world.at("values"));
    let cache = answer(world.in_time("a cache", opening).await);
    assert_eq!(cache.get(&one).map(|value| *answer(value)), Some(1));
    assert!(cache.get(&two).is_none() && cache.state().is_live());

    for number in 2..=5_u32 {
        answer(bob.put_value(&one, &number).await);
        answer(bob.put_value(&two, &(10 * number)).await);
    }

    let values = || {
        let values = cache.values().into_iter();
        values.map(|(path, value)| (path, *answer(value))).collect::<Vec<_>>()
    };
    let last = [(one.clone(), 5), (two.clone(), 50)];
    world.eventually("the last values", async || values() == last).await;
    answer(answer(bob.delete(&one, Expect::Any).await).required());
    world.eventually("one is gone", async || values() == last[1..]).await;
    answer(bob.put_value(&one, &6_u32).await);
    let is_six = async || cache.get(&one).is_some_and(|value| *answer(value) == 6);
    world.eventually("it is another node", is_six).await;
}

async fn a_version_is_decoded_once_for_all_readers(world: World) {
    const NODES: usize = 200;
    let (client, at) = (world.client().await, world.at("values"));
    let node = |number: usize| at.join(&number.to_string()).expect("valid");
    answer(client.put(&at.join("kept").expect("valid"), "value").await);
    let decoded = Arc::new(AtomicUsize::new(0));
    let counter = decoded.clone();
    let parse = move |data: &[u8]| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok::<_, Error>(data.len())
    };
    let opening = TypedCache::open_with(&client, &at, parse);
    let cache = answer(world.in_time("a cache", opening).await);
    let kept = answer(cache.get(&at.join("kept").expect("valid")).expect("it is there"));
    let mut events = pin!(cache.events());
    // Nodes that come and go are decoded for the events alone.
    for number in 0..NODES {
        answer(client.put(&node(number), "x").await);
        loop {
            match world.in_time("an event", events.next()).await.expect("it is open") {
                CacheEvent::Created(created) if created.path == node(number) => {
                    assert_eq!(*answer(cache.decode(&created)), 1);
                    break;
                }
                _ => {}
            }
        }
        answer(answer(client.delete(&node(number), Expect::Any).await).required());
    }

    let other = cache.clone();
    for _ in 0..3 {
        let again = other.values().remove(&at.join("kept").expect("valid"));
        let again = answer(again.expect("it is there"));
        assert!(Arc::ptr_eq(&again, &kept) && *again == 5, "it is the same value");
    }
    assert!(decoded.load(Ordering::Relaxed) <= NODES + 1, "each version once");
    let shown = format!("{cache:?}");
    assert!(shown.starts_with("TypedCache { cache: Cache { mirror: "), "{shown}");
}

async fn a_decoder_that_fails_or_panics_affects_no_other_node(world: World) {
    let (client, at) = (world.client().await, world.at("values"));
    for name in ["good", "fails", "panics"] {
        answer(client.put(&at.join(name).expect("valid"), name).await);
    }
    let parse = |data: &[u8]| match data {
        b"fails" => Err("on purpose"),
        b"panics" => {
            panics();
            Ok(())
        }
        _ => Ok(()),
    };
    let opening = TypedCache::open_with(&client, &at, parse);
    let cache = answer(world.in_time("a cache", opening).await);

    for _ in 0..2 {
        let values = cache.values();
        assert_eq!(values.len(), 3);
        for (path, value) in values {
            match path.name() {
                "good" => answer(value.map(drop)),
                name => {
                    let error = value.expect_err("it is no value");
                    assert_eq!((error.kind(), error.path()), (ErrorKind::Corrupt, Some(&path)));
                    assert!(!format!("{error:?}").contains(&format!("\"{name}\"")), "{error:?}");
                }
            }
        }
    }
    for name in ["fails", "panics"] {
        let node = at.join(name).expect("valid");
        answer(client.put(&node, "good").await);
        let is_good = async || cache.get(&node).is_some_and(|value| value.is_ok());
        world.eventually("the next version is a value", is_good).await;
    }
}
