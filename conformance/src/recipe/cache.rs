//! The cache: an eventually correct copy of a part of the tree, and the events that lead to it.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt as _;
use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, Loaded, Node, Query, Revision, Txn};
use synod_core::task::{self, Task};
use synod_recipes::cache::{Cache, CacheEvent, CacheState, Extent};
use synod_testkit::fault::Verb;

use crate::door::gate::Way;
use crate::door::{answer, done, failure};
use crate::recipe::Waiting;
use crate::world::World;

cases![
    "L-CA-1 L-CA-2 L-CA-3 L-CA-9" catches [WatchIsShallow] => a_cache_and_its_events_are_what_the_store_has_in_the_end,
    "L-CA-1 L-CA-3" catches [EventDropped] => nodes_that_come_and_go_at_once_are_what_the_store_has_in_the_end,
    "L-CA-1 L-CA-2" breaks [NewerByVersion] => what_is_removed_and_made_again_during_an_outage_is_one_change,
    "L-CA-1 L-CA-4 L-WAT-7" needs [Expiry] breaks [OutageUnread ResyncOnlyAdds] => an_outage_is_followed_by_the_difference,
    "L-CA-1 L-CA-4" breaks [ResyncUnread] => what_a_store_could_not_report_is_read_again,
    "L-CA-4" catches [TreeLeavesOutItsRoot] => a_cache_is_complete_when_it_says_so,
    "L-CA-8" breaks [ResyncUnread] => the_progress_of_each_read_of_the_whole_ends_with_all_nodes,
    "L-CA-5" breaks [CopyIsNeverStale] => a_cache_is_stale_while_the_store_is_out_of_reach,
    "L-CA-6 L-CA-3 L-CA-12" breaks [MissedEventsSkipped] => a_slow_reader_begins_anew_and_no_other_waits,
    "L-CA-1 L-X-9" catches [WatchMissesChildUpdate] => an_extent_has_its_nodes_and_no_others,
    "L-CA-1" catches [WatchNeedsNode] => what_is_not_there_yet_is_cached_when_it_comes,
    "L-X-7 L-CA-11" breaks [EventReadsAll] => a_change_costs_what_it_concerns,
    "L-OUT-5 L-OUT-6 L-X-5 L-CA-10" breaks [StateNeverEnds] => a_cache_ends_with_its_client,
    "L-WAT-14 L-X-5 L-CA-11" needs [WatchCount] catches [DropLeavesWatch] => caches_that_were_dropped_leave_no_watch,
];

/// The cache of the directory of the case and its subtree.
pub(super) async fn open(world: &World, client: &Client) -> Cache {
    let opened = Cache::open(client, Extent::subtree(world.at("tree")));
    answer(world.in_time("a cache", opened).await)
}

/// Returns the nodes that the store has there.
async fn stored(world: &World, client: &Client) -> Vec<Node> {
    let view = answer(client.read(Query::subtree(world.at("tree"))).await);
    view.nodes.into_iter().filter(|node| node.stat.is_some()).collect()
}

/// A reader of the events of a cache, in a separate task: the nodes that result from the events,
/// and the errors in them.
pub(super) struct Shadow {
    seen: Arc<Mutex<Seen>>,
    _reading: Task,
}

#[derive(Clone, Debug, Default)]
struct Seen {
    nodes: BTreeMap<Path, Node>,
    /// The newest version that was shown of each path.
    newest: BTreeMap<Path, Revision>,
    is_complete: bool,
    /// All events, abbreviated.
    log: Vec<String>,
    wrong: Vec<String>,
}

impl Shadow {
    pub(super) fn of(cache: &Cache) -> Self {
        let (seen, events) = (Arc::new(Mutex::new(Seen::default())), cache.events());
        let shared = seen.clone();
        let reading = task::spawn(async move {
            let mut events = pin!(events);
            while let Some(event) = events.next().await {
                shared.lock().unwrap_or_else(PoisonError::into_inner).take(event);
            }
        });
        Self { seen, _reading: reading }
    }

    fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// `true` if the last event about completeness reported a complete content.
    pub(super) fn seen_complete(&self) -> bool {
        self.seen().is_complete
    }

