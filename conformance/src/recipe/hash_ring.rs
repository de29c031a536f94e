//! The hash ring: every client finds the same member for a key, and few keys move.

use std::collections::BTreeMap;
use std::panic::resume_unwind;

use synod_core::client::Client;
use synod_core::store::Lifetime;
use synod_recipes::partition::{HashRing, Ring};
use synod_recipes::presence::{Group, Membership};

use crate::door::answer;
use crate::door::gate::Way;
use crate::world::World;

cases![
    "L-HR-1 L-GM-1" catches [WatchFiresOnce] => every_client_finds_the_same_member_for_a_key,
    "L-HR-1 L-WAT-7" needs [Expiry] catches [ExpiryUntoldToWatchers] => a_member_that_dies_loses_its_keys,
    "L-HR-2" breaks [RingByRemainder] => a_change_moves_only_keys_of_the_member_that_came_or_went,
    "L-HR-4" catches [WatchMissesChildUpdate] => keys_go_by_the_weight_that_a_member_has_last,
    "L-HR-3 L-HR-4" catches [WatchFiresOnce] => a_member_whose_data_makes_the_weigher_panic_has_no_weight,
    "L-HR-3" breaks [CopyIsNeverStale] => a_ring_is_stale_while_the_store_is_out_of_reach,
    "L-WAT-14 L-X-5" needs [WatchCount] catches [DropLeavesWatch] => rings_that_were_dropped_leave_no_watch,
];

/// Enough keys to show their distribution.
const KEYS: usize = 300;

async fn open(world: &World, client: &Client) -> HashRing {
    answer(world.in_time("a ring", HashRing::open(client, world.at("ring"))).await)
}

async fn joined(world: &World, client: &Client, name: &str) -> Membership {
    let group = Group::new(client, world.at("ring"));
    answer(world.in_time("joining", group.join_as(name, "1")).await)
}

/// The member of each key, queried from the ring in the same way as by an application.
fn owners(ring: &HashRing) -> BTreeMap<String, Option<String>> {
    let keys = (0..KEYS).map(|number| format!("key-{number}"));
    keys.map(|key| (key.clone(), ring.owner(key))).collect()
}

impl World {
    /// Waits until a ring has these members, and reports that it is current.
    async fn until_ring(&self, ring: &HashRing, members: &[(&str, u8)]) {
        let expected = Ring::new(members.iter().copied());
        let is_it = async || ring.view().is_current() && *ring.view().ring == expected;
        self.eventually(&format!("the ring is that of {members:?}"), is_it).await;
    }
}

async fn every_client_finds_the_same_member_for_a_key(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let rings = [open(&world, &ann).await, open(&world, &bob).await];
    assert_eq!(rings[0].owner("key"), None, "there is no member");
    // A node that is not ephemeral is not a member.
    let place = world.at("ring/place");
    answer(answer(bob.create(&place, "", Lifetime::Persistent).await).required());
    let first = joined(&world, &ann, "first").await;
    let odd = joined(&world, &bob, "a/b %").await;
    let before = [rings[0].view().as_of, rings[1].view().as_of];
    for ring in &rings {
        world.until_ring(ring, &[("first", 1), ("a/b %", 1)]).await;
    }
    assert_eq!(owners(&rings[0]), owners(&rings[1]));
    let both = rings[0].owners("key", 5);
    assert!(both.len() == 2 && rings[0].owner("key").as_ref() == both.first(), "{both:?}");

    answer(world.in_time("leaving", first.leave()).await);

    for (ring, before) in rings.iter().zip(before) {
        world.until_ring(ring, &[("a/b %", 1)]).await;
        assert_eq!(ring.owner("key").as_deref(), Some("a/b %"));
        assert!(ring.view().as_of >= before, "it went back");
    }
    answer(world.in_time("leaving", odd.leave()).await);
}

async fn a_member_that_dies_loses_its_keys(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let (_hers, his) = (joined(&world, &ann, "ann").await, joined(&world, &bob, "bob").await);
    let ring = open(&world, &bob).await;
    world.until_ring(&ring, &[("ann", 1), ("bob", 1)]).await;
    let session = answer(ann.session().await).info().id;
    gate.die_after(0);

    world.expire(session).await;

    world.until_ring(&ring, &[("bob", 1)]).await;
    answer(world.in_time("leaving", his.leave()).await);
}

