//! Values that are followed: the last value is always reported.

use futures_util::{FutureExt as _, StreamExt as _};
use synod_core::client::{Client, ValueWatch};
use synod_core::error::{ErrorKind, Result};
use synod_core::store::{Expect, Lifetime, Txn};
use synod_testkit::cancel::stop_at;

use crate::door::{answer, failure};
use crate::world::{World, dropped_enough};

cases![
    "D-FOLLOW D-VALUE" breaks [BadValueForgetsGood] => what_cannot_be_read_leaves_the_last_value,
    "D-FOLLOW L-WAT-1" catches [WatchMissesUpdate] => a_follower_gets_the_last_value_in_the_end,
    "D-FOLLOW L-X-1" breaks [HeardForgotten] => a_value_that_a_dropped_call_received_is_returned_by_the_next,
    "D-FOLLOW L-WAT-7" needs [Expiry] breaks [ResyncSwallowed] => a_value_that_changes_between_two_sessions_is_returned,
    "D-FOLLOW L-WAT-12" breaks [LastDropForgotten] => following_ends_with_the_client_and_does_not_keep_it_open,
    "D-VALUE L-KV-9" breaks [ValueWithoutVersion] => values_are_written_together,
];

fn now(followed: &ValueWatch<u64>) -> Option<u64> {
    followed.current().map(|it| it.value)
}

impl World {
    async fn changed(&self, followed: &mut ValueWatch<u64>) -> Result<()> {
        self.in_time("another value", followed.changed()).await
    }
}

async fn what_cannot_be_read_leaves_the_last_value(world: World) {
    let (client, bob, at) = (world.client().await, world.bob().await, world.at("limit"));
    bob.create(&at, "x").await;
    let read = failure(client.follow_value::<u64>(&at).await, "what is no number");
    assert_eq!(read.kind(), ErrorKind::Corrupt);
    bob.set(&at, "1").await;
    let mut followed = answer(client.follow_value::<u64>(&at).await);
    assert_eq!(now(&followed), Some(1));

    bob.set(&at, "{").await;
    let error = failure(world.changed(&mut followed).await, "what is no number");

    assert_eq!((error.kind(), error.path()), (ErrorKind::Corrupt, Some(&at)));
    assert_eq!(now(&followed), Some(1), "the last that could be read");
    bob.set(&at, "2").await;
    answer(world.changed(&mut followed).await);
    assert_eq!(now(&followed), Some(2));
}

async fn a_follower_gets_the_last_value_in_the_end(world: World) {
    let (client, bob, at) = (world.client().await, world.bob().await, world.at("limit"));
    let mut followed = answer(client.follow_value::<u64>(&at).await);
    assert_eq!(now(&followed), None, "there is no node yet");
    bob.create(&at, "0").await;
    answer(world.changed(&mut followed).await);
    assert_eq!(now(&followed), Some(0));

    for number in 1..=20 {
        bob.set(&at, number.to_string()).await;
    }
    while now(&followed) != Some(20) {
        answer(world.changed(&mut followed).await);
    }
    bob.delete(&at).await;
    answer(world.changed(&mut followed).await);
    assert_eq!(now(&followed), None, "it is gone");

    bob.create(&at, "20").await;
    let mut stream = followed.into_stream();
    let mut told = None;
    while told != Some(20) {
        let next = world.in_time("the value in a stream", stream.next()).await;
        told = answer(next.expect("the client is open")).map(|it| it.value);
    }
    answer(client.close().await);
    let end = world.in_time("the end of the stream", stream.next()).await;
    let end = failure(end.expect("an error comes before it"), "the end of the stream");
    assert_eq!(end.kind(), ErrorKind::SessionLost);
    assert!(stream.next().now_or_never().is_some_and(|next| next.is_none()));
}

async fn a_value_that_a_dropped_call_received_is_returned_by_the_next(world: World) {
    let (client, bob, at) = (world.hesitant().await, world.bob().await, world.at("limit"));
    bob.create(&at, "0").await;
    let mut followed = answer(client.follow_value::<u64>(&at).await);
    for waits in 1.. {
        bob.set(&at, waits.to_string()).await;

        let ended = world.in_time("a call that is dropped", stop_at(waits, followed.changed()));
        let ended = ended.await;

        match ended {
            Some(changed) => {
                answer(changed);
                if now(&followed) == u64::try_from(waits).ok() {
                    return dropped_enough(waits, 2);
                }
            }
            None => {
                while now(&followed) != u64::try_from(waits).ok() {
                    answer(world.changed(&mut followed).await);
                }
            }
        }
    }
}

async fn a_value_that_changes_between_two_sessions_is_returned(world: World) {
    let (client, bob, at) = (world.client().await, world.bob().await, world.at("limit"));
    bob.create(&at, "0").await;
    let mut followed = answer(client.follow_value::<u64>(&at).await);
    for round in 1..=3 {
        let session = answer(client.session().await);
        world.expire(session.info().id).await;
        bob.set(&at, round.to_string()).await;
        while now(&followed) != Some(round) {
            answer(world.changed(&mut followed).await);
        }
        // The change may be reported before the loss.
        world.in_time("the loss", session.lost()).await;
    }
}

async fn following_ends_with_the_client_and_does_not_keep_it_open(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    let at = world.at("limit");
    answer(client.put_value(&at, &1).await);
    let mut followed = answer(client.follow_value::<u64>(&at).await);
    let mut others = answer(other.follow_value::<u64>(&at).await);

    drop(client);
    answer(other.close().await);

    for followed in [&mut followed, &mut others] {
        for _ in 0..2 {
            let end = failure(world.changed(followed).await, "the end of the client");
            assert_eq!((end.kind(), end.path()), (ErrorKind::SessionLost, Some(&at)));
        }
        assert_eq!(now(followed), Some(1), "it keeps the last");
    }
}

async fn values_are_written_together(world: World) {
    let (client, a, b) = (world.client().await, world.at("a"), world.at("b"));
    answer(client.put_value(&a, &1).await);
    let one = answer(client.get_value::<u64>(&a).await).expect("it was put");
    let both = async |client: &Client| {
        let txn = Txn::new().set_value(&a, &2, one.unchanged()).and_then(|txn| {
            let table = [("x", 1)];
            txn.create_value(&b, &table, Lifetime::Persistent)
        });
        client.commit(txn.expect("both can be written as JSON")).await
    };

    let first = answer(both(&client).await);
    let again = answer(both(&client).await);

    assert!(first.is_committed() && again.rejected().is_some(), "it replaced what was read");
    let stale = Txn::new().set_value(&a, &3, one.unchanged()).expect("it can be written as JSON");
    let stale = answer(client.commit(stale).await);
    assert!(stale.rejected().is_some(), "it expects what was read");
    let two = answer(client.get_value::<u64>(&a).await).expect("it was set");
    assert_eq!(two.value, 2);
    let read = answer(client.get_value::<[(String, u64); 1]>(&b).await).expect("it was created");
    assert_eq!(read.value, [("x".to_owned(), 1)]);
    let odd = std::collections::BTreeMap::from([((1, 2), 3)]);
    let refused = failure(Txn::new().set_value(&b, &odd, Expect::Any), "what is no JSON");
    assert_eq!((refused.kind(), refused.path()), (ErrorKind::Invalid, Some(&b)));
}