    /// Removes and returns the events that were seen so far, abbreviated.
    pub(super) fn take_log(&self) -> Vec<String> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut seen.log)
    }
}

impl Seen {
    fn take(&mut self, event: CacheEvent) {
        self.is_complete = match &event {
            CacheEvent::Complete(_) => true,
            CacheEvent::Stale | CacheEvent::Reset => false,
            _ => self.is_complete,
        };
        let (name, node, known) = match &event {
            CacheEvent::Created(node) => ("+", Some(node), false),
            CacheEvent::Updated { node, .. } => ("~", Some(node), true),
            CacheEvent::Deleted(node) => ("-", Some(node), true),
            CacheEvent::Complete(_) => ("complete", None, false),
            CacheEvent::Stale => ("stale", None, false),
            CacheEvent::Reset => ("reset", None, false),
        };
        let path = node.map(|node| node.path.clone());
        if let (Some(node), Some(stat)) = (node, node.and_then(|node| node.stat)) {
            let newest = self.newest.entry(node.path.clone()).or_default();
            if self.nodes.contains_key(&node.path) != known || stat.modified < *newest {
                self.wrong.push(format!("{name}{node:?} after {newest:?}"));
            }
            *newest = stat.modified.max(*newest);
        }
        self.log
            .push(path.map_or_else(|| name.to_owned(), |path| format!("{name}{}", path.name())));
        event.apply(&mut self.nodes);
    }
}

/// Waits until the cache, the events and the store are the same.
pub(super) async fn settles(world: &World, client: &Client, cache: &Cache, shadow: &Shadow) {
    let is_equal = async || {
        let stored = stored(world, client).await;
        let seen = shadow.seen();
        assert!(seen.wrong.is_empty(), "{:?}", seen.wrong);
        let cached = cache.snapshot();
        let is_equal = cached.iter().eq(&stored) && seen.nodes.values().eq(&stored);
        is_equal && cached.state().is_live() && seen.is_complete
    };
    world.eventually("the cache is what the store has", is_equal).await;
}

/// Changes something below the directory of the case.
async fn disturb(world: &World, client: &Client, value: u64) {
    const PLACES: [&str; 6] = ["tree", "tree/a", "tree/b", "tree/b/c", "tree/b/c/d", "tree/b-e"];
    let place = PLACES[usize::try_from(world.random.below(6)).expect("it is small")];
    let path = world.at(place);
    if world.random.below(3) == 0 {
        let _gone_or_not = answer(client.delete(&path, Expect::Any).await);
    } else {
        // A path that exists only because nodes are below it cannot be written.
        match client.put(&path, value.to_string()).await {
            Err(error) if error.kind() == ErrorKind::Refused => {}
            written => drop(answer(written)),
        }
    }
}

async fn a_cache_and_its_events_are_what_the_store_has_in_the_end(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    answer(bob.put(&world.at("tree/first"), "1").await);
    let cache = open(&world, &ann).await;
    let shadow = Shadow::of(&cache);
    for round in 0..6 {
        for value in 0..10 {
            disturb(&world, &bob, round * 10 + value).await;
        }
        settles(&world, &bob, &cache, &shadow).await;
        let late = Shadow::of(&cache);
        settles(&world, &bob, &cache, &late).await;
    }
}

async fn the_progress_of_each_read_of_the_whole_ends_with_all_nodes(world: World) {
    const NODES: usize = 100;
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    for node in 0..NODES {
        answer(bob.put(&world.at(&format!("tree/n{node}")), "x").await);
    }

    // A filter restricts the nodes that are kept, and not the nodes that are read.
    let extent = Extent::children(world.at("tree")).filtered(|path| path.name().ends_with('7'));
    let cache = Cache::start(&ann, extent);
    let mut progress = cache.progress();
    answer(world.in_time("a cache", cache.complete()).await);
    let loaded = *progress.borrow_and_update();
    assert_eq!((loaded.read, loaded.found, cache.snapshot().len()), (NODES, NODES, NODES / 10));

    gate.lose_events(true);
    answer(bob.put(&world.at("tree/more"), "x").await);

    let all = |loaded: &Loaded| (loaded.read, loaded.found) == (NODES + 1, NODES + 1);
    world.in_time("the next read of the whole", progress.wait_for(all)).await.expect("it is open");
}

