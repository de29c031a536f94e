//! Sessions of holders and waiters that are lost or suspended.

use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_core::store::{Expect, Lifetime};
use synod_recipes::Token;
use synod_recipes::cache::Cache;
use synod_recipes::election::LeaderLatch;
use synod_recipes::lock::Mutex;
use synod_recipes::presence::PersistentNode;
use synod_testkit::fault::Verb;
use tokio::time::{sleep, timeout};

use crate::door::gate::Way;
use crate::door::{answer, failure};
use crate::harness::Link;
use crate::recipe::{Waiting, line};
use crate::world::{MILLISECOND, World};

cases![
    "L-MX-1 L-MX-2 L-SES-10" needs [Expiry] breaks [OldTicketTrusted] => the_ticket_of_a_lost_session_gives_no_lock,
    "L-MX-1 L-SES-2" needs [Links] catches [LeaseExtendedByHope] => a_holder_that_is_cut_off_stops_before_another_is_granted,
    "L-MX-2 L-MX-1" breaks [GrantsUncertain] => no_waiter_is_granted_while_its_session_is_in_doubt,
    "L-MX-4 L-MX-3" breaks [TokenIsSequence] => a_system_that_refuses_lower_tokens_hears_each_holder_in_turn,
    "L-MX-1 L-MX-15" breaks [RemovalUnnoticed] => a_holder_whose_ticket_is_deleted_is_notified,
    "D-LAZY" catches [NoImplicitParents] => recipes_of_a_lazy_client_begin_with_its_first_session,
];

fn mutex(world: &World, client: &Client) -> Mutex {
    Mutex::new(client, world.at("lock"))
}

async fn the_ticket_of_a_lost_session_gives_no_lock(world: World) {
    let (ann, gate) = (world.client().await, world.gate());
    gate.may_lose();
    let bob = world.client_on(gate.clone(), world.options()).await;
    let held = answer(mutex(&world, &ann).lock().await);
    let lock = mutex(&world, &bob).label("bob");
    let waits = Waiting::new(async move { lock.lock().await });
    world.stand(&ann, &world.at("lock"), 2).await;
    let first = line(&ann, &world.at("lock")).await.pop().expect("bob waits");

    // Bob's client considers its session lost; the server does not, and keeps the ticket, which is
    // then the first.
    gate.lose();
    let again = async || {
        let last = line(&ann, &world.at("lock")).await.pop();
        last.is_some_and(|last| last.token > first.token)
    };
    world.eventually("bob has a new ticket, the last one", again).await;
    answer(held.release().await);
    world.expire(first.owner.expect("it is a session's")).await;

    let guard = waits.gets(&world, "the lock, with the new ticket").await;
    let all = line(&ann, &world.at("lock")).await;
    assert_eq!(all.iter().map(|one| one.token).collect::<Vec<_>>(), [guard.token()]);
    assert!(guard.token() > first.token && all[0].owner != first.owner);
}

async fn a_holder_that_is_cut_off_stops_before_another_is_granted(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let guard = answer(mutex(&world, &ann).lock().await);
    let lock = mutex(&world, &bob);
    let mut waits = Waiting::new(async move { lock.lock().await });
    world.stand(&bob, &world.at("lock"), 2).await;

    world.link(answer(ann.session().await).info().id, Link::Cut).await;

    // The case checks continuously whether the guard reports that it is held.
    let both = async {
        loop {
            let entered = timeout(MILLISECOND, &mut waits.told).await.is_ok();
            let believes = guard.is_held();
            assert!(!(entered && believes), "two believe that they have it");
            if entered {
                break;
            }
        }
    };
    let ttl = world.profile.ttl;
    let passed = timeout(ttl * 4 + world.profile.patience, both).await;
    assert!(passed.is_ok(), "the lock of the session that was cut off was not passed on");
}

