//! Nodes with a TTL.

use std::time::Duration;

use synod_core::store::{Expect, Kind, Lifetime, Query, Txn};
use tokio::time::{Instant, sleep};

use crate::world::World;

cases![
    "C-TREE-5" needs [TtlNodes] catches [TtlNeverExpires] => what_is_not_written_for_its_time_goes,
    "C-TREE-5" needs [TtlNodes] catches [TtlTooEarly] => it_does_not_go_before_its_time,
    "C-TREE-5" needs [TtlNodes] catches [TtlInWholeSeconds] => a_fraction_of_a_second_of_its_time_counts,
    "C-TREE-5" needs [TtlNodes] catches [TtlNotRefreshedByWrite] => a_write_gives_it_its_whole_time_again,
    "C-TREE-5" needs [TtlNodes Expiry] catches [TtlDiesWithSession] => it_does_not_belong_to_a_session,
    "C-TREE-5 L-WAT-1" needs [TtlNodes] catches [TtlUntoldToWatchers] => the_end_of_a_node_with_a_ttl_is_reported,
];

/// Long enough that even a slow machine usually writes in time.
fn life(world: &World) -> Duration {
    world.profile.ttl.max(Duration::from_secs(1))
}

async fn what_is_not_written_for_its_time_goes(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let [plain, ticket] = ["n", "t-"].map(|name| world.at(name));
    let life = life(&world);
    ann.make(&plain, "x", Lifetime::Ttl(life)).await;
    let ticket = ann.draw(&ticket, Lifetime::Ttl(life)).await;
    ann.create(&world.at("kept"), "").await;

    let gone = async || !bob.exists(&plain).await && !bob.exists(&ticket.path).await;
    world.eventually_after(life * 2, "nodes whose time is over go", gone).await;

    assert_eq!(ann.names(&world.dir).await, ["kept"]);
    ann.create(&plain, "again").await;
}

async fn it_does_not_go_before_its_time(world: World) {
    lives_for(&world, life(&world)).await;
}

async fn a_fraction_of_a_second_of_its_time_counts(world: World) {
    lives_for(&world, Duration::from_millis(1_900)).await;
}

/// Creates a node with this TTL, and checks that it does not disappear before.
async fn lives_for(world: &World, life: Duration) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let node = world.at("n");
    let written = Instant::now();
    ann.make(&node, "x", Lifetime::Ttl(life)).await;

    for _ in 0..20 {
        let seen = bob.exists(&node).await;
        let age = written.elapsed();
        assert!(seen || age >= life, "gone after {age:?} of {life:?}");
        sleep(life / 21).await;
    }
}

async fn a_write_gives_it_its_whole_time_again(world: World) {
    let ann = world.ann().await;
    let (node, life) = (world.at("n"), life(&world));
    let mut written = Instant::now();
    ann.make(&node, "0", Lifetime::Ttl(life)).await;

    for round in 1..=6 {
        sleep(life * 2 / 3).await;
        let now = Instant::now();
        let txn = Txn::new().set(&node, round.to_string(), Expect::Any);
        let outcome = ann.attempt(txn).await.expect("the store answers");
        let age = written.elapsed();
        if outcome.rejected().is_some() {
            assert!(age >= life, "gone {age:?} after its last write, of {life:?}");
            return;
        }
        written = now;
    }

    let gone = async || !ann.exists(&node).await;
    world.eventually_after(life * 2, "nodes whose time is over go", gone).await;
}

async fn it_does_not_belong_to_a_session(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let (node, life) = (world.at("n"), life(&world) * 10);
    let written = Instant::now();

    let stat = ann.make(&node, "x", Lifetime::Ttl(life)).await;
    assert_eq!(stat.owner, None, "it is not ephemeral");
    world.expire(ann.id()).await;

    let seen = bob.exists(&node).await;
    assert!(seen || written.elapsed() >= life, "it went with the session that made it");
}

async fn the_end_of_a_node_with_a_ttl_is_reported(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let (node, life) = (world.at("n"), life(&world));
    ann.make(&node, "x", Lifetime::Ttl(life)).await;
    let (_view, mut watcher) = bob.watch(Query::node(&node)).await;

    let gone = async || !ann.exists(&node).await;
    world.eventually_after(life * 2, "nodes whose time is over go", gone).await;

    watcher.hears("its end", |change| change.kind == Kind::Deleted).await;
}
