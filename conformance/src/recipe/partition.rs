//! The partition: each item has one member, and changes it in two steps.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt as _;
use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_core::store::{Expect, Txn};
use synod_core::task::{self, Task};
use synod_recipes::partition::{Partition, Share, ShareChange};
use synod_testkit::fault::{Cue, Site, Verb};
use tokio::time::sleep;

use crate::door::gate::Way;
use crate::door::{answer, failure};
use crate::world::World;

cases![
    "L-SP-2 L-SP-4 L-SP-1" catches [WatchFiresOnce] => items_are_split_among_the_members_that_are_there,
    "L-SP-3 L-SP-1" breaks [GivenUnasked] => an_item_is_given_away_when_its_member_has_stopped,
    "L-SP-5 L-SP-4" breaks [DividesAnew] => only_the_part_of_a_member_that_came_or_went_moves,
    "L-SP-4 L-SP-2" catches [WatchFiresOnce] => items_go_by_weight_and_a_member_of_none_gets_nothing,
    "L-SP-2 L-SP-6" needs [Expiry] catches [ExpiryUntoldToWatchers] => the_items_of_a_member_that_dies_go_to_the_others,
    "L-SP-6 L-SP-2" needs [Expiry] catches [ExpiryUntold] => a_member_that_loses_its_session_stops_and_takes_part_again,
    "L-SP-6" breaks [CertainUntilTold] => an_item_is_not_held_once_its_session_is_not_certain,
    "L-SP-1 L-SP-7" breaks [LateClaimsTrusted] => a_late_request_takes_no_item_from_its_next_member,
    "L-SP-1 L-SP-7" breaks [LateClaimsTrusted] => a_request_that_may_arrive_late_is_outdated_by_the_next_version_of_the_member,
    "L-SP-1 L-SP-2" catches [WatchFiresOnce] => a_claim_that_another_client_removes_is_noticed,
    "L-SP-7" breaks [BlindRepeat] => a_member_that_leaves_or_is_dropped_leaves_nothing,
    "L-SP-2 L-SP-4 L-X-7" catches [WatchFiresOnce] => many_items_settle_in_few_calls,
    "L-SP-6 L-KV-9" needs [Expiry] catches [AppliesHalf] => a_transaction_under_an_item_needs_its_member,
];

/// A member in a separate task, which stops work on an item immediately on request.
#[derive(Debug)]
struct Worker {
    share: Arc<Share>,
    lost: Arc<AtomicUsize>,
    _task: Task,
}

fn partition(world: &World, client: &Client, items: &[&str]) -> Partition {
    Partition::new(client, world.at("parts"), items.iter().copied())
}

async fn joined(world: &World, partition: &Partition, name: &str) -> Share {
    answer(world.in_time("joining", partition.join(name)).await)
}

impl Worker {
    async fn joined(world: &World, partition: &Partition, name: &str) -> Self {
        let share = Arc::new(joined(world, partition, name).await);
        let (working, lost) = (share.clone(), Arc::new(AtomicUsize::new(0)));
        let count = lost.clone();
        let task = task::spawn(async move {
            let mut changes = pin!(working.changes());
            while let Some(change) = changes.next().await {
                match change {
                    ShareChange::Release(items) => answer(working.release(&items).await),
                    ShareChange::Lost(items) => {
                        count.fetch_add(items.len(), Ordering::Relaxed);
                    }
                    _ => {}
                }
            }
        });
        Self { share, lost, _task: task }
    }

    /// Leaves the partition.
    async fn leaves(self, world: &World) {
        let Self { share, _task: task, .. } = self;
        drop(task);
        let last = async || Arc::strong_count(&share) == 1;
        world.eventually("its task is over", last).await;
        let share = Arc::into_inner(share).expect("it is the last");
        answer(world.in_time("leaving", share.leave()).await);
    }
}

fn set<const N: usize>(items: [&str; N]) -> BTreeSet<String> {
    items.map(str::to_owned).into()
}

/// The items of these members, which must be disjoint.
fn all<'a>(shares: impl IntoIterator<Item = &'a Share>) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for item in shares.into_iter().flat_map(Share::items) {
        assert!(all.insert(item.clone()), "two members hold {item}");
    }
    all
}

