//! A queue in which very many items wait: more than the store answers at once.

use bytes::Bytes;
use synod_core::client::Client;
use synod_recipes::queue::Queue;
use synod_testkit::fault::Verb;

use crate::door::answer;
use crate::door::gate::Gate;
use crate::world::World;

cases![
    "L-Q-13 L-X-7" breaks [EventReadsAll] => the_first_of_very_many_costs_what_it_costs_of_ten,
];

/// The number of items of a very long queue: they fit into every store of the tests. Their data is
/// twice as large as the largest request of a store, which is a frame of ZooKeeper.
const MANY: usize = 3_000;

/// The number of items that are put in one transaction.
const BUNCH: usize = 20;

const TAKES: usize = 10;

async fn the_first_of_very_many_costs_what_it_costs_of_ten(world: World) {
    let bob = world.client().await;
    let most = answer(bob.session().await).info().limits.request;
    let item = Bytes::from(vec![b'x'; 2 * most / MANY]);

    let of_ten = costs(&world, &bob, "few", &[item.clone(), item.clone()]).await;
    let of_many = costs(&world, &bob, "many", &vec![item; MANY]).await;

    for costs in [&of_ten, &of_many] {
        assert_eq!(costs.requests, TAKES, "a take is one request");
        // A store that keeps few events for a reader must list again now and then.
        assert!(costs.lists <= world.at_most(0, 2), "{costs:?}");
        assert!(costs.reads <= world.at_most(0, TAKES), "{costs:?}");
    }
}

/// The costs of the takes of a consumer after its first take.
#[derive(Debug)]
struct Costs {
    requests: usize,
    lists: usize,
    reads: usize,
}

/// The costs of ten takes while these items wait, with ten more.
async fn costs(world: &World, bob: &Client, name: &str, waiting: &[Bytes]) -> Costs {
    let path = world.at(name);
    let producer = Queue::new_bytes(bob, &path);
    let first = waiting.first().cloned().into_iter().cycle().take(TAKES + 1).collect::<Vec<_>>();
    answer(producer.put_many(&first).await);
    for bunch in waiting.chunks(BUNCH) {
        answer(producer.put_many(bunch).await);
    }
    let gate: Gate = world.gate();
    let ann = world.client_on(gate.clone(), world.options()).await;
    let consumer = Queue::new_bytes(&ann, &path);
    let take = async || answer(world.in_time("an item", consumer.take()).await);
    assert_eq!(take().await, first[0]);
    let counts = || [gate.count(Verb::Commit), gate.lists(), gate.count(Verb::Read)];
    let before = counts();

    for _ in 0..TAKES {
        assert_eq!(take().await, first[0]);
    }

    let [requests, lists, reads] = std::array::from_fn(|kind| counts()[kind] - before[kind]);
    Costs { requests, lists, reads }
}