async fn nodes_that_come_and_go_at_once_are_what_the_store_has_in_the_end(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let cache = open(&world, &ann).await;
    let shadow = Shadow::of(&cache);
    let (node, twice) = (world.at("tree/n"), world.at("tree/m"));
    for value in 0..20 {
        for path in [&node, &twice] {
            answer(bob.put(path, value.to_string()).await);
            answer(answer(bob.delete(path, Expect::Any).await).required());
        }
        let both = Txn::new().create(&node, "both", Lifetime::Persistent).create(
            &twice,
            "",
            Lifetime::Persistent,
        );
        answer(answer(bob.commit(both).await).required());
        if value % 4 == 0 {
            settles(&world, &bob, &cache, &shadow).await;
        }
        let neither = Txn::new().delete(&twice, Expect::Any).delete(&node, Expect::Any);
        answer(answer(bob.commit(neither).await).required());
    }
    settles(&world, &bob, &cache, &shadow).await;
}

async fn what_is_removed_and_made_again_during_an_outage_is_one_change(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    gate.may_lose();
    let ann = world.client_on(gate.clone(), world.options()).await;
    let node = world.at("tree/n");
    answer(bob.put(&node, "first").await);
    let cache = open(&world, &ann).await;
    let shadow = Shadow::of(&cache);
    for round in 0..3 {
        settles(&world, &bob, &cache, &shadow).await;
        shadow.take_log();
        let before = cache.get(&node).and_then(|node| node.stat).expect("it is there");
        gate.set(Way::Shut);
        gate.lose_events(true);
        gate.lose();
        // The node has the same version as before, or one with a smaller number.
        answer(answer(bob.delete(&node, Expect::Any).await).required());
        answer(bob.put(&node, format!("{round}")).await);
        let stale = async || shadow.seen().log == ["stale"];
        world.eventually("readers are notified", stale).await;
        gate.lose_events(false);
        gate.set(Way::Open);

        settles(&world, &bob, &cache, &shadow).await;

        assert_eq!(shadow.take_log(), ["stale", "~n", "complete"]);
        let after = cache.get(&node).and_then(|node| node.stat).expect("it is there");
        assert!(after.created > before.created);
    }
}

async fn an_outage_is_followed_by_the_difference(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    for name in ["tree", "tree/a", "tree/b", "tree/c"] {
        answer(bob.put(&world.at(name), "first").await);
    }
    let cache = open(&world, &ann).await;
    let shadow = Shadow::of(&cache);
    settles(&world, &bob, &cache, &shadow).await;
    assert_eq!(shadow.take_log(), ["+tree", "+a", "+b", "+c", "complete"]);
    // Ann loses her session, and gets no other before the tree has changed.
    let session = answer(ann.session().await);
    gate.set(Way::Shut);
    world.expire(session.info().id).await;
    world.in_time("the loss", session.lost()).await;
    answer(answer(bob.delete(&world.at("tree/a"), Expect::Any).await).required());
    answer(bob.put(&world.at("tree/b"), "second").await);
    answer(bob.put(&world.at("tree/d"), "first").await);
    assert_eq!(cache.snapshot().len(), 4, "what was there stays");
    gate.set(Way::Open);

    settles(&world, &bob, &cache, &shadow).await;

    assert_eq!(shadow.take_log(), ["stale", "-a", "~b", "+d", "complete"]);
}

async fn what_a_store_could_not_report_is_read_again(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    answer(bob.put(&world.at("tree/a"), "first").await);
    let cache = open(&world, &ann).await;
    let shadow = Shadow::of(&cache);
    for value in 0..5 {
        gate.lose_events(true);
        answer(answer(bob.delete(&world.at("tree/a"), Expect::Any).await).required());
        answer(bob.put(&world.at("tree/b"), format!("{value}")).await);
        settles(&world, &bob, &cache, &shadow).await;
        gate.lose_events(false);
        answer(bob.put(&world.at("tree/a"), format!("{value}")).await);
        settles(&world, &bob, &cache, &shadow).await;
    }
    let log = shadow.take_log();
    let count = |what: &str| log.iter().filter(|event| *event == what).count();
    assert!(count("stale") >= 1 && count("complete") == count("stale") + 1, "{log:?}");
}