impl World {
    /// Waits until these members have these numbers of items: all items together, and no item
    /// twice.
    async fn splits(&self, shares: &[&Share], counts: &[usize], items: &BTreeSet<String>) {
        let split = async || {
            let all = all(shares.iter().copied());
            all == *items && shares.iter().map(|it| it.items().len()).eq(counts.iter().copied())
        };
        self.eventually(&format!("the items are split as {counts:?}"), split).await;
    }
}

const FIVE: [&str; 5] = ["a", "b", "c", "d/e %", "f"];

async fn items_are_split_among_the_members_that_are_there(world: World) {
    let (client, bob) = (world.client().await, world.client().await);
    let (parts, items) = (partition(&world, &client, &FIVE), set(FIVE));
    let first = Worker::joined(&world, &parts, "first").await;
    answer(world.in_time("the first items", first.share.settled()).await);
    assert_eq!(first.share.items(), items);
    let second = Worker::joined(&world, &partition(&world, &bob, &FIVE), "second").await;
    world.splits(&[&first.share, &second.share], &[3, 2], &items).await;
    // Another member of the same name, on the same client.
    let third = Worker::joined(&world, &parts, "first").await;
    world.splits(&[&first.share, &second.share, &third.share], &[2, 2, 1], &items).await;
    let holders = answer(parts.holders().await);
    let of_second = holders.iter().filter(|(_, member)| *member == "second").count();
    assert_eq!((holders.len(), of_second), (5, 2), "{holders:?}");
    let tokens = |item: &String| {
        [&first, &second, &third].iter().filter(|it| it.share.token(item).is_some()).count()
    };
    // The token is known one call after the item.
    world.eventually("each has a token", async || items.iter().all(|it| tokens(it) == 1)).await;

    second.leaves(&world).await;

    let shares = [&*first.share, &*third.share];
    let halves = async || {
        let mut counts = shares.map(|share| share.items().len());
        counts.sort_unstable();
        all(shares) == items && counts == [2, 3]
    };
    world.eventually("what it had goes to the others", halves).await;
    assert_eq!(first.lost.load(Ordering::Relaxed), 0, "it was asked for what it gave away");
    for worker in [first, third] {
        worker.leaves(&world).await;
    }
    assert_eq!(answer(parts.holders().await), BTreeMap::new());
}

async fn an_item_is_given_away_when_its_member_has_stopped(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let items = ["a", "b"];
    let first = joined(&world, &partition(&world, &ann, &items), "ann").await;
    let mut changes = Box::pin(first.changes());
    let acquired = world.in_time("the first items", changes.next()).await;
    assert_eq!(acquired, Some(ShareChange::Acquired(set(items))));
    let second = Worker::joined(&world, &partition(&world, &bob, &items), "bob").await;

    let asked = world.in_time("a question", changes.next()).await;

    assert_eq!(asked, Some(ShareChange::Release(set(["b"]))));
    sleep(world.brief()).await;
    assert!(first.is_held("b") && second.share.items().is_empty(), "it has not stopped");
    // Items that were not requested are not released.
    answer(world.in_time("the release", first.release(&set(["a"]))).await);
    assert!(first.is_held("a"));
    answer(world.in_time("the release", first.release(&set(["b"]))).await);
    assert!(!first.is_held("b"));
    world.splits(&[&first, &second.share], &[1, 1], &set(items)).await;
    answer(world.in_time("the end of the change", first.settled()).await);

    second.leaves(&world).await;

    // A released item is not reported as lost, and can be acquired again.
    let acquired = world.in_time("what is left", changes.next()).await;
    assert_eq!(acquired, Some(ShareChange::Acquired(set(["b"]))));
    answer(world.in_time("leaving", first.leave()).await);
    assert_eq!(world.in_time("the end of the changes", changes.next()).await, None);
}

