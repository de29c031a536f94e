//! Each recipe is found by a survey while it is used, or the reason is given why it cannot be.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::num::NonZeroU32;
use std::time::Duration;

use synod_core::client::{Client, ClientOptions};
use synod_core::error::Result;
use synod_core::path;
use synod_core::path::Path;
use synod_core::store::{Lifetime, Txn};
use synod_core::task::{self, Task};
use synod_mem::MemBackend;
use synod_recipes::barrier::{CountDown, DoubleBarrier};
use synod_recipes::crew::{Crew, CrewWorker};
use synod_recipes::discovery::{Discovery, Instance};
use synod_recipes::partition::Partition;
use synod_recipes::presence::Group;
use synod_recipes::queue::{CompatQueue, Queue, QueueLayout};
use synod_recipes::schedule::{Schedule, Timetable};
use synod_testkit::recipe::{Act, rows};
use synod_view::item::{Contest, Item, ItemState};
use synod_view::recognition::{Certainty, OtherQueue};
use synod_view::survey::Survey;
use synod_view::trouble::{Rule, Thresholds, troubles_of};

/// The recipes that a survey does not find, each with the reason.
const UNSEEN: &[(&str, &str)] = &[
    ("barrier", "a node whose name is the application's"),
    ("counter", "a value in a node whose name is the application's"),
    ("atomic_value", "a value in a node whose name is the application's"),
    ("ids", "a value in a node whose name is the application's"),
    ("lease", "a value in a node whose name is the application's"),
    ("shared_value", "a value in a node whose name is the application's"),
    ("shared_count", "a value in a node whose name is the application's"),
    ("persistent_node", "a node whose name is the application's, found as a member of a group"),
    ("transaction", "its writes are the application's"),
    ("cache", "it only reads"),
    ("watched", "it only reads"),
    ("hash_ring", "it only reads"),
];

/// The time in which a task of a test has come to its wait. The clock stands still meanwhile.
const LONG: Duration = Duration::from_secs(60);

async fn client() -> Client {
    Client::open(MemBackend::new(), ClientOptions::default()).await.expect("memory is there")
}

async fn found(client: &Client, root: &Path) -> Vec<Item> {
    let mut survey = Survey::new(client, root, 1_000).await.expect("it begins");
    let mut found = Vec::new();
    while let Some(item) = survey.next().await.expect("it is read") {
        found.push(item);
    }
    assert!(!survey.is_cut());
    found
}