async fn a_change_moves_only_keys_of_the_member_that_came_or_went(world: World) {
    let client = world.client().await;
    let ring = open(&world, &client).await;
    let mut members = Vec::new();
    for name in ["a", "b", "c", "d"] {
        members.push(joined(&world, &client, name).await);
    }
    let four = [("a", 1), ("b", 1), ("c", 1), ("d", 1)];
    world.until_ring(&ring, &four).await;
    let before = owners(&ring);

    let came = joined(&world, &client, "came").await;
    world.until_ring(&ring, &[("a", 1), ("b", 1), ("c", 1), ("came", 1), ("d", 1)]).await;

    let with = owners(&ring);
    let moved: Vec<_> = with.iter().filter(|(key, owner)| before[*key] != **owner).collect();
    assert!(!moved.is_empty() && moved.len() < KEYS / 2, "{} of {KEYS} moved", moved.len());
    assert!(moved.iter().all(|(_, owner)| owner.as_deref() == Some("came")), "{moved:?}");

    answer(world.in_time("leaving", came.leave()).await);
    world.until_ring(&ring, &four).await;
    assert_eq!(owners(&ring), before, "all others kept theirs");
}

async fn keys_go_by_the_weight_that_a_member_has_last(world: World) {
    let client = world.client().await;
    let weigh = |data: &[u8]| str::from_utf8(data).ok().and_then(|it| it.parse().ok()).unwrap_or(0);
    let (ann, bob) = (joined(&world, &client, "ann").await, joined(&world, &client, "bob").await);
    let opening = HashRing::open_weighted(&client, world.at("ring"), weigh);
    let ring = answer(world.in_time("a ring", opening).await);
    world.until_ring(&ring, &[("ann", 1), ("bob", 1)]).await;
    for (data, weight) in [("4", 4), ("0", 0), ("no number", 0), ("2", 2)] {
        answer(ann.set(data).await);

        world.until_ring(&ring, &[("ann", weight), ("bob", 1)]).await;

        let hers = owners(&ring).into_values().filter(|it| it.as_deref() == Some("ann")).count();
        assert_eq!(hers == 0, weight == 0, "{hers} of {KEYS} with {data}");
        assert_eq!(hers > KEYS * 3 / 4, weight == 4, "{hers} of {KEYS} with {data}");
    }
    for member in [ann, bob] {
        answer(world.in_time("leaving", member.leave()).await);
    }
}

async fn a_member_whose_data_makes_the_weigher_panic_has_no_weight(world: World) {
    let client = world.client().await;
    let weigh = |data: &[u8]| {
        let weight = str::from_utf8(data).ok().and_then(|it| it.parse().ok());
        // Panics like code of an application, not like a failed case.
        weight.unwrap_or_else(|| resume_unwind(Box::new("it is no number")))
    };
    let (one, bad) = (joined(&world, &client, "one").await, joined(&world, &client, "bad").await);
    answer(bad.set("no number").await);
    let opening = HashRing::open_weighted(&client, world.at("ring"), weigh);
    let ring = answer(world.in_time("a ring", opening).await);
    world.until_ring(&ring, &[("one", 1), ("bad", 0)]).await;
    answer(world.in_time("leaving", one.leave()).await);
    let two = joined(&world, &client, "two").await;
    world.until_ring(&ring, &[("two", 1), ("bad", 0)]).await;
    assert_eq!(ring.owner("key").as_deref(), Some("two"));
    answer(bad.set("3").await);
    world.until_ring(&ring, &[("two", 1), ("bad", 3)]).await;
    for member in [two, bad] {
        answer(world.in_time("leaving", member.leave()).await);
    }
}

async fn a_ring_is_stale_while_the_store_is_out_of_reach(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    gate.may_lose();
    let ann = world.client_on(gate.clone(), world.options()).await;
    let ring = open(&world, &ann).await;
    let mut there = Vec::new();
    for round in 0..3 {
        let expected: Vec<(&str, u8)> =
            ["one", "two", "three"].into_iter().take(round).map(|name| (name, 1)).collect();
        world.until_ring(&ring, &expected).await;
        gate.set(Way::Shut);
        gate.lose_events(true);
        gate.lose();
        assert!(!ring.view().is_current(), "its session is lost");
        there.push(joined(&world, &bob, ["one", "two", "three"][round]).await);
        assert_eq!(*ring.view().ring, Ring::new(expected), "the last members stay");
        gate.lose_events(false);
        gate.set(Way::Open);
    }
    world.until_ring(&ring, &[("one", 1), ("two", 1), ("three", 1)]).await;
    for member in there {
        answer(world.in_time("leaving", member.leave()).await);
    }
}

async fn rings_that_were_dropped_leave_no_watch(world: World) {
    let client = world.client().await;
    world.leaves_no_watch(async || open(&world, &client).await).await;
}
