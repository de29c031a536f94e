//! Commands in sequence on one store, which lives as long as a client holds it.

use std::time::Duration;

use synod::Path;
use synod::barrier::Barrier;
use synod::crew::{Crew, CrewWorker};
use synod::discovery::{Discovery, Instance};
use synod::value::Counter;
use synod::{Client, Lifetime, Query};

use crate::args::value::{BarrierAction, CounterAction};
use crate::args::{Common, Create, Watch};
use crate::command::{create, delete, discover, list, node, tree, value, watch};
use crate::failure::Failure;

/// A store of this name, and the options that reach it.
async fn store(name: &str) -> (Client, Common) {
    let url = format!("mem://{name}");
    let client = synod::connect(&url).await.expect("memory is always there");
    (client, Common { store: Some(url), json: true, ..Common::default() })
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
        Failure::Plain(text) | Failure::NotThere(text) | Failure::Exit(_, Some(text)) => text,
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
        node::get(&common, &[path("/a/b")], raw).await.expect("it is there");
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
        list::children(&common, &[path("/t")], long, !long).await.expect("it can be listed");
    }
    tree::run(&common, &[path("/t")], true).await.expect("it can be drawn");

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
        Box::pin(delete::tree(&common, &root)),
        Box::pin(delete::tree(&common, &root)),
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
    let asked = Watch {
        path: path("/w"),
        children: true,
        subtree: false,
        count: Some(2),
        #[cfg(unix)]
        grace: None,
        #[cfg(unix)]
        command: Vec::new(),
    };
    let (told, made) = futures_util::future::join(watch::run(&common, asked), async {
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
        Box::pin(run(BarrierAction::Wait { timeout: None })),
        Box::pin(run(BarrierAction::Lift)),
    )
    .await;
    waited.and(lifted).expect("it is lifted");
    assert!(!Barrier::new(&client, path("/b")).is_set().await.expect("answered"));
    client.close().await.expect("memory answers");
}

#[tokio::test]
async fn services_and_their_instances_are_listed() {
    let (client, common) = store("services").await;
    let list = async |service| discover::run(&common, &path("/services"), service).await;
    list(None).await.expect("there are none");
    list(Some("web")).await.expect("there is none");
    let discovery = Discovery::new(&client, path("/services"));
    let instance = Instance::new("web", "10.0.0.7").port(80).payload("text".to_owned());
    let _registration = discovery.register(instance).await.expect("it is new");
    client.put(&path("/services/web/bad"), "{").await.expect("answered");
    for json in [true, false] {
        let common = Common { json, ..common.clone() };
        for service in [None, Some("web")] {
            discover::run(&common, &path("/services"), service).await.expect("they are listed");
        }
    }
    assert!(refused(list(Some("")).await).contains("name"));
    client.close().await.expect("memory answers");
}

#[tokio::test]
async fn tasks_are_submitted_shown_and_cancelled() {
    use crate::args::crew::{CrewAction, CrewSubmit};
    use crate::command::crew;

    let (client, common) = store("a-crew").await;
    let ask = async |action| crew::run(&common, &path("/crew"), action).await;
    let submit = |id: &str, wait| {
        let (data, id) = (Some("x".to_owned()), Some(id.to_owned()));
        // One task is late when it is submitted.
        let deadline = (id.as_deref() == Some("late")).then_some(Duration::ZERO);
        let (needs, prefers) = (Vec::new(), vec![("disk".to_owned(), "big".to_owned())]);
        let (priority, retries, attempt_timeout) = (0, 0, None);
        CrewAction::Submit(CrewSubmit {
            data,
            id,
            priority,
            retries,
            needs,
            prefers,
            deadline,
            attempt_timeout,
            wait,
        })
    };
    let status = |id: &str| CrewAction::Status { id: id.to_owned(), follow: false };
    ask(submit("a", false)).await.expect("it is new");
    ask(status("a")).await.expect("it waits");
    assert!(refused(ask(status("b")).await).contains("there is no task"));
    assert!(refused(ask(CrewAction::Drain { worker: "w".into() }).await).contains("`list`"));
    let member = Crew::new(&client, path("/crew"));
    ask(CrewAction::Pause).await.expect("it is paused");
    let worker = CrewWorker::new().property("disk", "big");
    let working = member.work(worker, |task| async move {
        if task.id == "a" { Ok("done") } else { Err("on purpose") }
    });
    let asking = async {
        for json in [true, false] {
            let common = Common { json, ..common.clone() };
            crew::run(&common, &path("/crew"), CrewAction::List).await.expect("it is listed");
        }
        ask(CrewAction::Cancel { id: "a".into() }).await.expect("it is there");
        assert!(
            refused(crew::run(&plain(&common), &path("/crew"), submit("a", true)).await)
                .contains("was cancelled")
        );
        let late = crew::run(&plain(&common), &path("/crew"), submit("late", true)).await;
        assert!(refused(late).contains("the task late was not over by its deadline"));
        ask(CrewAction::Resume).await.expect("it goes on");
        let failed = crew::run(&plain(&common), &path("/crew"), submit("b", true)).await;
        assert!(refused(failed).contains("the task b failed: on purpose"));
        assert!(matches!(ask(submit("b", true)).await, Err(Failure::Told)), "as JSON");
    };
    let members = futures_util::future::try_join(working, member.lead());
    futures_util::future::select(Box::pin(asking), Box::pin(members)).await;
    for id in ["b", "late"] {
        ask(status(id)).await.expect("it is kept");
    }
    client.close().await.expect("memory answers");
}

/// The same store, with text as output.
fn plain(common: &Common) -> Common {
    Common { json: false, ..common.clone() }
}

/// A directory of a test alone.
#[cfg(unix)]
fn scratch(name: &str) -> std::path::PathBuf {
    let directory = std::env::temp_dir().join(format!("synod-{name}-{}", std::process::id()));
    let _old = std::fs::remove_dir_all(&directory).is_ok();
    directory
}

#[cfg(unix)]
#[tokio::test]
async fn a_subtree_is_kept_as_files() {
    use std::fs::read_to_string;

    use crate::args::Mirror;
    use crate::command::mirror;

    let (client, common) = store("mirrored").await;
    let directory = scratch("mirrored");
    let read = |file: &str| read_to_string(directory.join(file)).ok();
    let asked = |once| Mirror {
        path: path("/app"),
        directory: directory.clone(),
        once,
        grace: None,
        command: Vec::new(),
    };
    client.put(&path("/app/db/url"), "first").await.expect("answered");
    client.put(&path("/app/mode"), "slow").await.expect("answered");
    client.put(&path("/other"), "not ours").await.expect("answered");
    mirror::run(&common, asked(true)).await.expect("it is written");
    assert_eq!([read("db/url"), read("mode")], [Some("first".into()), Some("slow".into())]);

    let kept = mirror::run(&common, asked(false));
    let writes = async {
        client.delete(&path("/app/mode"), synod::Expect::Any).await?.required()?;
        client.put(&path("/app/db/url"), "second").await?;
        while [read("db/url"), read("mode")] != [Some("second".into()), None] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok::<(), synod::Error>(())
    };
    let ended = futures_util::future::select(Box::pin(kept), Box::pin(writes));
    let ended = tokio::time::timeout(Duration::from_secs(60), ended).await.expect("in time");

    let futures_util::future::Either::Right((changed, _)) = ended else { panic!("it ended") };
    changed.expect("answered");
    std::fs::remove_dir_all(&directory).expect("it is there");
    client.close().await.expect("memory answers");
}