async fn no_waiter_is_granted_while_its_session_is_in_doubt(world: World) {
    let gate = world.gate();
    gate.starve();
    let client = world.client_on(gate, world.options()).await;
    let session = answer(client.session().await);
    // No more messages arrive for the session, and no loss is reported.
    let doubtful = async || !session.is_certain();
    world.eventually_after(world.profile.ttl, "the session is in doubt", doubtful).await;

    let lock = mutex(&world, &client);
    assert!(answer(lock.try_lock().await).is_none(), "the session is in doubt");
    let mut waits = Waiting::new(async move { lock.lock().await });

    waits.waits_for(world.brief(), "the session is in doubt").await;
}

/// An external system that does not know the lock, only that later holders have larger tokens.
#[derive(Default)]
struct Outside {
    highest: Option<Token>,
    writers: Vec<usize>,
}

impl Outside {
    fn write(&mut self, token: Token, writer: usize) -> bool {
        let accepted = Some(token) >= self.highest;
        if accepted {
            self.highest = Some(token);
            self.writers.push(writer);
        }
        accepted
    }
}

async fn a_system_that_refuses_lower_tokens_hears_each_holder_in_turn(world: World) {
    const HOLDERS: usize = 12;
    let (client, eve) = (world.client().await, world.client().await);
    let (mut outside, mut stale) = (Outside::default(), Vec::new());
    for writer in 0..HOLDERS {
        let guard = answer(mutex(&world, &client).lock().await);
        assert!(outside.write(guard.token(), writer), "{} has the lock", guard.token());
        // The former holder was not notified of its loss, and continues.
        for (before, late) in stale.iter().enumerate() {
            assert!(!outside.write(*late, before), "{late} was lost, {} has it", guard.token());
        }
        assert!(outside.write(guard.token(), writer), "it is still held");
        stale.push(guard.token());
        answer(answer(eve.delete(guard.path(), Expect::Any).await).required());
        // Other directories are written to, while the directory of the case is empty.
        let other = world.at(&format!("other-{writer}"));
        answer(answer(eve.create(&other, "", Lifetime::Persistent).await).required());
    }
    assert!(outside.writers.is_sorted(), "the writes of each are together: {:?}", outside.writers);
    assert_eq!(outside.writers.len(), 2 * HOLDERS);
}

async fn a_holder_whose_ticket_is_deleted_is_notified(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let guard = answer(mutex(&world, &ann).lock().await);

    let removed = bob.delete(guard.path(), Expect::Any).await;

    assert!(answer(removed).is_committed());
    world.in_time("word of the removal", guard.lost()).await;
    assert!(!guard.is_held());
    assert!(!answer(ann.session().await).is_lost());
    let stopped = guard.run(sleep(world.profile.patience)).await;
    assert_eq!(failure(stopped, "work under a lost lock").kind(), ErrorKind::SessionLost);
}

async fn recipes_of_a_lazy_client_begin_with_its_first_session(world: World) {
    let (gate, bob) = (world.gate(), world.bob().await);
    gate.set(Way::Shut);
    let client = world.client_on(gate.clone(), world.options().lazy(true)).await;
    let cache = Cache::start(&client, world.at("kept"));
    let (lock, latch) = (mutex(&world, &client), LeaderLatch::new(&client, world.at("latch")));
    let node = PersistentNode::new(&client, world.at("kept"));
    let mut locking = Waiting::new(async move { lock.lock().await });
    let mut joining = Waiting::new(async move { latch.join().await });
    let mut keeping = Waiting::new(async move { node.keep("data").await });
    gate.called(Verb::Open, 2).await;
    locking.waits_for(MILLISECOND, "the lock").await;
    joining.waits_for(MILLISECOND, "the latch").await;
    keeping.waits_for(MILLISECOND, "the node").await;

    gate.set(Way::Open);

    let guard = locking.gets(&world, "the lock").await;
    assert!(guard.is_held());
    let candidate = joining.gets(&world, "the place in the election").await;
    answer(world.in_time("the lead", candidate.leading()).await);
    let kept = keeping.gets(&world, "the node").await;
    assert_eq!(bob.text(&world.at("kept")).await.as_deref(), Some("data"));
    answer(world.in_time("the content", cache.complete()).await);
    let seen = async || cache.get(&world.at("kept")).is_some();
    world.eventually("the cache shows the node", seen).await;
    answer(kept.close().await);
    answer(guard.release().await);
}
