//! The shared count: the promises of the shared value, for a number of four bytes.

use synod_core::error::ErrorKind;
use synod_recipes::value::{CopyState, Counter, SharedCount};

use crate::door::{answer, failure};
use crate::recipe::Waiting;
use crate::world::World;

cases![
    "L-SV-1 L-SV-3 L-CNT-5" breaks [CopyIsNeverStale] => a_count_has_four_bytes_and_no_others,
    "L-SV-2 L-CNT-1" catches [CasIgnoresVersion] => conditional_writes_and_additions_are_all_counted,
];

async fn a_count_has_four_bytes_and_no_others(world: World) {
    let (client, at) = (world.client().await, world.at("count"));
    let count = answer(SharedCount::open(&client, &at, -2).await);
    let node = answer(client.get(&at).await).expect("the first value is stored");
    assert_eq!((count.get().value, &node.data[..]), (-2, &[255, 255, 255, 254][..]));
    for bytes in [&b""[..], b"7", b"12345678", b"four?"] {
        let last = count.get().value;
        answer(client.put(&at, bytes).await);

        let is_reported = async || match count.get().state {
            CopyState::Unreadable(why) => why.kind() == ErrorKind::Corrupt,
            _ => false,
        };
        world.eventually("it is reported", is_reported).await;

        assert_eq!(count.get().value, last, "the last one stays");
        let opened = failure(SharedCount::open(&client, &at, 0).await, "what is no number");
        assert_eq!(opened.kind(), ErrorKind::Corrupt);
        answer(count.set(last + 1).await);
        let shown = async || count.get().is_current() && count.get().value == last + 1;
        world.eventually("it is repaired", shown).await;
    }
}

async fn conditional_writes_and_additions_are_all_counted(world: World) {
    const CLIENTS: i32 = 3;
    const ROUNDS: i32 = 5;
    let (at, mut changing) = (world.at("count"), Vec::new());
    for _ in 0..CLIENTS {
        let (ann, bob, at) = (world.hesitant().await, world.hesitant().await, at.clone());
        changing.push(Waiting::new(async move {
            let count = SharedCount::open(&ann, &at, 0).await?;
            let counter = Counter::new_i32(&bob, &at);
            for _ in 0..ROUNDS {
                let mut seen = count.get();
                while let Err(newer) = count.try_set(&seen, seen.value + 1).await? {
                    seen = newer;
                    tokio::task::yield_now().await;
                }
                counter.increment().await?;
            }
            Ok(())
        }));
    }
    for one in changing {
        one.gets(&world, "all of its changes").await;
    }
    let counter = Counter::new_i32(&world.client().await, &at);
    assert_eq!(answer(counter.get().await), CLIENTS * ROUNDS * 2);
}