async fn only_the_part_of_a_member_that_came_or_went_moves(world: World) {
    let client = world.client().await;
    let items: Vec<_> = (0..12).map(|number| format!("item-{number:02}")).collect();
    let items: Vec<_> = items.iter().map(String::as_str).collect();
    let (parts, whole) =
        (partition(&world, &client, &items), items.iter().map(|it| (*it).to_owned()).collect());
    let [first, second] =
        [Worker::joined(&world, &parts, "1").await, Worker::joined(&world, &parts, "2").await];
    world.splits(&[&first.share, &second.share], &[6, 6], &whole).await;
    let before = [first.share.items(), second.share.items()];

    let third = Worker::joined(&world, &parts, "3").await;

    world.splits(&[&first.share, &second.share, &third.share], &[4, 4, 4], &whole).await;
    assert!(
        first.share.items().is_subset(&before[0]) && second.share.items().is_subset(&before[1])
    );
    let kept = [first.share.items(), second.share.items()];
    third.leaves(&world).await;
    world.splits(&[&first.share, &second.share], &[6, 6], &whole).await;
    assert!(first.share.items().is_superset(&kept[0]), "it kept what it had");
    assert!(second.share.items().is_superset(&kept[1]), "it kept what it had");
    for worker in [first, second] {
        worker.leaves(&world).await;
    }
}

async fn items_go_by_weight_and_a_member_of_none_gets_nothing(world: World) {
    let client = world.client().await;
    let (parts, items) = (partition(&world, &client, &FIVE), set(FIVE));
    let idle = Worker::joined(&world, &parts.clone().weight(0), "idle").await;
    answer(world.in_time("nothing to divide", idle.share.settled()).await);
    let light = Worker::joined(&world, &parts, "light").await;
    world.splits(&[&idle.share, &light.share], &[0, 5], &items).await;

    // The changes of the others have been read by then.
    sleep(world.brief()).await;
    let heavy = Worker::joined(&world, &parts.clone().weight(4), "heavy").await;

    world.splits(&[&idle.share, &light.share, &heavy.share], &[0, 1, 4], &items).await;
    // More members than items.
    let few = Partition::new(&client, world.at("few"), ["a"]);
    let (one, other) =
        (Worker::joined(&world, &few, "1").await, Worker::joined(&world, &few, "2").await);
    let single = async || all([&*one.share, &*other.share]).len() == 1;
    world.eventually("one of them has it", single).await;
    for worker in [light, heavy, idle, one, other] {
        worker.leaves(&world).await;
    }
}

async fn the_items_of_a_member_that_dies_go_to_the_others(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let (items, first) =
        (set(FIVE), Worker::joined(&world, &partition(&world, &ann, &FIVE), "ann").await);
    let second = Worker::joined(&world, &partition(&world, &bob, &FIVE), "bob").await;
    world.splits(&[&first.share, &second.share], &[3, 2], &items).await;
    let tokens: BTreeMap<_, _> =
        items.iter().filter_map(|item| Some((item, first.share.token(item)?))).collect();
    let session = answer(ann.session().await).info().id;
    gate.die_after(0);

    world.expire(session).await;

    world.splits(&[&second.share], &[5], &items).await;
    let known = async || items.iter().all(|item| second.share.token(item).is_some());
    world.eventually("it knows its tokens", known).await;
    for (item, token) in tokens {
        assert!(second.share.token(item) > Some(token), "tokens of {item} rise");
    }
    second.leaves(&world).await;
}

async fn a_member_that_loses_its_session_stops_and_takes_part_again(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let items = set(FIVE);
    let first = Worker::joined(&world, &partition(&world, &ann, &FIVE), "ann").await;
    let second = Worker::joined(&world, &partition(&world, &bob, &FIVE), "bob").await;
    world.splits(&[&first.share, &second.share], &[3, 2], &items).await;
    let session = answer(ann.session().await);
    gate.set(Way::Shut);

    world.expire(session.info().id).await;

    world.in_time("the loss", session.lost()).await;
    assert_eq!(first.share.items(), set([]), "its session is over");
    let lost = async || first.lost.load(Ordering::Relaxed) == 3;
    world.eventually("it is notified of what it lost", lost).await;
    world.splits(&[&first.share, &second.share], &[0, 5], &items).await;

    gate.set(Way::Open);

    world.splits(&[&first.share, &second.share], &[2, 3], &items).await;
    for worker in [first, second] {
        worker.leaves(&world).await;
    }
}

async fn an_item_is_not_held_once_its_session_is_not_certain(world: World) {
    let gate = world.gate();
    gate.starve();
    let client = world.client_on(gate, world.options()).await;
    let share = joined(&world, &partition(&world, &client, &["a"]), "ann").await;
    answer(world.in_time("the first items", share.settled()).await);

    let doubtful = async || !share.is_held("a") && share.items().is_empty();
    world.eventually_after(world.profile.ttl, "it is not certain", doubtful).await;

    sleep(world.brief()).await;
    assert!(!share.is_held("a") && share.token("a").is_none());
    assert!(!answer(client.session().await).is_lost(), "no loss was reported");
}

