//! Access lists by path.

use std::time::Duration;

use synod_core::client::{Client, ClientOptions};
use synod_core::error::ErrorKind;
use synod_core::store::{Expect, Lifetime, Query, SessionOptions, Store, Txn};
use synod_recipes::lock::Mutex;
use synod_zk::{Access, ZkBackend, ZkOptions};

use super::{create, done, open, options, path, server, session, there};

/// Options of a user whose new nodes have these lists.
fn with_lists(lists: &[(&str, &str)]) -> ZkOptions {
    let ann = options(server().addresses()).credentials("ann", "canary-7f3a".to_owned());
    lists
        .iter()
        .fold(ann, |options, (at, list)| options.acl(path(at), list.parse().expect("valid")))
}

/// The list of a node as the server has it: scheme and permissions.
async fn list_of(raw: &zookeeper_client::Client, at: &str) -> Vec<(String, String)> {
    let (entries, _stat) = raw.get_acl(at).await.expect("it is there");
    let entries = entries
        .iter()
        .map(|entry| (entry.scheme().to_owned(), format!("{:?}", entry.permission())));
    entries.collect()
}

async fn denied(store: &dyn Store, txn: Txn, at: &str, permission: &str) {
    let error = store.commit(txn).await.expect_err("the list does not permit it");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert_eq!(error.path(), Some(&path(at)), "{error}");
    assert!(error.to_string().contains(&format!("the permission {permission};")), "{error}");
}

/// Every way to create a node: alone, with its parents, with other operations, sequential, of each
/// lifetime.
pub(super) async fn new_nodes_have_the_list_of_the_nearest_path() {
    let ann = open(with_lists(&[
        ("/lists", "world:r,creator:all"),
        ("/lists/mine", "creator"),
        ("/lists/net", "ip:127.0.0.1:r,creator:all"),
    ]))
    .await;
    let address = server().addresses()[0].to_string();
    let raw = zookeeper_client::Client::connect(&address);
    let raw = raw.await.expect("a server runs");
    raw.auth("digest", b"ann:canary-7f3a").await.expect("it is known");

    let ttl = Lifetime::Ttl(Duration::from_secs(60));
    done(&*ann, create("/lists/a/b", "x")).await;
    done(&*ann, create("/lists/a/c", "x").create(path("/lists/a/d/e"), "", Lifetime::Session))
        .await;
    let ticket = Txn::new().create_sequential(path("/lists/a/t-"), "", Lifetime::Session);
    let ticket = done(&*ann, ticket).await.results[0].path.to_string();
    done(&*ann, Txn::new().create(path("/lists/a/ttl"), "", ttl)).await;
    done(&*ann, create("/lists/mine/x/y", "secret")).await;
    done(&*ann, create("/lists/net/x", "x").check(path("/lists/none"), Expect::Absent)).await;
    done(&*ann, create("/lists-not", "x")).await;

    let public = list_of(&raw, "/lists/a/b").await;
    assert_eq!(
        public.iter().map(|entry| entry.0.as_str()).collect::<Vec<_>>(),
        ["world", "digest"]
    );
    for at in ["/lists/a/c", "/lists/a/d/e", &ticket, "/lists/a/ttl"] {
        assert_eq!(list_of(&raw, at).await, public, "{at}");
    }
    // Containers are never written.
    let container = list_of(&raw, "/lists").await;
    assert_ne!(container, public);
    for at in ["/lists/a", "/lists/a/d"] {
        assert_eq!(list_of(&raw, at).await, container, "{at}");
    }
    let own = list_of(&raw, "/lists/mine/x/y").await;
    assert_eq!((own.len(), own[0].0.as_str()), (1, "digest"));
    assert_eq!(list_of(&raw, "/lists/mine/x").await.len(), 1);
    assert_eq!(list_of(&raw, "/lists-not").await, own, "the default holds beside the lists");

    let nobody = session().await;
    assert!(there(&*nobody, "/lists/a/b").await && there(&*nobody, "/lists/net/x").await);
    let read = nobody.read(Query::node(path("/lists/mine/x/y"))).await.expect_err("no permission");
    assert_eq!(read.kind(), ErrorKind::Denied, "{read}");
    let set = || Txn::new().set(path("/lists/a/b"), "y", Expect::Any);
    let delete = || Txn::new().delete(path("/lists/a/b"), Expect::Any);
    let beside = |txn: Txn| txn.check(path("/lists/a/c"), Expect::Any);
    denied(&*nobody, set(), "/lists/a/b", "write").await;
    denied(&*nobody, beside(set()), "/lists/a/b", "write").await;
    denied(&*nobody, delete(), "/lists/a", "delete").await;
    denied(&*nobody, beside(delete()), "/lists/a", "delete").await;
    denied(&*nobody, create("/lists/a/f", ""), "/lists/a", "create").await;
    denied(&*nobody, create("/lists/a/f/g", ""), "/lists/a", "create").await;
    denied(&*nobody, beside(create("/lists/a/f/g", "")), "/lists/a", "create").await;
    let absent = Txn::new().check(path("/lists/a/f"), Expect::Absent);
    denied(&*nobody, absent, "/lists/a", "create").await;
}

/// A lock needs to create, delete and read in its directory, and nothing else.
pub(super) async fn a_lock_needs_three_permissions_in_its_directory() {
    let long = || ClientOptions::default().session(SessionOptions::new(Duration::from_secs(60)));
    let ann = open(with_lists(&[
        ("/lists-shared", "world:cdr,creator:all"),
        ("/lists-blind", "world:cd"),
    ]))
    .await;
    done(&*ann, create("/lists-shared", "").create(path("/lists-blind"), "", Lifetime::Persistent))
        .await;

    let nobody = || ZkBackend::new(options(server().addresses()).access(Access::Open));
    let one = Client::open(nobody().expect("valid"), long()).await.expect("a server runs");
    let two = Client::open(nobody().expect("valid"), long()).await.expect("a server runs");
    let guard = Mutex::new(&one, path("/lists-shared")).lock().await.expect("three are enough");
    let other = Mutex::new(&two, path("/lists-shared"));
    assert!(other.try_lock().await.expect("three are enough").is_none(), "it is held");
    guard.release().await.expect("three are enough");
    drop(other.lock().await.expect("three are enough"));

    let error = Mutex::new(&one, path("/lists-blind")).lock().await.expect_err("it may not list");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}
