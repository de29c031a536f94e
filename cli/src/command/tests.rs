//! Commands in sequence on one store, which lives as long as a client holds it.

use std::time::Duration;

use synod::path::Path;
use synod::recipe::{Barrier, Counter};
use synod::{Client, Lifetime, Query};

use crate::args::value::{BarrierAction, CounterAction};
use crate::args::{Common, Create};
use crate::command::{create, delete, list, node, tree, value, watch};
use crate::failure::Failure;

/// A store of this name, and the options that reach it.
async fn store(name: &str) -> (Client, Common) {
    let url = format!("mem://{name}");
    let client = synod::connect(&url).await.expect("memory is always there");
    (client, Common { store: Some(url), json: true })
}

fn path(text: &str) -> Path {
    Path::new(text).expect("valid")
}

async fn held(client: &Client, at: &str) -> Option<String> {
    let node = client.get(&path(at)).await.expect("memory answers")?;
    Some(String::from_utf8_lossy(&node.data).into_owned())
}

fn new(at: &str, data: &str) -> Create {
    let (path, data) = (path(at), data.to_owned());
    Create { path, data, sequential: false, ephemeral: false, ttl: None }
}

fn refused(done: Result<(), Failure>) -> String {
    match done.expect_err("it is to be refused") {
        Failure::Store(error) => error.to_string(),
        Failure::Plain(text) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_node_is_made_written_read_and_removed() {
    let (client, common) = store("one-node").await;
    create::run(&common, new("/a/b", "1")).await.expect("it is new");
    assert_eq!(held(&client, "/a/b").await.as_deref(), Some("1"));
    assert!(refused(create::run(&common, new("/a/b", "2")).await).contains("already exists"));

    let version = client.get(&path("/a/b")).await.expect("answered").expect("there").stat;
    let version = version.expect("a node has one").version.get();
    node::set(&common, &path("/a/b"), "2", Some(version)).await.expect("unchanged");
    let other = node::set(&common, &path("/a/b"), "3", Some(version)).await;
    assert!(refused(other).contains("another version"));
    assert_eq!(held(&client, "/a/b").await.as_deref(), Some("2"));
    for raw in [true, false] {
        node::get(&common, &path("/a/b"), raw).await.expect("it is there");
    }

    assert!(refused(node::delete(&common, &path("/a"), None).await).contains("has children"));
    node::delete(&common, &path("/a/b"), None).await.expect("it is there");
    assert_eq!(held(&client, "/a/b").await, None);
    client.close().await.expect("memory answers");
}

#[tokio::test]
async fn a_tree_is_listed_drawn_and_removed_whole() {
    let (client, common) = store("a-tree").await;
    for number in 0..150 {
        let at = path(&format!("/t/{}/{number}", number % 7));
        let made = client.create(&at, "x", Lifetime::Persistent).await.expect("answered");
        made.required().expect("it is new");
    }
    client
        .create(&path("/tx"), "", Lifetime::Persistent)
        .await
        .expect("answered")
        .required()
        .expect("new");
    for long in [true, false] {
        let common = Common { json: false, ..common.clone() };
        list::children(&common, &path("/t"), long).await.expect("it can be listed");
    }
    tree::run(&common, &path("/t")).await.expect("it can be drawn");

    delete::tree(&common, &path("/t")).await.expect("it is there");

    assert!(client.children(&path("/t")).await.expect("answered").iter().all(|n| n.stat.is_none()));
    assert!(held(&client, "/tx").await.is_some(), "only what is below");
    assert!(refused(delete::tree(&common, &path("/t")).await).contains("nothing at /t"));
    client.close().await.expect("memory answers");
}

#[tokio::test]
async fn two_remove_one_tree_and_a_third_adds_to_it() {
    let (client, common) = store("two-remove").await;
    let make = async |from: u32| {
        for number in from..from + 60 {
            let at = path(&format!("/t/{}/{}/{number}", number % 3, number % 7));
            let made = client.create(&at, "x", Lifetime::Persistent).await;
            made.expect("answered").required().expect("it is new");
        }
    };
    make(0).await;
    let root = path("/t");
    let (one, other, ()) = futures_util::future::join3(
        delete::tree(&common, &root),
        delete::tree(&common, &root),
        make(1_000),
    )
    .await;
    for done in [one, other] {
        // A command that was too late to remove anything reports that.
        if done.is_err() {
            assert!(refused(done).contains("nothing at /t"));
        }
    }
    // Nodes created after both were done are still there; remove them.
    let _rest = delete::tree(&common, &root).await;
    let left = client.read(Query::subtree(root)).await.expect("answered").nodes;
    assert!(left.iter().all(|node| node.stat.is_none()), "but for containers: {left:?}");
    client.close().await.expect("memory answers");
}

#[tokio::test]
async fn changes_are_printed_until_there_were_enough() {
    let (client, common) = store("watched").await;
    let (told, made) =
        futures_util::future::join(watch::run(&common, &path("/w"), true, false, Some(2)), async {
            let mut number = 0;
            // Only changes after the start of the watch are reported, so keep making more.
            loop {
                let at = path(&format!("/w/{number}"));
                client.create(&at, "", Lifetime::Session).await.expect("answered").required()?;
                number += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
                if number > 40 {
                    return Ok::<(), synod::Error>(());
                }
            }
        })
        .await;
    told.expect("two of them were printed");
    made.expect("they are new");
    client.close().await.expect("memory answers");
}

#[tokio::test]
async fn a_counter_is_set_added_to_and_read() {
    let (client, common) = store("counted").await;
    let run = async |action| value::counter(&common, &path("/n"), action).await;
    let number = async || Counter::new(&client, path("/n")).get().await.expect("it is a number");
    run(CounterAction::Get).await.expect("nothing is zero");
    run(CounterAction::Add { number: 7 }).await.expect("it fits");
    assert_eq!(number().await, 7);
    run(CounterAction::Set { number: i64::MAX }).await.expect("it fits");
    assert!(refused(run(CounterAction::Add { number: 1 }).await).contains("/n"));
    assert_eq!(number().await, i64::MAX);
    run(CounterAction::Add { number: -1 }).await.expect("it fits");
    assert_eq!(number().await, i64::MAX - 1);
    client.close().await.expect("memory answers");
}

#[tokio::test]
async fn a_barrier_is_set_waited_for_and_lifted() {
    let (client, common) = store("barred").await;
    let run = async |action| value::barrier(&common, &path("/b"), action).await;
    run(BarrierAction::Wait { timeout: None }).await.expect("it is not set");
    run(BarrierAction::Set).await.expect("answered");
    let short = Some(Duration::from_millis(20));
    match run(BarrierAction::Wait { timeout: short }).await.expect_err("it is set") {
        Failure::Exit(75, Some(why)) => assert!(why.contains("/b is still set"), "{why}"),
        other => panic!("{other:?}"),
    }
    let (waited, lifted) = futures_util::future::join(
        run(BarrierAction::Wait { timeout: None }),
        run(BarrierAction::Lift),
    )
    .await;
    waited.and(lifted).expect("it is lifted");
    assert!(!Barrier::new(&client, path("/b")).is_set().await.expect("answered"));
    client.close().await.expect("memory answers");
}