async fn a_late_request_takes_no_item_from_its_next_member(world: World) {
    let ((ann, plan), bob) = (world.scripted([]).await, world.client().await);
    let (items, late) = (["a", "b"], world.profile.ttl / 4);
    let first = joined(&world, &partition(&world, &ann, &items), "ann").await;
    answer(world.in_time("the first items", first.settled()).await);
    let second = Worker::joined(&world, &partition(&world, &bob, &items), "bob").await;
    let mut changes = Box::pin(first.changes());
    while world.in_time("a question", changes.next()).await
        != Some(ShareChange::Release(set(["b"])))
    {}

    // The request arrives when the other member has the item.
    plan.cue(Cue::new(Site::AppliedLate).of(Verb::Delete).lasting(late));
    answer(world.in_time("the release", first.release(&set(["b"]))).await);

    world.splits(&[&first, &second.share], &[1, 1], &set(items)).await;
    let known = async || second.share.token("b").is_some();
    world.eventually("it knows its token", known).await;
    let token = second.share.token("b");
    sleep(late * 2).await;
    assert_eq!(plan.pending(), 0, "no request was late");
    assert!(second.share.is_held("b") && second.share.token("b") == token, "it was taken away");
    assert_eq!(second.lost.load(Ordering::Relaxed), 0);
    second.leaves(&world).await;
    answer(world.in_time("leaving", first.leave()).await);
}

async fn a_request_that_may_arrive_late_is_outdated_by_the_next_version_of_the_member(
    world: World,
) {
    let ((ann, plan), bob) = (world.scripted([]).await, world.client().await);
    for site in [Site::RequestLost, Site::ReplyLost, Site::AppliedLate] {
        plan.cue(Cue::new(site).of(Verb::Create).under(world.at("parts/claims")));
        let share = joined(&world, &partition(&world, &ann, &["a"]), "ann").await;
        answer(world.in_time("the first items", share.settled()).await);
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        let first = async || {
            let members = answer(bob.children(&world.at("parts/members")).await);
            members[0].stat.is_some_and(|stat| stat.modified == stat.created)
        };
        world
            .eventually(&format!("{site:?}: its version is another one"), async || !first().await)
            .await;
        assert!(share.is_held("a"));
        answer(world.in_time("leaving", share.leave()).await);
    }
}

async fn a_claim_that_another_client_removes_is_noticed(world: World) {
    let (ann, eve) = (world.client().await, world.client().await);
    let worker = Worker::joined(&world, &partition(&world, &ann, &["a", "b"]), "ann").await;
    answer(world.in_time("the first items", worker.share.settled()).await);
    let known = async || worker.share.token("a").is_some();
    world.eventually("it knows its token", known).await;
    let before = worker.share.token("a");
    let claim = world.at("parts/claims/a");
    // The member's own changes have been read by then.
    sleep(world.brief()).await;

    answer(answer(eve.delete(&claim, Expect::Any).await).required());

    let again = async || worker.share.token("a") > before;
    world.eventually("it has a new claim", again).await;
    assert!(worker.lost.load(Ordering::Relaxed) <= 1, "the other one stays");
    // The same for its own node: it becomes a member again.
    let members = answer(eve.children(&world.at("parts/members")).await);
    answer(answer(eve.delete(&members[0].path, Expect::Any).await).required());
    let is_back = async || {
        let now = answer(eve.children(&world.at("parts/members")).await);
        now.len() == 1 && now[0].path != members[0].path && worker.share.items().len() == 2
    };
    world.eventually("it is a member again", is_back).await;
    worker.leaves(&world).await;
}

