//! The reported effect of a write is true for any answer of a server: L-OUT-1 to 3, L-OUT-8.

use std::time::Duration;

use futures_util::future::join_all;
use synod_core::error::{Effect, Error, ErrorKind};
use synod_core::store::{Expect, Lifetime, Outcome, Query, Txn};
use tokio::time::timeout;

use crate::peer::Peer;
use crate::protocol::{Request, code, op};
use crate::scene::{LONG, PATIENCE, count, create, done, make, open, panics, path, peer, recovers};
use crate::script::{Deed, Rule};
use crate::tree::Write;

/// The faults of an answer to a request, and of the request.
fn deeds() -> Vec<Deed> {
    vec![
        Deed::CloseBefore,
        Deed::CloseAfter,
        Deed::Mute,
        Deed::Twice,
        Deed::Misnumber,
        Deed::Garble,
        Deed::Halve,
        Deed::Refuse(code::NO_AUTH),
        Deed::Refuse(code::THROTTLED),
        Deed::Refuse(-9_999),
        Deed::Deny(-4),
        Deed::Deny(-9_999),
        Deed::Deny(code::SESSION_MOVED),
    ]
}

/// A client waits two fifths of it for an answer before it connects again.
const SHORT: Duration = Duration::from_secs(6);

/// A kind of write, and the number of the request that carries it.
type Kind = (&'static str, i32, fn(&str) -> Txn);

const KINDS: [Kind; 6] = [
    ("create", op::CREATE_2, |dir| create(&format!("{dir}/new"), "x")),
    ("set", op::SET_DATA, |dir| Txn::new().set(path(&format!("{dir}/old")), "x", Expect::Any)),
    ("delete", op::DELETE, |dir| Txn::new().delete(path(&format!("{dir}/old")), Expect::Any)),
    ("several", op::MULTI, |dir| {
        let txn = create(&format!("{dir}/new"), "x");
        txn.set(path(&format!("{dir}/old")), "x", Expect::Any)
    }),
    ("ticket", op::CREATE_2, |dir| ticket(dir)),
    ("parent", op::CREATE_CONTAINER, |dir| create(&format!("{dir}/deep/new"), "x")),
];

pub(crate) fn ticket(dir: &str) -> Txn {
    let look = Query::children(path(dir)).names_only();
    Txn::new().create_sequential(path(&format!("{dir}/t-")), "x", Lifetime::Session).look(look)
}

/// The number of transactions that wrote the node of this test below a directory.
pub(crate) fn times(peer: &Peer, dir: &str) -> usize {
    let world = peer.world();
    let ours = |write: &Write| match write {
        Write::Create { path, data, .. } | Write::Set { path, data, .. } => {
            path.starts_with(dir) && data == b"x"
        }
        Write::Delete { path } => path.ends_with("/old") && path.starts_with(dir),
    };
    world.log.iter().filter(|entry| !entry.closes && entry.writes.iter().any(ours)).count()
}

/// Checks the reported result of a write against the number of times that it was applied.
pub(crate) fn agrees(said: &Result<Outcome, Error>, times: usize) -> bool {
    match said {
        Ok(Outcome::Committed(_)) => times == 1,
        Ok(_) => times == 0,
        Err(error) if error.effect() == Effect::None => times == 0,
        Err(_) => times <= 1,
    }
}

pub(crate) async fn nothing_is_said_of_a_write_that_is_not_so() {
    let peer = peer(1);
    // Each kind separately; they wait more than they compute.
    join_all(KINDS.into_iter().map(|kind| of_kind(&peer, kind))).await;
    assert_eq!(panics(), [""; 0]);
}

async fn of_kind(peer: &Peer, (what, number, txn): Kind) {
    for (round, deed) in deeds().into_iter().enumerate() {
        let (dir, store) = (format!("/effects/{what}{round}"), open(peer, SHORT).await);
        done(&*store, create(&format!("{dir}/old"), "")).await;
        let session = store.session().id.get();
        peer.when(Rule::new(deed.clone()).op(number).of(session));

        let said = timeout(PATIENCE, store.commit(txn(&dir))).await.expect("it ends");
        recovers(&*store).await;

        assert_eq!(peer.world().script.played(session), 1, "{what} {deed:?}");
        let times = times(peer, &dir);
        assert!(agrees(&said, times), "{what} {deed:?}: done {times} times, and {said:?}");
        store.close().await.expect("it is closed");
    }
}

/// Servers before 3.6 have no containers that synod could use, and those without extended types no
/// times to live.
pub(crate) async fn what_a_server_does_not_know_is_unsupported() {
    let peer = peer(1);
    peer.change(|world| world.servers[0].extended = false);
    let store = open(&peer, LONG).await;
    let ttl = Lifetime::Ttl(LONG);
    let said = store.commit(Txn::new().create(path("/ttl"), "", ttl)).await;
    assert_eq!(said.expect_err("it is not known").kind(), ErrorKind::Unsupported);

    // A new session on that server expects the refusal.
    let other = open(&peer, LONG).await;
    let said = other.commit(Txn::new().create(path("/ttl"), "", ttl)).await;
    let error = said.expect_err("it is not known");
    assert!(error.to_string().contains("extendedTypesEnabled"), "{error}");

    peer.change(|world| world.servers[0].unknown.insert(op::CREATE_CONTAINER));
    let said = timeout(PATIENCE, store.commit(create("/a/b", ""))).await.expect("it ends");
    let error = said.expect_err("there can be no directory");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unsupported, Effect::None));
    done(&*store, create("/plain", "")).await;
}

