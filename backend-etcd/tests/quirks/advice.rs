//! The error texts for mistakes of a user, and when they appear.

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use etcd_client::{Txn as Request, TxnOp};
use futures_util::future::{Either, select};
use synod_core::client::{Client, ClientOptions};
use synod_core::error::{Effect, Error, ErrorKind};
use synod_core::store::{Expect, Lifetime, Query, SessionOptions, Store, Txn};
use synod_etcd::{EtcdBackend, EtcdOptions, Tls};
use synod_servers::etcd::Flavour;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

use crate::certificates::Certificates;
use crate::full::{make_room, small};
use crate::secure::guarded;
use crate::world::{World, create, open, path};

/// The limit of any call here.
const LIMIT: Duration = Duration::from_secs(3);

/// Awaits a call that must fail in time, with an error that contains all of these texts. `more` is
/// how much longer a busy machine may take.
async fn fails<T>(
    work: impl Future<Output = Result<T, Error>>,
    (kind, effect): (ErrorKind, Effect),
    says: &[&str],
) {
    let more = LIMIT * 5;
    let done = timeout(LIMIT + more, work).await.expect("every call comes to an end");
    let error = done.err().expect("it cannot be done");
    // The client's own text is about its deadline; the last error of the store is the cause.
    let mut shown = error.to_string();
    let mut cause = StdError::source(&error);
    while let Some(error) = cause.and_then(|cause| cause.downcast_ref::<Error>()) {
        shown = format!("{shown}: {error}");
        cause = StdError::source(error);
    }
    assert_eq!((error.kind(), error.effect()), (kind, effect), "{shown}");
    for word in says {
        assert!(shown.contains(word), "{word:?} is not in {shown:?}");
    }
    assert!(!format!("{shown} {error:?}").contains("canary"), "{shown}");
}

const UNREACHABLE: (ErrorKind, Effect) = (ErrorKind::Unreachable, Effect::None);
const DENIED: (ErrorKind, Effect) = (ErrorKind::Denied, Effect::None);

fn at(host: &(impl ToString + ?Sized)) -> EtcdOptions {
    EtcdOptions::new([host.to_string()]).timeout(LIMIT)
}

fn options(world: &World) -> EtcdOptions {
    world.options().timeout(LIMIT)
}

fn nobody() -> SocketAddr {
    let ports = synod_servers::ports::Ports::draw(1).expect("one is free");
    ([127, 0, 0, 1], ports[0]).into()
}

pub(crate) async fn where_no_server_is_is_said() {
    let nobody = nobody();
    let says = [&nobody.to_string(), "refuses connections: does etcd run there?"];
    fails(open(at(&nobody)), UNREACHABLE, &says).await;

    // The caller of a client gets the error when its deadline is over.
    let patient = ClientOptions::default().connect_timeout(LIMIT);
    let backend = EtcdBackend::new(at(&nobody)).expect("valid");
    fails(Client::open(backend, patient), UNREACHABLE, &says).await;
}

pub(crate) async fn an_unknown_host_name_is_reported() {
    fails(open(at("synod.invalid")), UNREACHABLE, &["synod.invalid:2379 is not known"]).await;
    for wrong in ["http://localhost", "localhost:2379/app", ""] {
        fails(open(at(wrong)), (ErrorKind::Invalid, Effect::None), &["host:port"]).await;
    }
}

pub(crate) async fn a_server_that_is_not_etcd_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let says = [&address.to_string(), "is it etcd?"];
    let other = async {
        loop {
            let (mut guest, _) = listener.accept().await.expect("a client connects");
            let _asked = guest.read(&mut [0; 1_000]).await;
            let _answered = guest.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    };
    let asking = fails(open(at(&address)), UNREACHABLE, &says);
    select(pin!(asking), pin!(other)).await;
}

pub(crate) async fn a_server_that_accepts_and_never_answers_is_reported() {
    // The operating system accepts connections, but no server answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let says = [&address.to_string(), "does not answer in time"];
    fails(open(at(&address)), UNREACHABLE, &says).await;
}

pub(crate) async fn tls_where_there_is_none_is_said() {
    let world = World::alone();
    let says = [&world.hosts()[0], "does it talk TLS"];
    fails(open(options(&world).tls(Tls::new())), UNREACHABLE, &says).await;
}

pub(crate) async fn what_certificates_lack_is_said() {
    let certificates = Certificates::new();
    let world = World::new(1, &certificates.flavour(true));
    let host = &*world.hosts()[0];
    let trusted = certificates.trusted();
    let table = [
        (None, ["does it talk TLS, and is it etcd?", host]),
        (Some(Tls::new()), ["an authority that is not trusted", host]),
        (Some(trusted.clone()), ["did it get the certificate that it may want?", host]),
        (Some(trusted.clone().server_name("other.example")), ["other.example", host]),
    ];
    for (tls, says) in table {
        let options = options(&world);
        let options = tls.into_iter().fold(options, EtcdOptions::tls);
        fails(open(options), UNREACHABLE, &says).await;
    }
    let invalid = (ErrorKind::Invalid, Effect::None);
    let unusable = trusted.identity("no certificate", "canary, and no key");
    fails(open(options(&world).tls(unusable)), invalid, &["TLS settings cannot be used"]).await;
}

