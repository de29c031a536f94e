//! A client that is restricted to the paths below one path.

use synod_core::error::ErrorKind;
use synod_core::path::Path;
use synod_core::store::{Event, Expect, Lifetime, Query, RejectReason, Txn};
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::{answer, done, failure};
use crate::world::World;

cases![
    "L-X-9" breaks [NamespaceReplaces] => a_namespace_of_a_namespace_is_below_both,
    "L-X-9" breaks [NamespaceAddsTwice] => what_a_namespace_says_has_the_paths_of_its_caller,
    "L-X-9" breaks [NamespaceForgetsEvents] => the_events_of_a_namespace_have_the_paths_of_its_caller,
    "L-X-9 L-OUT-8" breaks [NamespaceStripsByText] => nothing_outside_a_namespace_shows,
    "L-X-9 L-SEQ-8" breaks [BlindRepeat] => a_ticket_in_a_namespace_is_drawn_once,
];

fn path(text: &str) -> Path {
    Path::new(text).expect("cases use valid paths")
}

async fn a_namespace_of_a_namespace_is_below_both(world: World) {
    let (client, bob) = (world.client().await, world.bob().await);
    let outer = client.namespace(&world.at("app")).expect("short");
    let inner = outer.namespace(&path("/a")).expect("short");
    bob.create(&world.at("app/ab"), "beside").await;

    done(inner.create(&path("/x/y"), "inside", Lifetime::Persistent).await);

    assert_eq!(bob.text(&world.at("app/a/x/y")).await.as_deref(), Some("inside"));
    let node = answer(outer.get(&path("/a/x/y")).await).expect("seen from further out");
    assert_eq!(node.data, "inside");
    let below = answer(inner.read(Query::subtree(path("/")).names_only()).await);
    assert!(below.nodes.iter().all(|node| node.path.as_str().starts_with("/x")), "{below:?}");
    let long = format!("/{}", "n".repeat(200)).repeat(10);
    let error = failure(inner.get(&path(&long)).await, "a path that gets too long");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

async fn what_a_namespace_says_has_the_paths_of_its_caller(world: World) {
    let (client, bob) = (world.client().await, world.bob().await);
    let inside = client.namespace(&world.at("a")).expect("short");
    let (x, dir) = (path("/d/x"), path("/d"));
    bob.create(&world.at("ab"), "").await;

    let txn = Txn::new().create(&x, "1", Lifetime::Persistent).look(Query::children(&dir));
    let commit = answer(inside.commit(txn).await).ok().expect("nothing is in the way");
    let drawn = done(inside.create_sequential(&path("/d/t-"), "", Lifetime::Session).await);
    let again = answer(inside.create(&x, "2", Lifetime::Persistent).await);
    let missing = answer(inside.set(&path("/d/none"), "", Expect::Any).await);

    assert_eq!(commit.results[0].path, x);
    let look = commit.look.expect("it was asked for");
    assert_eq!(look.nodes.iter().map(|node| &node.path).collect::<Vec<_>>(), [&x]);
    assert_eq!(drawn.path.parent(), Some(dir.clone()));
    let no = again.rejected().expect("it exists");
    assert_eq!((&no.path, no.reason), (&x, RejectReason::Exists));
    assert_eq!(missing.rejected().expect("it is missing").path, path("/d/none"));
    let children = answer(inside.children(&dir).await);
    assert_eq!(children.iter().map(|node| &node.path).collect::<Vec<_>>(), [&drawn.path, &x]);
    answer(answer(inside.session().await).remove(&drawn).await);
    assert_eq!(bob.names(&world.at("a/d")).await, ["x"]);
}

async fn the_events_of_a_namespace_have_the_paths_of_its_caller(world: World) {
    let (client, bob) = (world.client().await, world.bob().await);
    let inside = client.namespace(&world.at("a")).expect("short");
    let (_view, mut watch) = answer(inside.watch(Query::subtree(path("/"))).await);

    bob.create(&world.at("ab"), "").await;
    bob.create(&world.at("a/x"), "").await;

    loop {
        match world.in_time("a change inside", watch.next()).await {
            Some(Event::Changed(change)) if change.path == path("/x") => break,
            Some(Event::Changed(change)) if change.path.is_root() => {}
            other => panic!("it is notified of {other:?}"),
        }
    }
}

async fn nothing_outside_a_namespace_shows(world: World) {
    let gate = world.gate();
    let client = world.client_on(gate.clone(), world.options()).await;
    let inside = client.namespace(&world.at("a")).expect("short");
    done(inside.create(&path("/x"), "", Lifetime::Persistent).await);

    // Even if the store reports nodes whose paths only start with the same text.
    for stranger in ["ab", "ab/x", "b", "a%"] {
        gate.tell_of(&world.at(stranger));
        for query in [Query::subtree(path("/")), Query::children(path("/"))] {
            let view = answer(inside.read(query).await);
            let told: Vec<_> = view.nodes.iter().map(|node| node.path.as_str()).collect();
            assert_eq!(told, ["/x"], "{stranger} shows");
        }
    }
}

async fn a_ticket_in_a_namespace_is_drawn_once(world: World) {
    let (client, plan) = world.scripted([Cue::new(Site::ReplyLost).of(Verb::Create)]).await;
    let bob = world.bob().await;
    let inside = client.namespace(&world.at("a")).expect("short");

    let drawn = done(inside.create_sequential(&path("/q/t-"), "", Lifetime::Session).await);

    assert_eq!(plan.pending(), 0);
    assert_eq!(drawn.path.parent(), Some(path("/q")));
    assert_eq!(bob.names(&world.at("a/q")).await, [drawn.path.name()]);
}
