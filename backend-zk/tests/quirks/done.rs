//! The effect of a write, and the backend's report of it.

use std::time::Duration;

use synod_core::client::{Client, ClientOptions};
use synod_core::error::ErrorKind;
use synod_core::store::{Expect, Lifetime, Query, RejectReason, SessionOptions, Txn};
use synod_recipes::lock::Mutex;
use synod_servers::counter::Counter;
use synod_zk::{Access, ZkBackend};
use tokio::time::{Instant, sleep};
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};

use super::{PATIENCE, TICK, done, names, open, options, path, refused, server, session, there};

/// A client may create and delete in a directory, but not list it: the ticket is created, and the
/// follow-up read is refused.
pub(super) async fn a_commit_whose_look_is_refused_is_done() {
    let address = server().addresses()[0].to_string();
    let raw = zookeeper_client::Client::connect(&address).await.expect("a server runs");
    raw.auth("digest", b"owner:password").await.expect("it is known");
    let rights = [
        Acl::new(Permission::CREATE | Permission::DELETE, AuthId::anyone()),
        // Without this right, a newer server refuses the number of children, too.
        Acl::new(Permission::READ, AuthId::authed()),
    ];
    let blind = CreateMode::Persistent.with_acls(Acls::new(&rights));
    raw.create("/blind", b"", &blind).await.expect("it is new");
    let count = async || {
        let stat = raw.check_stat("/blind").await.expect("answers");
        stat.expect("it is there").num_children
    };
    let store = session().await;
    let draw = Txn::new().create_sequential(path("/blind/t-"), "", Lifetime::Session);
    let draw = draw.look(Query::children(path("/blind")).names_only());

    let commit = done(&*store, draw).await;
    assert!(commit.look.is_none(), "{commit:?}");
    assert!(there(&*store, commit.results[0].path.as_str()).await);

    // A lock that cannot list fails, and its ticket is deleted.
    let backend = ZkBackend::new(options(server().addresses()).access(Access::Open));
    let long = ClientOptions::default().session(SessionOptions::new(Duration::from_secs(60)));
    let client = Client::open(backend.expect("valid"), long).await.expect("a server runs");
    let error = Mutex::new(&client, path("/blind")).lock().await.expect_err("it may not look");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let end = Instant::now() + PATIENCE;
    while count().await > 1 {
        assert!(Instant::now() < end, "a ticket is left");
        sleep(TICK).await;
    }
}

/// The server's counter stops at its last number: every later ticket would get the same one.
pub(super) async fn a_counter_that_is_at_its_end_gives_no_ticket() {
    const END: u32 = i32::MAX.unsigned_abs();

    let server = Counter::start().expect("the other one started, too");
    let store = open(options([server.address()]).access(Access::Open)).await;
    let draw = || Txn::new().create_sequential(path("/ends/t-"), "", Lifetime::Session);
    let first = done(&*store, draw()).await.results[0].path.clone();

    let look = || Query::children(path("/ends")).names_only();
    // Just before the reserve, in the reserve, and where the counter no longer rises.
    for (next, given) in [(END - (1 << 20), 1), (END - 100, 0), (END - 1, 0), (END, 0)] {
        server.bring("/ends", next).expect("it runs");
        for _ in 0..given {
            done(&*store, draw()).await;
        }
        for _ in 0..3 {
            assert_eq!(refused(&*store, draw()).await, RejectReason::SequenceExhausted, "{next}");
            assert_eq!(
                refused(&*store, draw().look(look())).await,
                RejectReason::SequenceExhausted
            );
            let beside = Txn::new().create(path("/ends/n"), "", Lifetime::Persistent);
            let both = beside.create_sequential(path("/ends/t-"), "", Lifetime::Session);
            assert_eq!(refused(&*store, both).await, RejectReason::SequenceExhausted);
        }
    }
    assert_eq!(names(&*store, "/ends").await.len(), 2, "what was refused is not there");
    done(&*store, Txn::new().delete(&first, Expect::Any)).await;
}