async fn a_member_that_leaves_or_is_dropped_leaves_nothing(world: World) {
    let ((ann, plan), bob) = (world.scripted([]).await, world.client().await);
    let empty = async || {
        let [members, claims] = ["parts/members", "parts/claims"].map(|dir| world.at(dir));
        answer(bob.children(&members).await).is_empty()
            && answer(bob.children(&claims).await).is_empty()
    };
    for site in [Site::ReplyLost, Site::RequestLost, Site::AppliedLate] {
        // The nodes of the member, and the nodes of its items.
        for (verb, n) in [(Verb::Create, 1), (Verb::Create, 2), (Verb::Delete, 1), (Verb::Set, 1)] {
            if verb == Verb::Create {
                plan.cue(Cue::new(site).of(verb).nth(n));
            }
            let share = joined(&world, &partition(&world, &ann, &["a", "b"]), "ann").await;
            answer(world.in_time("the first items", share.settled()).await);
            if verb != Verb::Create {
                plan.cue(Cue::new(site).of(verb).nth(n));
            }
            if verb == Verb::Set {
                drop(share);
            } else {
                answer(world.in_time("leaving", share.leave()).await);
            }
            world.eventually("nothing is left", empty).await;
            sleep(world.brief()).await;
            assert!(empty().await, "something came late after {site:?} of {verb:?}");
        }
    }
    let taken = joined(&world, &partition(&world, &ann, &["a"]), "ann").await;
    answer(world.in_time("the first items", taken.settled()).await);
    answer(world.in_time("the end of a client", ann.close()).await);
    let over = failure(world.in_time("the end", taken.settled()).await, "a closed client");
    assert_eq!(over.kind(), ErrorKind::SessionLost);
    assert!(taken.items().is_empty());
    world.eventually("nothing is left", empty).await;
}

async fn many_items_settle_in_few_calls(world: World) {
    const MEMBERS: usize = 4;
    // On a server that many cases share, a thousand items would delay all other cases.
    let count = world.at_most(1_000, 200);
    let items: Vec<_> = (0..count).map(|number| format!("item-{number:04}")).collect();
    let (bob, gate) = (world.client().await, world.gate());
    let mut workers = Vec::new();
    let parts = |client: &Client| Partition::new(client, world.at("parts"), items.clone());
    let last = world.client_on(gate.clone(), world.unhurried()).await;
    for number in 0..MEMBERS {
        workers.push(Worker::joined(&world, &parts(&bob), &number.to_string()).await);
    }
    for worker in &workers {
        answer(world.in_time("the first division", worker.share.settled()).await);
    }
    let before = gate.count(Verb::Commit);

    let last = Worker::joined(&world, &parts(&last), "last").await;

    let settled = async || last.share.items().len() == items.len() / (MEMBERS + 1);
    world.eventually("it has its part", settled).await;
    answer(world.in_time("the end of the change", last.share.settled()).await);
    // The calls to join and to claim items, which the others release in one transaction after the
    // other.
    let commits = gate.count(Verb::Commit) - before;
    let most = world.at_most(1 + 200 / 39 + 1 + MEMBERS * 2, items.len());
    assert!(commits <= most, "{commits} commits");
    let whole: BTreeSet<_> = items.iter().cloned().collect();
    // A member has no items while its session is not certain, as on a busy machine.
    let has_all = async || all(workers.iter().chain([&last]).map(|it| &*it.share)) == whole;
    world.eventually("each item has a member", has_all).await;
    last.leaves(&world).await;
    let counts = [items.len() / MEMBERS; MEMBERS];
    world.splits(&workers.iter().map(|it| &*it.share).collect::<Vec<_>>(), &counts, &whole).await;
    for worker in workers {
        worker.leaves(&world).await;
    }
}

async fn a_transaction_under_an_item_needs_its_member(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let share = joined(&world, &partition(&world, &ann, &["a"]), "ann").await;
    answer(world.in_time("the first items", share.settled()).await);
    assert!(share.txn("b").is_none(), "there is no such item");
    let data = world.at("data");
    answer(bob.put(&data, "0").await);
    let write = |to: &'static str| {
        let mut txn = Txn::new().set(data.clone(), to, Expect::Any);
        txn.ops.extend(share.txn("a").expect("it is held").ops);
        txn
    };
    let [good, late] = [write("1"), write("2")];
    assert!(answer(bob.commit(good).await).is_committed(), "it is held");

    world.expire(answer(ann.session().await).info().id).await;

    assert!(answer(bob.commit(late).await).rejected().is_some(), "its session is over");
    assert_eq!(answer(bob.get(&data).await).expect("it was put").data, "1");
}