/// Surveys until an item is found for which `is_it` holds.
async fn finds(client: &Client, what: &str, is_it: impl Fn(&Item) -> bool) -> Item {
    let mut seen = String::new();
    for _ in 0..1_000 {
        let all = found(client, &Path::root()).await;
        seen = format!("{all:?}");
        if let Some(item) = all.into_iter().find(|item| is_it(item)) {
            return item;
        }
        synod_core::clock::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: {seen}");
}

/// Keeps what a recipe does alive until the test has looked at it.
fn keep(doing: impl Future<Output = Result<Infallible>> + Send + 'static) -> Task {
    task::spawn(async move {
        let Err(error) = doing.await;
        panic!("{error}");
    })
}

#[tokio::test(start_paused = true)]
async fn what_contends_is_found_for_each_recipe_that_holds() {
    let mut contests = BTreeMap::new();
    for row in rows() {
        for one in row.uses {
            let Act::Hold { take, .. } = one.act else { continue };
            let client = client().await;
            let proof = take(client.clone(), path!("/deep/inside")).await.expect("it is granted");
            let all = found(&client, &Path::root()).await;
            assert!(!all.is_empty(), "{}", one.name);
            for item in &all {
                assert_eq!(item.certainty, Certainty::Certain, "{}", one.name);
                let contest = match &item.state {
                    ItemState::Contenders(contest, contenders) => {
                        assert_eq!(contenders[0].holds, Some(true), "{}", one.name);
                        Some(*contest)
                    }
                    ItemState::Queue { stats, claims } => {
                        assert_eq!((stats.claimed, claims.values().sum()), (1, 1), "{}", one.name);
                        None
                    }
                    other => panic!("{}: {other:?}", one.name),
                };
                contests.insert(row.module, contest);
            }
            proof.release().await.expect("it is released");
            let left = found(&client, &Path::root()).await;
            assert!(left.is_empty() || row.module == "queue", "{}: {left:?}", one.name);
        }
    }
    let lock = Some(Contest::Lock);
    let expected = [
        ("cohort_mutex", lock),
        ("election", Some(Contest::Election)),
        ("leader_latch", Some(Contest::Election)),
        // It contends by the tickets of a mutex, as Curator's does.
        ("leader_selector", lock),
        ("multi_lock", lock),
        ("mutex", lock),
        ("queue", None),
        ("reentrant_mutex", lock),
        ("rwlock", lock),
        ("semaphore", Some(Contest::Semaphore)),
        ("unfair_lock", lock),
    ];
    assert_eq!(contests.into_iter().collect::<Vec<_>>(), expected);
}

#[tokio::test(start_paused = true)]
async fn each_recipe_is_found_or_has_a_reason() {
    for row in rows() {
        let holds = row.uses.iter().any(|one| matches!(one.act, Act::Hold { .. }));
        let is_unseen = UNSEEN.iter().any(|(module, _)| *module == row.module);
        let is_seen = holds || SCENES.contains(&row.module);
        assert!(is_seen != is_unseen, "{}: a scene here, or a reason in UNSEEN", row.name);
    }
}

/// The recipes with a scene of their own below.
const SCENES: &[&str] = &[
    "crew",
    "schedule",
    "partition",
    "count_down",
    "double_barrier",
    "group",
    "discovery",
    "compat_queue",
];

#[tokio::test(start_paused = true)]
async fn a_queue_is_found_by_its_items_alone() {
    let client = client().await;
    let queue = Queue::<u64>::new(&client, path!("/jobs"));
    queue.put_many(&[1, 2, 3]).await.expect("they are put");
    let delivery = queue.claim().await.expect("it is claimed");
    delivery.reject("broken").await.expect("it is rejected");
    drop(queue);
    // Nothing but the items and the dead letter is left of its users.
    let is_alone = |item: &Item| {
        let ItemState::Queue { stats, claims } = &item.state else { return false };
        (stats.ready, stats.claimed, stats.dead) == (2, 0, 1) && claims.is_empty()
    };
    let item = finds(&client, "the queue", is_alone).await;
    assert_eq!((item.path, item.certainty), (path!("/jobs"), Certainty::Certain));
}

#[tokio::test(start_paused = true)]
async fn a_crew_is_found_with_and_without_a_master() {
    let client = client().await;
    let crew = Crew::new(&client, path!("/crew"));
    crew.submit("one", "data").await.expect("it is submitted");
    let waits = |item: &Item| {
        let ItemState::Crew { snapshot, masters } = &item.state else { return false };
        masters.is_empty() && snapshot.tasks.len() == 1 && snapshot.workers.is_empty()
    };
    assert_eq!(finds(&client, "a task without a master", waits).await.path, path!("/crew"));
    let (leading, working) = (crew.clone(), crew.clone());
    let _leads = keep(async move { leading.lead().await });
    let _works = keep(async move {
        working
            .work(CrewWorker::new(), |_task| async {
                synod_core::clock::sleep(LONG * 60).await;
                Ok::<_, Infallible>("")
            })
            .await
    });
    let works = |item: &Item| {
        let ItemState::Crew { snapshot, masters } = &item.state else { return false };
        masters.len() == 1 && snapshot.workers.len() == 1 && snapshot.tasks[0].worker.is_some()
    };
    let item = finds(&client, "a task with a worker", works).await;
    assert_eq!(item.certainty, Certainty::Certain);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_is_found_with_its_leader() {
    let client = client().await;
    let schedule = Schedule::new(&client, path!("/nightly"), Timetable::every(LONG)).label("ann");
    let _runs = keep(async move {
        schedule.run(|_run| async { Ok::<_, Infallible>(()) }).await?;
        unreachable!("it runs for ever")
    });
    let runs = |item: &Item| {
        let ItemState::Schedule { state, leaders } = &item.state else { return false };
        state.next.is_some() && leaders.len() == 1
    };
    let item = finds(&client, "the schedule", runs).await;
    assert_eq!((item.path, item.certainty), (path!("/nightly"), Certainty::Certain));
}

#[tokio::test(start_paused = true)]
async fn a_partition_is_found_with_the_holder_of_each_item() {
    let client = client().await;
    let _share = Partition::new(&client, path!("/shards"), ["a", "b"]).join("ann").await;
    let holds = |item: &Item| {
        let ItemState::Partition(holders) = &item.state else { return false };
        holders.len() == 2 && holders.values().all(|holder| holder == "ann")
    };
    assert_eq!(finds(&client, "the partition", holds).await.certainty, Certainty::Certain);
}

#[tokio::test(start_paused = true)]
async fn barriers_are_found_with_those_who_came() {
    let client = client().await;
    let three = NonZeroU32::new(3).expect("it is not zero");
    CountDown::new(&client, path!("/latch"), three).count_down("ann").await.expect("it counts");
    let counted = |item: &Item| matches!(item.state, ItemState::CountDown(1));
    assert_eq!(finds(&client, "the latch", counted).await.path, path!("/latch"));

    let barrier = DoubleBarrier::new(&client, path!("/gate"), NonZeroU32::MIN);
    let inside = barrier.enter().await.expect("it is alone");
    let entered =
        |item: &Item| matches!(item.state, ItemState::DoubleBarrier { members: 1, is_open: true });
    assert_eq!(finds(&client, "the barrier", entered).await.path, path!("/gate"));
    inside.leave().await.expect("it leaves");
}

#[tokio::test(start_paused = true)]
async fn members_and_instances_are_found_with_their_sessions() {
    let client = client().await;
    let own = client.session().await.expect("it is live").info().id;
    let _unnamed = Group::new(&client, path!("/party")).join("ann").await.expect("it joins");
    let is_one = |item: &Item| {
        let ItemState::Group(members) = &item.state else { return false };
        members.len() == 1 && members[0].session == own
    };
    assert_eq!(finds(&client, "the party", is_one).await.certainty, Certainty::Certain);
    let _named = Group::new(&client, path!("/hosts")).join_as("bob", "").await.expect("it joins");
    let named = |item: &Item| item.path == path!("/hosts") && is_one(item);
    assert_eq!(finds(&client, "the hosts", named).await.certainty, Certainty::Likely);

    let discovery = Discovery::<u8>::new(&client, path!("/services"));
    let instance = Instance::new("web", "10.0.0.7").port(80);
    let _registered = discovery.register(instance).await.expect("it is registered");
    let is_web = |item: &Item| {
        let ItemState::Service(instances) = &item.state else { return false };
        instances[0].0.port == Some(80) && instances[0].1 == own
    };
    assert_eq!(finds(&client, "the service", is_web).await.path, path!("/services/web"));
}

#[tokio::test(start_paused = true)]
async fn queues_of_other_libraries_are_found() {
    for (layout, kind) in [
        (QueueLayout::KazooLocking, OtherQueue::KazooLocking),
        (QueueLayout::CuratorSimple, OtherQueue::CuratorSimple),
        (QueueLayout::CuratorItems, OtherQueue::Curator),
        (QueueLayout::CuratorPriority, OtherQueue::Curator),
        (QueueLayout::CuratorDelay, OtherQueue::Curator),
    ] {
        let client = client().await;
        let queue = CompatQueue::new(&client, path!("/theirs"), layout);
        queue.put("one").await.expect("it is put");
        queue.put("two").await.expect("it is put");
        let all = found(&client, &path!("/theirs")).await;
        let is_it =
            |item: &Item| matches!(item.state, ItemState::OtherQueue(found, 2) if found == kind);
        assert!(all.iter().any(is_it), "{layout:?}: {all:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_lies_beside_and_below_a_recipe_is_found_too() {
    let client = client().await;
    let mutex = |path| synod_recipes::lock::Mutex::new(&client, path);
    let outer = mutex(path!("/a/locks")).lock().await.expect("it is free");
    let inner = mutex(path!("/a/locks/inner")).lock().await.expect("it is free");
    client.put(&path!("/a/value"), "x").await.expect("it is written");
    let node = path!("/a/state");
    client.put(&node, "no record").await.expect("it is written");
    let paths: Vec<_> = found(&client, &Path::root()).await.into_iter().map(|it| it.path).collect();
    assert_eq!(paths, [path!("/a/locks"), path!("/a/locks/inner")]);

    // A node that looks like a ticket, and belongs to nobody.
    let ticket = path!("/data/x-lock-");
    let numbered = Txn::new().create_sequential(ticket, "", Lifetime::Persistent);
    assert!(client.commit(numbered).await.expect("it is answered").is_committed());
    let data = found(&client, &path!("/data")).await;
    assert_eq!((data.len(), data[0].certainty), (1, Certainty::Likely));

    // Two nodes are too few to come to the second lock.
    let mut survey = Survey::new(&client, &Path::root(), 3).await.expect("it begins");
    let first = survey.next().await.expect("it is read").map(|item| item.path);
    let second = survey.next().await.expect("it is read").map(|item| item.path);
    assert_eq!((first, second, survey.is_cut()), (Some(path!("/a/locks")), None, true));
    inner.release().await.expect("it is released");
    outer.release().await.expect("it is released");
}

#[tokio::test(start_paused = true)]
async fn what_stands_still_is_a_trouble() {
    let (client, now) = (client().await, synod_core::clock::date());
    let later = now + LONG * 60;
    let rules = async |date| {
        let (all, limits) = (found(&client, &Path::root()).await, Thresholds::default());
        let troubles = all.iter().flat_map(|item| troubles_of(item, date, &limits));
        troubles.map(|trouble| trouble.rule).collect::<Vec<_>>()
    };
    let mutex = synod_recipes::lock::Mutex::new(&client, path!("/a"));
    let held = mutex.lock().await.expect("it is free");
    assert_eq!(rules(later).await, [], "nobody waits");
    let waits = mutex.enqueue().await.expect("it stands");
    assert_eq!((rules(now).await, rules(later).await), (vec![], vec![Rule::WaitsLong]));
    drop(waits);
    held.release().await.expect("it is released");

    let queue = Queue::<u64>::new(&client, path!("/b"));
    queue.put_many(&[1, 2]).await.expect("they are put");
    queue.claim().await.expect("one").reject("broken").await.expect("it is rejected");
    let both = vec![Rule::QueueOld, Rule::DeadLetters];
    assert_eq!((rules(now).await, rules(later).await), (vec![Rule::DeadLetters], both));
    for item in
        queue.dead().await.expect("one").into_iter().chain(queue.items().await.expect("one"))
    {
        assert!(queue.remove(&item).await.expect("it is removed"));
    }

    let crew = Crew::new(&client, path!("/c"));
    crew.submit("one", "data").await.expect("it is submitted");
    assert_eq!(rules(now).await, [Rule::NoMaster, Rule::NoWorker]);
    assert!(crew.task("one").expect("a name").cancel().await.expect("it is cancelled").is_some());
    assert_eq!(rules(later).await, [], "nothing waits");
}