async fn a_cache_is_complete_when_it_says_so(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    for name in ["tree", "tree/a", "tree/b/c"] {
        answer(bob.put(&world.at(name), "first").await);
    }
    gate.set(Way::Shut);
    let cache = Cache::start(&ann, world.at("tree"));
    let shadow = Shadow::of(&cache);
    let mut opening = Waiting::new({
        let cache = cache.clone();
        async move { cache.complete().await }
    });
    opening.waits_for(world.brief(), "the store cannot be reached").await;
    assert!(matches!(cache.state(), CacheState::Syncing) && shadow.seen().log.is_empty());
    gate.set(Way::Open);

    opening.gets(&world, "a complete cache").await;

    let stored = stored(&world, &bob).await;
    assert!(cache.snapshot().iter().eq(&stored), "{:?}", cache.snapshot());
    settles(&world, &bob, &cache, &shadow).await;
    assert_eq!(shadow.take_log(), ["+tree", "+a", "+c", "complete"]);
    let children = cache.children(&world.at("tree"));
    let children: Vec<_> = children.iter().map(|node| (node.path.name(), node.stat)).collect();
    let stat = cache.get(&world.at("tree/a")).and_then(|node| node.stat);
    assert_eq!(children, [("a", stat), ("b", None)], "a container has no stat");
}

async fn a_cache_is_stale_while_the_store_is_out_of_reach(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    gate.may_lose();
    let ann = world.client_on(gate.clone(), world.options()).await;
    let node = world.at("tree/n");
    answer(bob.put(&node, "0").await);
    let cache = open(&world, &ann).await;
    let shadow = Shadow::of(&cache);
    for value in 1..=3 {
        settles(&world, &bob, &cache, &shadow).await;
        gate.set(Way::Shut);
        gate.lose_events(true);
        gate.lose();
        assert!(matches!(cache.state(), CacheState::Stale(_)), "its session is lost");
        answer(bob.put(&node, value.to_string()).await);
        let stale = async || shadow.seen().log.last().is_some_and(|last| last == "stale");
        world.eventually("readers are notified", stale).await;
        assert_eq!(cache.get(&node).expect("it stays").data, (value - 1).to_string());
        gate.lose_events(false);
        gate.set(Way::Open);
    }
    settles(&world, &bob, &cache, &shadow).await;
}

async fn a_slow_reader_begins_anew_and_no_other_waits(world: World) {
    /// Each change keeps the data before and after it.
    const BYTES: usize = 512 << 10;
    let (ann, bob) = (world.client().await, world.client().await);
    let (large, small) = (world.at("tree/large"), world.at("tree/small"));
    for path in [&large, &small] {
        answer(bob.put(path, vec![b'x'; BYTES]).await);
    }
    let cache = open(&world, &ann).await;
    let mut slow = pin!(cache.events());
    let shadow = Shadow::of(&cache);
    let mut made = BTreeMap::new();
    world.in_time("the first event", slow.next()).await.expect("it is open").apply(&mut made);
    for value in 0..12 {
        answer(bob.put(&large, vec![value; BYTES]).await);
        settles(&world, &bob, &cache, &shadow).await;
    }
    answer(answer(bob.delete(&small, Expect::Any).await).required());
    settles(&world, &bob, &cache, &shadow).await;

    let mut resets = 0;
    while !made.values().eq(cache.snapshot().iter()) {
        let event = world.in_time("an event", slow.next()).await.expect("it is open");
        resets += usize::from(matches!(event, CacheEvent::Reset));
        event.apply(&mut made);
    }

    assert_eq!(resets, 1, "it has missed events");
    assert!(!shadow.seen().log.contains(&"reset".to_owned()), "the other has not");
}