/// Most servers do not return the stat of a node that a transaction of several creates: the backend
/// computes it from the revision.
pub(crate) async fn what_a_transaction_creates_has_its_stat() {
    for shows_births in [false, true] {
        has_its_stat(shows_births).await;
    }
}

async fn has_its_stat(shows_births: bool) {
    let peer = peer(1);
    peer.change(|world| world.servers[0].shows_births = shows_births);
    let store = open(&peer, LONG).await;
    done(&*store, create("/stat/old", "")).await;
    let creates = |dir: &str| {
        Txn::new().create(path(&format!("{dir}/kept")), "x", Lifetime::Persistent).create(
            path(&format!("{dir}/owned")),
            "x",
            Lifetime::Session,
        )
    };
    // The answer to a write has the revision; without a write, the node that the session owns is
    // read for it.
    let beside_a_write = creates("/stat").set(path("/stat/old"), "x", Expect::Any);
    let owned_first = Txn::new().create(path("/first/owned"), "x", Lifetime::Session).create(
        path("/first/kept"),
        "x",
        Lifetime::Persistent,
    );
    for dir in ["/alone", "/first"] {
        done(&*store, create(dir, "")).await;
    }
    // The stat of this kind is always returned.
    let expiring = Txn::new().create(path("/stat/ttl"), "", Lifetime::Ttl(LONG * 100));
    done(&*store, expiring.create(path("/stat/too"), "", Lifetime::Persistent)).await;
    let asked = count(&peer, &*store, &[op::EXISTS]);
    for txn in [beside_a_write, creates("/alone"), owned_first] {
        let commit = store.commit(txn).await.expect("the peer answers").required().expect("so");
        assert!(commit.revision.is_some());
        for done in commit.results.iter().filter(|done| done.path != path("/stat/old")) {
            let owner = done.path.as_str().ends_with("owned").then(|| store.session().id);
            let view = store.read(Query::node(done.path.clone())).await.expect("the peer answers");
            assert_eq!(done.stat, view.node().expect("it is there").stat, "{}", done.path);
            assert_eq!(done.stat.expect("just so").owner, owner, "{}", done.path);
        }
    }
    // After the first answer with a stat, none is requested.
    assert_eq!(asked(), if shows_births { 0 } else { 2 });
}

