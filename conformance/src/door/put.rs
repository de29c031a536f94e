//! Puts: data at a path, whether or not there is a node yet.

use futures_util::future::{join, join3};
use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_core::store::{Expect, Lifetime, RejectReason};
use synod_testkit::cancel::stop_at;
use synod_testkit::fault::Verb;
use synod_testkit::hesitant::HesitantBackend;
use tokio::time::sleep;

use crate::door::gate::Way;
use crate::door::{answer, done, failure};
use crate::world::{World, dropped_enough};

cases![
    "D-PUT" breaks [PutLosesRace] => a_put_goes_on_when_the_node_comes_in_between,
    "D-PUT L-KV-1" breaks [PutLosesRace] => puts_and_deletes_of_one_path_all_end,
    "D-PUT L-X-1 D-DROP" breaks [PutTakenBack] => a_dropped_put_takes_nothing_back,
    "D-PUT D-VALUE" breaks [PutKeepsWhatIsThere] => a_put_makes_what_is_missing_and_replaces_what_is_there,
];

async fn a_put_makes_what_is_missing_and_replaces_what_is_there(world: World) {
    let (client, bob, at) = (world.client().await, world.bob().await, world.at("a"));

    let made = answer(client.put(&at, "1").await);
    assert_eq!((bob.text(&at).await.as_deref(), made.owner()), (Some("1"), None));
    let stat = answer(client.put_value(&at, "2").await).stat.expect("the answer to a set has it");
    assert_eq!(bob.text(&at).await.as_deref(), Some("\"2\""));
    assert_ne!(Some(stat.version), made.stat.map(|stat| stat.version));

    // A container with nodes below it has no data itself, and this is reported immediately.
    bob.create(&world.at("c/below"), "").await;
    let above = failure(client.put(&world.at("c"), "3").await, "where a container is");
    assert_eq!((above.kind(), above.path()), (ErrorKind::Refused, Some(&world.at("c"))));
    // An empty container does not count as a node.
    bob.delete(&world.at("c/below")).await;
    answer(client.put(&world.at("c"), "3").await);
    assert_eq!(bob.text(&world.at("c")).await.as_deref(), Some("3"));

    // An ephemeral node keeps its owner, and has no children.
    let own = world.at("e");
    done(client.create(&own, "", Lifetime::Session).await);
    assert!(answer(client.put(&own, "4").await).owner().is_some());
    let below = failure(client.put(&world.at("e/below"), "5").await, "below what is ephemeral");
    assert_eq!(below.kind(), ErrorKind::Refused);
    assert_eq!(below.detail(), Some(RejectReason::BelowEphemeral.to_string().as_str()));
}

async fn a_put_goes_on_when_the_node_comes_in_between(world: World) {
    let (gate, bob, at) = (world.gate(), world.bob().await, world.at("a"));
    let client = world.client_on(gate.clone(), world.options()).await;
    gate.set(Way::Holding);
    let meddling = async {
        // The set found no node, but another client has created one before the create.
        gate.held(1).await;
        bob.create(&at, "bob").await;
        gate.hold_behind(Some((Verb::Commit, 1)));
        gate.set(Way::Open);
        // The create found a node, but another client has removed it before the set.
        gate.held(2).await;
        bob.delete(&at).await;
        gate.hold_behind(None);
    };

    let both = join(client.put(&at, "ann"), meddling);
    let (put, ()) = world.in_time("a put in a race", both).await;

    answer(put);
    assert_eq!(bob.text(&at).await.as_deref(), Some("ann"));
}

async fn puts_and_deletes_of_one_path_all_end(world: World) {
    const TIMES: usize = 20;
    let (ann, bob, eve) = (world.client().await, world.client().await, world.client().await);
    let at = world.at("a");
    let putting = async |client: &Client, name: &str| {
        for number in 0..TIMES {
            world.think().await;
            let data = format!("{name} {number}");
            let written = answer(client.put(&at, data).await);
            assert!(written.stat.is_some(), "one of the two wrote it");
        }
    };
    let deleting = async {
        let mut deleted = 0;
        for _ in 0..TIMES {
            world.think().await;
            let gone = answer(eve.delete(&at, Expect::Any).await);
            deleted += usize::from(gone.is_committed());
        }
        deleted
    };

    let all = join3(putting(&ann, "ann"), putting(&bob, "bob"), deleting);
    let ((), (), deleted) = world.in_time("puts and deletes", all).await;

    assert!(deleted <= 2 * TIMES, "nothing is deleted more often than it was put");
    answer(ann.put(&at, "last").await);
    let last = answer(bob.get(&at).await).expect("it was put last");
    assert_eq!(last.data, "last");
}

async fn a_dropped_put_takes_nothing_back(world: World) {
    let bob = world.bob().await;
    let mut made = 0;
    for waits in 1.. {
        let (gate, at) = (world.gate(), world.at(&format!("n{waits}")));
        let client = world.client_on(HesitantBackend::new(gate.clone()), world.options()).await;

        let ended = stop_at(waits, client.put(&at, "ann")).await;

        let counts = || (gate.count(Verb::Commit), gate.answers(Verb::Commit));
        let settled = async || counts().0 == counts().1;
        // On a busy machine ann may send the next write while bob reads.
        let (answers, there) = loop {
            world.eventually("a write that was sent is driven to its end", settled).await;
            sleep(world.brief()).await;
            let before = counts();
            let there = bob.exists(&at).await;
            if settled().await && counts() == before {
                break (before.1, there);
            }
        };
        // The set found no node, then the create was sent.
        let wrote = answers >= 2;
        assert_eq!(there, wrote, "dropped at await {waits}");
        if let Some(put) = ended {
            answer(put);
            dropped_enough(waits, 4);
            assert!(made > 0, "it was never dropped after its create");
            return;
        }
        made += usize::from(wrote);
    }
}
