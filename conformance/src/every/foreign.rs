//! Nodes of other programs at the path of a recipe.

use synod_core::error::ErrorKind;
use synod_core::store::Lifetime;
use synod_testkit::recipe::Leaves;

use crate::door::{answer, done, failure};
use crate::every::trial::{Trial, each};
use crate::world::World;

cases![
    "" breaks [StrangersCount] => a_foreign_node_next_to_it_is_ignored,
    "" breaks [CorruptIsZero CorruptIsNone] => foreign_bytes_in_its_node_are_an_error,
];

/// Names that are similar to the names of our nodes.
const STRANGERS: [&str; 4] = ["other", "lock-", "mark", "party"];

async fn a_foreign_node_next_to_it_is_ignored(world: World) {
    let (ann, bob) = (world.unhurried_client().await, world.unhurried_client().await);
    each(Trial::all(&world), async |trial| {
        // The nodes of a value are below a node that must exist first.
        if trial.row.leaves == Leaves::Value {
            answer(trial.it.whole(&bob, &trial.path).await);
        }
        let dirs = trial.row.dirs(&trial.path);
        let strangers = dirs.iter().flat_map(|dir| STRANGERS.map(|name| dir.join(name)));
        let strangers: Vec<_> = strangers.map(|path| path.expect("it is valid")).collect();
        for path in &strangers {
            answer(bob.put(path, "not ours").await);
        }
        for dir in &dirs {
            let drawn = dir.join("strange-").expect("it is valid");
            done(bob.create_sequential(&drawn, "not ours", Lifetime::Persistent).await);
        }

        for _ in 0..2 {
            answer(world.in_time(trial.it.name, trial.it.whole(&ann, &trial.path)).await);
        }

        for path in &strangers {
            let node = answer(bob.get(path).await).expect("it is kept");
            assert_eq!(node.data, "not ours", "{path}");
        }
    })
    .await;
}

async fn foreign_bytes_in_its_node_are_an_error(world: World) {
    const BYTES: &[u8] = b"not a value";
    let (ann, bob) = (world.unhurried_client().await, world.unhurried_client().await);
    let values = Trial::all(&world).filter(|trial| trial.row.leaves == Leaves::Value);
    each(values, async |trial| {
        answer(bob.put(&trial.path, BYTES).await);

        for _ in 0..2 {
            let refused = world.in_time(trial.it.name, trial.it.whole(&ann, &trial.path)).await;
            assert_eq!(failure(refused, trial.it.name).kind(), ErrorKind::Corrupt);
        }

        let node = answer(bob.get(&trial.path).await).expect("it is there");
        assert_eq!(node.data, BYTES, "{} changed it", trial.it.name);
    })
    .await;
}
