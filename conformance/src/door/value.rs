//! Typed values, and bytes that cannot be decoded as one.

use std::collections::BTreeMap;

use bytes::Bytes;
use synod_core::error::{Effect, ErrorKind};
use synod_core::store::{Expect, Lifetime};

use crate::actor::text_of;
use crate::door::{answer, done, failure};
use crate::world::World;

cases![
    "D-VALUE L-KV-5" breaks [ValueWithoutVersion] => a_value_is_replaced_only_if_it_is_unchanged,
    "D-VALUE L-OUT-8" breaks [CorruptIsNone] => data_that_cannot_be_read_is_corrupt,
    "D-VALUE L-OUT-7" breaks [DataQuoted] => data_that_cannot_be_read_is_not_quoted,
    "L-OUT-8" breaks [AnswerTrusted] => what_a_store_leaves_out_is_missed_without_a_panic,
];

const CANARY: &str = "canary-7f3a";

/// Bytes that are not a table of numbers.
fn malformed() -> Vec<Bytes> {
    let texts = ["", "{", "null", "[1]", "{\"a\": -1}", "{\"a\": 1} x", "{\"a\": 1e999}"];
    let secrets = [format!("\"{CANARY}\""), format!("{{\"a\": \"{CANARY}\"}}"), CANARY.to_owned()];
    let odd = [Bytes::from_static(b"\xff\xfe\x00"), Bytes::from("[".repeat(100_000))];
    texts.into_iter().map(Bytes::from).chain(secrets.map(Bytes::from)).chain(odd).collect()
}

async fn a_value_is_replaced_only_if_it_is_unchanged(world: World) {
    let (client, at) = (world.client().await, world.at("limit"));
    assert_eq!(answer(client.get_value::<u64>(&at).await), None);
    done(client.create_value(&at, &7_u64, Lifetime::Persistent).await);
    let seven = answer(client.get_value::<u64>(&at).await).expect("it was created");
    assert_eq!(seven.value, 7);

    done(client.set_value(&at, &8_u64, seven.unchanged()).await);
    let late = answer(client.set_value(&at, &9_u64, seven.unchanged()).await);

    assert!(late.rejected().is_some(), "it was changed in between");
    let eight = answer(client.get_value::<u64>(&at).await).expect("it exists");
    assert_eq!(eight.value, 8);
    let table = BTreeMap::from([("a".to_owned(), u64::MAX), ("\u{0}\u{ffff}".to_owned(), 0)]);
    done(client.set_value(&at, &table, eight.unchanged()).await);
    let read = answer(client.get_value::<BTreeMap<String, u64>>(&at).await).expect("it exists");
    assert_eq!(read.value, table);
}

async fn data_that_cannot_be_read_is_corrupt(world: World) {
    let (client, bob, at) = (world.client().await, world.bob().await, world.at("limit"));
    bob.create(&at, "").await;
    for data in malformed() {
        bob.set(&at, data.clone()).await;

        let read = client.get_value::<BTreeMap<String, u32>>(&at).await;

        let error = failure(read, "what is no such value");
        assert_eq!((error.kind(), error.path()), (ErrorKind::Corrupt, Some(&at)));
        assert_eq!(answer(client.get(&at).await).map(|node| node.data), Some(data));
    }
    done(client.set_value(&at, &BTreeMap::from([("a", 1)]), Expect::Any).await);
    let read = answer(client.get_value::<BTreeMap<String, u32>>(&at).await);
    assert_eq!(read.expect("it exists").value, BTreeMap::from([("a".to_owned(), 1)]));
}

async fn data_that_cannot_be_read_is_not_quoted(world: World) {
    let (client, bob, at) = (world.client().await, world.bob().await, world.at("limit"));
    bob.create(&at, "").await;
    for data in malformed() {
        bob.set(&at, data).await;
        let error = failure(client.get_value::<BTreeMap<String, u32>>(&at).await, "no such value");
        let said = format!("{} {error:?}", text_of(&error));
        assert!(!said.contains(CANARY), "{said}");
    }
}

/// A store that omits a guaranteed part of an answer is reported as an error of the store.
async fn what_a_store_leaves_out_is_missed_without_a_panic(world: World) {
    let (gate, bob, at) = (world.gate(), world.bob().await, world.at("a"));
    let client = world.client_on(gate.clone(), world.options().timeout(world.profile.ttl)).await;
    bob.create(&at, "7").await;
    gate.garble(true);

    let prefix = world.at("t-");
    let drawn = client.create_sequential(&prefix, "", Lifetime::Session).await;
    let written = [
        failure(client.set(&at, "7", Expect::Any).await, "a set"),
        failure(client.create(&world.at("b"), "", Lifetime::Session).await, "a create"),
        failure(drawn, "a ticket"),
    ];
    let read = failure(client.get_value::<u64>(&at).await, "a value without a version");
    let children = answer(client.children(&world.dir).await);

    for error in written {
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Backend, Effect::Unknown));
    }
    assert_eq!(read.kind(), ErrorKind::Corrupt);
    assert_eq!(children.len(), 3, "each was made");
    gate.garble(false);
    assert_eq!(answer(client.get_value::<u64>(&at).await).map(|seven| seven.value), Some(7));
}
