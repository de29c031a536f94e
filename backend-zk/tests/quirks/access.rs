//! Access lists by path.

use std::time::Duration;

use futures_util::FutureExt as _;
use synod_core::client::{Client, ClientOptions};
use synod_core::error::{Effect, ErrorKind};
use synod_core::path::Path;
use synod_core::store::{
    Expect, Lifetime, Query, RejectReason, SessionOptions, Store, Txn, Version,
};
use synod_mem::MemBackend;
use synod_recipes::lock::Mutex;
use synod_servers::links::Links;
use synod_servers::verb::Verb;
use synod_zk::{Access, Acl, AclClient, AclEntry, Permissions, ZkBackend, ZkOptions};

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

async fn client(options: ZkOptions) -> Client {
    let long = ClientOptions::default().session(SessionOptions::new(Duration::from_secs(60)));
    let backend = ZkBackend::new(options.access(Access::Open)).expect("valid");
    Client::open(backend, long).await.expect("a server runs")
}

fn acl(text: &str) -> Acl {
    text.parse().expect("valid")
}

/// The list of a node, and its version.
async fn shown(client: &Client, at: &str) -> Option<(String, u64)> {
    let list = AclClient::new(client).get(&path(at)).await.expect("it may be read");
    list.map(|it| (it.acl.to_string(), it.version.get()))
}

/// The list of a node is read and replaced, for each version, of nodes, containers and the root.
pub(super) async fn the_list_of_a_node_is_read_and_replaced() {
    let ann = options(server().addresses()).credentials("ann", "canary-7f3a".to_owned());
    let ann = client(ann).await;
    let nobody = client(options(server().addresses())).await;
    let (own, others) = (AclClient::new(&ann), AclClient::new(&nobody));
    let at = path("/set-list/a/b");
    assert_eq!(shown(&ann, "/set-list/a/b").await, None);
    let absent = own.set(&at, &Acl::open(), Expect::Any).await.expect("answered");
    assert_eq!(absent.rejected().map(|no| no.reason), Some(RejectReason::Missing));
    ann.put(&at, "x").await.expect("it is written");
    assert_eq!(shown(&ann, "/set-list/a/b").await, Some(("world:anyone:cdrwa".to_owned(), 0)));

    let first = Expect::Version(Version::new(0));
    let set = own.set(&at, &acl("world:r,creator:all"), first).await.expect("answered");
    assert_eq!(set.required().expect("it has the version"), Version::new(1));
    for version in [0, 2, u64::from(u32::MAX), u64::MAX] {
        let expect = Expect::Version(Version::new(version));
        let again = own.set(&at, &Acl::open(), expect).await.expect("answered");
        assert_eq!(again.rejected().map(|no| no.reason), Some(RejectReason::OtherVersion));
    }
    let (list, version) = shown(&ann, "/set-list/a/b").await.expect("it is there");
    assert!(list.starts_with("world:anyone:r,digest:ann:") && list.ends_with("=:cdrwa"), "{list}");
    assert_eq!(version, 1);

    // Who is no administrator sees no hash, and cannot write back what it sees.
    let (masked, _) = shown(&nobody, "/set-list/a/b").await.expect("it is there");
    assert_eq!(masked, "world:anyone:r,digest:ann:x:cdrwa");
    let digest = AclEntry::new("digest", "ann:x", Permissions::ALL);
    for (list, kind) in [
        (Acl::new([digest]), ErrorKind::Invalid),
        (Acl::new([]), ErrorKind::Invalid),
        (acl("creator"), ErrorKind::Invalid),
        (Acl::open(), ErrorKind::Denied),
        (acl(&vec!["sasl:a:r"; 90_000].join(",")), ErrorKind::TooLarge),
    ] {
        let error = others.set(&at, &list, Expect::Any).await.expect_err("it is refused");
        assert_eq!((error.kind(), error.path()), (kind, Some(&at)), "{error}");
        assert!(kind != ErrorKind::Denied || error.to_string().contains("permission admin"));
    }
    let error = own.set(&at, &Acl::open(), Expect::Absent).await.expect_err("no such list");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    own.set(&at, &acl("creator"), Expect::Any).await.expect("answered").required().expect("set");
    let error = others.get(&at).await.expect_err("it may not be read");
    assert_eq!((error.kind(), error.path()), (ErrorKind::Denied, Some(&at)));
    assert!(error.to_string().contains("permission read"), "{error}");

    // A container keeps without the permission to write.
    let container = path("/set-list/a");
    own.set(&container, &Acl::open(), Expect::Any)
        .await
        .expect("answered")
        .required()
        .expect("set");
    let kept = ("world:anyone:cdra".to_owned(), 1);
    assert_eq!(shown(&ann, "/set-list/a").await, Some(kept));
    assert_eq!(ann.get(&container).await.expect("answered"), None);
    assert!(shown(&ann, "/").await.is_some());

    let memory = MemBackend::new();
    let memory = Client::open(memory, ClientOptions::default()).await.expect("it is memory");
    let error = AclClient::new(&memory).get(&at).await.expect_err("memory has no lists");
    assert_eq!((error.kind(), error.path()), (ErrorKind::Unsupported, Some(&at)), "{error}");
}