async fn an_extent_has_its_nodes_and_no_others(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let tree = world.at("tree");
    let hidden = |path: &Path| !path.name().starts_with('.');
    let extents = [
        (Extent::node(&tree), vec!["tree"]),
        (Extent::children(&tree), vec!["tree/.h", "tree/a"]),
        (Extent::subtree(&tree).depth(1), vec!["tree", "tree/.h", "tree/a"]),
        (Extent::subtree(&tree).filtered(hidden), vec!["tree", "tree/a", "tree/a/b"]),
        (Extent::subtree(&tree).names_only(), vec!["tree", "tree/.h", "tree/a", "tree/a/b"]),
    ];
    let names = ["tree", "tree/.h", "tree/a", "tree/a/b", "tree-b", "tree-b/a"];
    for name in names {
        answer(bob.put(&world.at(name), "first").await);
    }
    let mut caches = Vec::new();
    for (extent, expected) in extents {
        let bare = format!("{extent:?}").contains("data: false");
        let cache = answer(world.in_time("a cache", Cache::open(&ann, extent)).await);
        caches.push((cache, expected, if bare { "" } else { "second" }));
    }
    for name in names {
        answer(bob.put(&world.at(name), "second").await);
    }
    for (cache, expected, data) in caches {
        for name in &expected {
            let node = answer(bob.get(&world.at(name)).await).expect("it is there");
            let is_it = async || {
                cache.get(&node.path).is_some_and(|it| it.stat == node.stat && it.data == data)
            };
            world.eventually("it is cached", is_it).await;
        }
        let expected = expected.into_iter().map(|name| world.at(name)).collect::<Vec<_>>();
        assert!(cache.snapshot().iter().map(|node| &node.path).eq(&expected), "{expected:?}");
    }
}

async fn what_is_not_there_yet_is_cached_when_it_comes(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let tree = world.at("tree");
    let mut caches = Vec::new();
    for extent in [Extent::node(&tree), Extent::subtree(&tree)] {
        let cache = answer(world.in_time("a cache", Cache::open(&ann, extent)).await);
        assert!(cache.state().is_live() && cache.snapshot().is_empty(), "there is nothing");
        caches.push(cache);
    }
    for _ in 0..3 {
        done(bob.create(&tree, "", Lifetime::Persistent).await);
        for cache in &caches {
            world.eventually("it is there", async || cache.get(&tree).is_some()).await;
        }
        answer(answer(bob.delete(&tree, Expect::Any).await).required());
        for cache in &caches {
            world.eventually("it is gone", async || cache.snapshot().is_empty()).await;
        }
    }
}

async fn a_change_costs_what_it_concerns(world: World) {
    const CHANGES: usize = 10;
    let (gate, bob) = (world.gate(), world.client().await);
    for number in 0..30 {
        answer(bob.put(&world.at(&format!("tree/{number}")), "first").await);
    }
    let ann = world.client_on(gate.clone(), world.options()).await;
    let counts = || [Verb::Commit, Verb::Read, Verb::Watch].map(|verb| gate.count(verb));

    let cache = open(&world, &ann).await;

    assert_eq!(counts(), [0, 0, 1], "commits, reads, observes");
    let one = cache.get(&world.at("tree/1")).expect("it is there");
    for number in 0..CHANGES {
        answer(bob.put(&one.path, number.to_string()).await);
        let is_it = async || cache.get(&one.path).is_some_and(|it| it.data == number.to_string());
        world.eventually("it is cached", is_it).await;
    }
    let [commits, reads, observes] = counts();
    assert!(commits == 0 && reads <= CHANGES && observes == 1, "{reads} reads");
    assert_eq!(gate.subtrees(), 1, "the whole is read once");
}

async fn a_cache_ends_with_its_client(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let cache = open(&world, &ann).await;
    let mut events = pin!(cache.events());
    let clone = cache.clone();
    drop(cache);
    assert!(clone.state().is_live(), "a clone keeps it going");
    answer(ann.close().await);
    while world.in_time("the end of the events", events.next()).await.is_some() {}
    assert!(!clone.state().is_live());
    let closed = failure(world.in_time("an answer", clone.complete()).await, "a closed client");
    assert_eq!(closed.kind(), ErrorKind::SessionLost);
    let opened = world.in_time("an answer", Cache::open(&ann, world.at("tree"))).await;
    assert_eq!(failure(opened, "a closed client").kind(), ErrorKind::SessionLost);
    let cache = open(&world, &bob).await;
    let mut events = pin!(cache.events());
    drop(cache);
    while world.in_time("the end of the cache", events.next()).await.is_some() {}
}

async fn caches_that_were_dropped_leave_no_watch(world: World) {
    let client = world.client().await;
    world.leaves_no_watch(async || open(&world, &client).await).await;
}