pub(crate) async fn a_denied_client_gets_the_reason() {
    let world = guarded(300).await;
    let wrong = options(&world).user("ann", "canary-wrong");
    fails(open(wrong), DENIED, &["authentication failed"]).await;

    let ann = open(options(&world).user("ann", "canary-ann")).await.expect("permitted");
    let says = ["permission denied", "no role of this user", "/other"];
    let other = || path("/other");
    fails(ann.read(Query::node(other())), DENIED, &says).await;
    fails(ann.watch(Query::subtree(other())), DENIED, &says).await;
    for txn in [
        Txn::new().create(other(), "", Lifetime::Persistent),
        Txn::new().create(other(), "", Lifetime::Ttl(LIMIT)),
        Txn::new().set(other(), "", Expect::Any),
        Txn::new().delete(other(), Expect::Any),
    ] {
        fails(ann.commit(txn), DENIED, &says).await;
    }

    // Authentication may be disabled for a while, so a password that is not needed does no harm.
    let open_to_all = World::alone();
    let needless = options(&open_to_all).user("ann", "canary-ann");
    assert!(open(needless).await.is_ok());
}

async fn set(store: &dyn Store) -> Result<(), Error> {
    let outcome = store.commit(Txn::new().set(path("/n"), "y", Expect::Any)).await?;
    outcome.required().map(drop)
}

pub(crate) async fn a_minority_says_that_it_is_one() {
    let mut world = World::new(3, &Flavour::default());
    let backend = EtcdBackend::new(options(&world)).expect("valid");
    // Long enough to stay alive during the whole test.
    let session = SessionOptions::new(Duration::from_secs(60));
    let ann = synod_core::store::Backend::open(&backend, &session).await.expect("a majority");
    create(&*ann, "/n", Lifetime::Persistent).await;
    for member in [1, 2] {
        world.cluster.kill(member).expect("it runs");
    }

    let end = Instant::now() + Duration::from_secs(20);
    let says = ["no leader: a majority of the members must run", "refuses connections"];
    // Until the session notices, a call may have been applied.
    while set(&*ann).await.is_err_and(|error| !error.to_string().contains("no leader")) {
        assert!(Instant::now() < end, "one member alone finds that out");
    }
    fails(set(&*ann), UNREACHABLE, &says).await;
    fails(ann.read(Query::node(path("/n"))), UNREACHABLE, &says).await;
    fails(ann.watch(Query::node(path("/n"))), UNREACHABLE, &says).await;
    fails(open(options(&world)), UNREACHABLE, &says).await;

    // A local read is still answered.
    let view = ann.read(Query::node(path("/n")).local()).await.expect("it has no need of others");
    assert!(view.node().is_some());
}

/// Compacts everything but the last revision of etcd, all the time.
async fn forget(mut raw: etcd_client::Client) {
    loop {
        let put = raw.put("now", "x", None).await.expect("answered");
        let now = put.header().expect("always there").revision();
        raw.compact(now, None).await.expect("compacted");
    }
}

pub(crate) async fn what_is_forgotten_before_it_is_read_is_said() {
    let world = World::alone();
    let mut raw = world.raw().await;
    // Three pages, whose revision etcd has compacted when the second is requested.
    let keys: Vec<String> = (0..9_000).map(|number| format!("/d//n{number:05}")).collect();
    for keys in keys.chunks(128) {
        let puts: Vec<TxnOp> = keys.iter().map(|key| TxnOp::put(key.as_str(), "x", None)).collect();
        raw.txn(Request::new().and_then(puts)).await.expect("answered");
    }
    let ann = world.session(Duration::from_secs(30)).await;
    let listing = async {
        loop {
            match ann.read(Query::children(path("/d"))).await {
                Ok(view) => assert_eq!(view.nodes.len(), keys.len(), "all of it or nothing"),
                Err(error) => return error,
            }
        }
    };

    let Either::Left((error, _)) = select(pin!(listing), pin!(forget(raw))).await else {
        panic!("the compaction never stops")
    };

    assert_eq!((error.kind(), error.effect()), (ErrorKind::Backend, Effect::None), "{error}");
    for word in ["has been compacted", "have it keep more of its history", "/d"] {
        assert!(error.to_string().contains(word), "{error}");
    }
}

pub(crate) async fn a_full_store_says_how_to_go_on() {
    let world = small();
    let ann = open(options(&world)).await.expect("there is room");
    create(&*ann, "/n", Lifetime::Session).await;
    let write_on = async || {
        for number in 0..100 {
            let data = vec![0; 900_000];
            let node = path(&format!("/d/{number}"));
            let txn = Txn::new().create(node, data, Lifetime::Persistent);
            ann.commit(txn).await?.required()?;
        }
        Ok(())
    };

    // A write that is refused when the size crosses the quota may have been applied.
    let full = (ErrorKind::Backend, Effect::Unknown);
    let says = ["database space exceeded", "compact and defragment it, then disarm the alarm"];
    fails(write_on(), full, &says).await;
    fails(set(&*ann), full, &says).await;
    fails(open(options(&world)), (ErrorKind::Backend, Effect::None), &says).await;

    // Deletes continue to work, and existing nodes stay readable.
    let view = ann.read(Query::children(path("/d"))).await.expect("answered");
    for node in view.nodes {
        let deleted = ann.commit(Txn::new().delete(node.path, Expect::Any)).await;
        deleted.expect("answered").required().expect("it is there");
    }
    assert!(!ann.status().borrow().is_lost());
    make_room(&world).await;
    set(&*ann).await.expect("there is room again");
}