/// The list of a tree is replaced through two namespaces, where its client may read each node only
/// before, or only after.
pub(super) async fn the_lists_of_a_tree_are_replaced() {
    const MANY: usize = 200;

    let ann = options(server().addresses()).credentials("ann", "canary-7f3a".to_owned());
    let (ann, nobody) = (client(ann).await, client(options(server().addresses())).await);
    let inner = ann.namespace(&path("/set-tree")).expect("short");
    let inner = inner.namespace(&path("/inner")).expect("short");
    let lists = AclClient::new(&inner);
    let top = path("/top");
    assert_eq!(lists.set_recursive(&top, &Acl::open()).await.expect("nothing is there"), 0);
    inner.put(&top, "").await.expect("written");
    for number in 0..MANY {
        let at = format!("/top/dir-{}/{number}", number % 7);
        inner.put(&path(&at), "x").await.expect("written");
    }
    inner.put(&path("/beside"), "x").await.expect("written");
    let count = 1 + 7 + MANY;
    let set = async |list: &str| {
        // A caller may be on any thread.
        let (lists, top, list) = (lists.clone(), top.clone(), acl(list));
        let set = lists.set_recursive(&top, &list).boxed();
        assert_eq!(set.await.expect("it is permitted"), count);
    };
    // After the second of these, only the administration of each node is permitted.
    for list in ["creator:all", "creator:admin", "creator:read+admin,world:read"] {
        set(list).await;
        for at in ["", "/dir-3", "/dir-3/199"] {
            let whole = format!("/set-tree/inner/top{at}");
            let (found, _) = shown(&ann, &whole).await.expect("it is there");
            let entries = acl(list).entries().len();
            assert_eq!(found.split(',').count(), entries, "{whole}: {found}");
        }
    }
    assert!(nobody.get(&path("/set-tree/inner/top/dir-3/199")).await.expect("read").is_some());
    let (beside, version) = shown(&ann, "/set-tree/inner/beside").await.expect("it is there");
    assert_eq!((beside.as_str(), version), ("world:anyone:cdrwa", 0));

    // The error names the node as its caller does.
    let others = AclClient::new(&nobody.namespace(&path("/set-tree")).expect("short"));
    let error = others.set_recursive(&path("/inner"), &Acl::open()).await.expect_err("not ours");
    assert_eq!((error.kind(), error.path()), (ErrorKind::Denied, Some(&path("/inner/top"))));
}

/// A list is set again if the answer is lost, unless a version is expected.
pub(super) async fn a_list_is_set_though_the_answer_is_lost() {
    let links = Links::start(&server().addresses()).expect("there are ports");
    let client = client(options(links.addresses().to_vec())).await;
    let (lists, at) = (AclClient::new(&client), path("/lost-list"));
    client.put(&at, "").await.expect("written");
    let session = client.session().await.expect("it is open").info().id;
    links.lose_reply(session, Verb::Other(7));
    let set = lists.set(&at, &acl("world:cdra"), Expect::Any).await.expect("it is repeated");
    assert_eq!(set.required().expect("there is no version"), Version::new(2));
    links.lose_reply(session, Verb::Other(7));
    let expect = Expect::Version(Version::new(2));
    let error = lists.set(&at, &Acl::open(), expect).await.expect_err("the answer is lost");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::Unknown));
    assert_eq!(error.path(), Some(&at));
    links.lose_reply(session, Verb::Other(6));
    assert_eq!(shown(&client, "/lost-list").await, Some(("world:anyone:cdrwa".to_owned(), 3)));
}