/// Another client creates the missing directory after it was found missing, and before the
/// transaction arrives.
pub(crate) async fn a_directory_that_is_created_meanwhile_is_used() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    let session = store.session().id.get();
    // The first request is refused, because the directory is missing.
    peer.when(Rule::new(Deed::Proceed).op(op::MULTI).of(session));
    let meanwhile = Deed::Meanwhile(vec![make("/dir"), make("/dir/below")]);
    peer.when(Rule::new(meanwhile).op(op::MULTI).of(session));

    done(&*store, create("/dir/below/a", "x").create(path("/dir/b"), "x", Lifetime::Persistent))
        .await;

    assert_eq!((times(&peer, "/dir"), peer.world().script.played(session)), (1, 1));
}

/// A malformed answer is an error of its call, and the next call is answered.
pub(crate) async fn a_malformed_answer_is_an_error() {
    let peer = peer(1);
    let store = open(&peer, SHORT).await;
    done(&*store, create("/malformed/a", "")).await;
    let queries = [
        Query::node(path("/malformed/a")),
        Query::until_gone(path("/malformed/a")),
        Query::children(path("/malformed")),
        Query::children(path("/malformed")).names_only(),
        Query::subtree(path("/malformed")),
    ];
    for query in queries {
        for number in [op::GET_DATA, op::GET_CHILDREN, op::GET_CHILDREN_2, op::MULTI_READ] {
            peer.when(Rule::new(Deed::Garble).op(number).at("/malformed"));
            let read = timeout(PATIENCE, store.read(query.clone())).await.expect("it ends");
            let seen = timeout(PATIENCE, store.watch(query.clone())).await.expect("it ends");
            if let (Ok(_), Ok(_)) = (read, seen) {
                // No request of that kind was sent.
                peer.change(|world| world.script.calm());
            }
            recovers(&*store).await;
        }
    }
    assert!(peer.world().script.played(store.session().id.get()) >= 5, "it read otherwise");
    assert_eq!(panics(), [""; 0]);
}

/// A container whose only node is deleted is replaced in the same transaction.
pub(crate) async fn a_directory_that_is_emptied_gives_way_to_a_node() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    done(&*store, create("/box/a", "")).await;
    done(&*store, create("/box/b", "")).await;
    let node = || create("/box", "node");

    let half = node().delete(path("/box/a"), Expect::Any);
    let said = store.commit(half).await.expect("it answers");
    assert!(said.rejected().is_some(), "there is a node below");

    let all = Txn::new().delete(path("/box/a"), Expect::Any).delete(path("/box/b"), Expect::Any);
    done(&*store, all.create(path("/box"), "node", Lifetime::Persistent)).await;
    let view = store.read(Query::subtree(path("/box"))).await.expect("it answers");
    let nodes: Vec<&str> = view.nodes.iter().map(|node| node.path.as_str()).collect();
    assert_eq!(nodes, ["/box"]);
}

/// A node of another client, whose access list permits only this.
fn permitting(at: &str, permissions: i32) -> Request {
    let acl = vec![(permissions, "world".to_owned(), "anyone".to_owned())];
    let (path, data) = (at.to_owned(), b"made".to_vec());
    Request::Create { op: op::CREATE_2, path, data, acl, flags: 0, ttl: 0 }
}

/// A request that the access list of a node does not permit is refused as such.
pub(crate) async fn what_is_not_permitted_is_denied() {
    const READ: i32 = 1;
    const WRITE: i32 = 2;

    let peer = peer(1);
    let store = open(&peer, LONG).await;
    done(&*store, create("/denied/kept", "")).await;
    let nodes = [permitting("/denied/read", READ), permitting("/denied/write", WRITE)];
    peer.change(|world| world.write(&nodes)).expect("nothing is against it");

    let set = Txn::new().set(path("/denied/read"), "x", Expect::Any);
    let said = store.commit(set).await.expect_err("it may not be written");
    assert_eq!((said.kind(), said.effect()), (ErrorKind::Denied, Effect::None), "{said}");
    for query in [Query::children(path("/denied")), Query::subtree(path("/denied"))] {
        let said = store.read(query).await.expect_err("one may not be read");
        assert_eq!(said.kind(), ErrorKind::Denied, "{said}");
        let unreadable = said.path().map(|path| path.as_str().to_owned());
        assert_eq!(unreadable.as_deref(), Some("/denied/write"), "the node, and not its directory");
    }
}
