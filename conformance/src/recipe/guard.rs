//! The common abilities of guards, for all recipes: a guard checks itself in a transaction, reports
//! its loss, and is listed.

use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, Txn};
use synod_recipes::election::Election;
use synod_recipes::lock::{Mutex, RwLock};
use synod_testkit::recipe::{Act, LABEL, Proof, Row, rows};

use crate::door::{answer, failure};
use crate::recipe::line;
use crate::world::World;

cases![
    "L-MX-5 L-EL-10" breaks [TxnUnguarded] => a_transaction_under_any_guard_needs_what_it_stands_for,
    "L-MX-5 L-EL-10 L-KV-9" breaks [TxnUnguarded] => a_transaction_under_several_guards_needs_each_of_them,
    "L-MX-1 L-EL-2 L-EL-7" breaks [RemovalUnnoticed] => any_guard_is_notified_when_its_ticket_is_deleted,
    "L-MX-8" breaks [SinceUntold] => any_holder_is_listed_with_its_token_and_label,
];

/// Returns a guard of each kind that a recipe has, each at its own path.
async fn all(world: &World, client: &Client) -> Vec<(&'static str, Box<dyn Proof>)> {
    all_of(world, client, rows()).await
}

async fn all_of<'a>(
    world: &World,
    client: &Client,
    rows: impl IntoIterator<Item = &'a Row>,
) -> Vec<(&'static str, Box<dyn Proof>)> {
    let mut all = Vec::new();
    for one in rows.into_iter().flat_map(|row| row.uses) {
        if let Act::Hold { take, .. } = one.act {
            let path = world.at(&one.name.replace('/', "-"));
            all.push((one.name, answer(take(client.clone(), path).await)));
        }
    }
    all
}

fn data(world: &World, name: &str) -> Path {
    world.at(&format!("data-{}", name.replace('/', "-")))
}

async fn a_transaction_under_any_guard_needs_what_it_stands_for(world: World) {
    let client = world.client().await;
    for (recipe, guard) in all(&world, &client).await {
        let data = data(&world, recipe);
        answer(answer(client.create(&data, "0", Lifetime::Persistent).await).required());
        let [good, late] = [(); 2].map(|()| guard.txn().set(data.clone(), "1", Expect::Any));

        let written = answer(client.commit(good).await);
        assert!(written.is_committed(), "{recipe}: it is held");
        answer(world.in_time("the end of a guard", guard.release()).await);
        let refused = answer(client.commit(late).await);

        assert!(refused.rejected().is_some(), "{recipe}: it was given back");
    }
}

async fn a_transaction_under_several_guards_needs_each_of_them(world: World) {
    let (ann, bob, eve) = (world.client().await, world.client().await, world.client().await);
    let data = world.at("data");
    answer(ann.put(&data, "0").await);
    let lock = answer(Mutex::new(&ann, world.at("mutex")).lock().await);
    // A guard of another session of the same process.
    let read = answer(RwLock::new(&bob, world.at("rwlock")).read().await);
    let lead = answer(Election::new(&ann, world.at("election")).campaign(LABEL).await);
    let write = |data: &Path, to: &'static str| {
        let txn = lock.txn().under(&read).under(&lead);
        assert_eq!(txn.ops.len(), 3, "one check each");
        txn.set(data, to, Expect::Any)
    };

    let all = answer(ann.commit(write(&data, "1")).await);
    assert!(all.is_committed(), "all are held");
    let removed = answer(eve.delete(read.path(), Expect::Any).await);
    assert!(removed.is_committed(), "it has a ticket");
    let late = answer(ann.commit(write(&data, "2")).await);

    let rejected = late.rejected().expect("one of them is lost");
    assert_eq!((rejected.index, &rejected.path), (1, read.path()));
    assert_eq!(answer(ann.get(&data).await).expect("it was put").data, "1");
    let rest = Txn::new().under(&lock).under(&lead).set(&data, "3", Expect::Any);
    assert!(answer(ann.commit(rest).await).is_committed(), "the others are held");
}

async fn any_guard_is_notified_when_its_ticket_is_deleted(world: World) {
    let (client, eve) = (world.client().await, world.client().await);
    for (recipe, mut guard) in all(&world, &client).await {
        let removed = answer(eve.delete(&guard.path(), Expect::Any).await);
        assert!(removed.is_committed(), "{recipe} has a ticket");

        let late = guard.txn().create(data(&world, recipe), "", Lifetime::Persistent);
        assert!(answer(client.commit(late).await).rejected().is_some(), "{recipe}");
        let lost = world.in_time("work under what is lost", guard.work()).await;
        let error = failure(lost, recipe);
        assert_eq!(error.kind(), ErrorKind::SessionLost);
        assert!(!error.to_string().contains("under a lock"), "{recipe}: {error}");
        world.in_time("word of the loss", guard.lost()).await;
        assert!(!guard.is_held(), "{recipe}");
    }
}

async fn any_holder_is_listed_with_its_token_and_label(world: World) {
    let (client, eve) = (world.client().await, world.client().await);
    // The claim of an item has no lock queue.
    let lines = rows().filter(|row| row.stair == Some("line"));
    for (recipe, guard) in all_of(&world, &client, lines).await {
        let (path, dir) = (guard.path(), guard.path().parent().expect("it stands in a line"));

        let told = line(&eve, &dir).await;

        let [one] = &told[..] else { panic!("{recipe}: {told:?}") };
        assert_eq!((&one.path, one.token), (&path, guard.token()), "{recipe}");
        assert_eq!((one.holds, one.since.is_some()), (Some(true), true), "{recipe}");
        assert_eq!(one.label, LABEL, "{recipe}");
        assert_eq!(one.owner, Some(answer(client.session().await).info().id), "{recipe}");
        answer(world.in_time("the end of a guard", guard.release()).await);
        assert_eq!(line(&eve, &dir).await, [], "{recipe}: it was given back");
    }
}