/// A client with several identities has the permissions of each, also on its next connection.
pub(super) async fn a_client_has_the_permissions_of_all_its_identities() {
    let links = Links::start(&server().addresses()).expect("there are ports");
    let users = ["ann", "bob", "carl"];
    let of = |user: &str, hosts: Vec<std::net::SocketAddr>| {
        options(hosts).credentials(user, "canary-7f3a".to_owned())
    };
    for user in users {
        let one = client(of(user, server().addresses()).acl(Path::root(), Acl::creator())).await;
        one.put(&path(&format!("/of-{user}")), "x").await.expect("written");
        let other = if user == "ann" { "bob" } else { "ann" };
        let other = client(of(other, server().addresses())).await;
        let denied = other.get(&path(&format!("/of-{user}"))).await.expect_err("not its node");
        assert_eq!(denied.kind(), ErrorKind::Denied);
    }
    let both = of("ann", links.addresses().to_vec()).add_identity("bob", "canary-7f3a");
    let both = client(both.acl(path("/of-both"), Acl::creator())).await;
    let reads_both = async || {
        for user in ["ann", "bob"] {
            let node = both.get(&path(&format!("/of-{user}"))).await.expect("it is permitted");
            assert_eq!(node.expect("it is there").data, "x");
        }
        both.get(&path("/of-carl")).await.expect_err("it is not this user").kind()
    };
    assert_eq!(reads_both().await, ErrorKind::Denied);
    // Either of them owns what both create.
    both.put(&path("/of-both"), "x").await.expect("written");
    for user in ["ann", "bob"] {
        let one = client(of(user, server().addresses())).await;
        assert!(one.get(&path("/of-both")).await.expect("it is permitted").is_some(), "{user}");
    }
    let session = both.session().await.expect("it is open").info().id;
    links.lose_reply(session, Verb::Set);
    let lost = both.set(&path("/of-bob"), "x", Expect::Any).await.expect_err("the answer is lost");
    assert_eq!(lost.kind(), ErrorKind::Unreachable);
    assert_eq!(reads_both().await, ErrorKind::Denied);
    assert_eq!(both.session().await.expect("the same").info().id, session);
}

pub(crate) async fn only_its_creator_touches_a_node() {
    let addresses = server().addresses();
    let known = |user: &str, password: &str| {
        options(addresses.clone()).credentials(user, password.to_owned())
    };
    let ann = open(known("ann", "canary-7f3a")).await;
    let again = open(known("ann", "canary-7f3a")).await;
    let eve = open(known("ann", "guessed")).await;
    let nobody = session().await;
    done(&*ann, create("/mine/a", "secret")).await;

    assert!(there(&*again, "/mine/a").await);
    done(&*again, Txn::new().set(path("/mine/a"), "x", Expect::Any)).await;
    for stranger in [&eve, &nobody] {
        let read =
            stranger.read(Query::node(path("/mine/a"))).await.expect_err("another user owns it");
        assert_eq!(read.kind(), ErrorKind::Denied);
        for txn in [
            Txn::new().set(path("/mine/a"), "x", Expect::Any),
            Txn::new().delete(path("/mine/a"), Expect::Any),
            create("/mine/b", ""),
        ] {
            let error = stranger.commit(txn).await.expect_err("another user owns it");
            assert_eq!(
                (error.kind(), error.effect()),
                (ErrorKind::Denied, Effect::None),
                "{error}"
            );
        }
    }
    let backend = ZkBackend::new(known("ann", "canary-7f3a")).expect("valid");
    assert!(!format!("{backend:?} {ann:?}").contains("canary"));
}
