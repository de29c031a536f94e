//! Backends of other crates, by their URLs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use synod::mem::MemBackend;
use synod::{Config, ErrorKind, Lifetime, Path, Query, Result, Txn};
use synod_core::store::{Backend, SessionOptions, Store};

/// A backend as another crate would write it, around memory.
#[derive(Debug)]
struct Foreign {
    memory: MemBackend,
    opened: Arc<AtomicUsize>,
}

#[async_trait]
impl Backend for Foreign {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        self.memory.open(options).await
    }
}

fn path(text: &str) -> Path {
    Path::new(text).expect("valid")
}

#[tokio::test]
async fn a_registered_store_is_reached_by_its_url() {
    let beside = MemBackend::named("registered");
    let opened = Arc::new(AtomicUsize::new(0));
    let counted = opened.clone();
    let said = Arc::new(Mutex::new(None));
    let heard = said.clone();
    synod::register("foreign+v1", move |opening| {
        let seen = (
            opening.hosts().to_vec(),
            opening.credentials().map(|credentials| credentials.user.clone()),
            opening.parameter("colour").map(str::to_owned),
        );
        *heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
        let memory = MemBackend::named("registered");
        Ok(Arc::new(Foreign { memory, opened: counted.clone() }))
    })
    .expect("a new scheme");

    let url = "foreign+v1://ann:canary-7f3a@a:1,b:name/app?colour=light%20blue&session=5s";
    let client = synod::connect(url).await.expect("it is registered");
    let create = Txn::new().create(path("/n"), "x", Lifetime::Persistent);
    client.commit(create).await.expect("answered").required().expect("nothing is there");
    client.close().await.expect("it is open");

    assert_eq!(opened.load(Ordering::SeqCst), 1);
    let said = said.lock().unwrap_or_else(PoisonError::into_inner).take();
    let hosts = vec!["a:1".to_owned(), "b:name".to_owned()];
    assert_eq!(said, Some((hosts, Some("ann".to_owned()), Some("light blue".to_owned()))));
    // The path of the URL is the namespace, as with every store.
    let session = beside.open(&SessionOptions::default()).await.expect("memory opens");
    let view = session.read(Query::node(path("/app/n"))).await.expect("answered");
    assert!(view.node().is_some(), "{view:?}");
    let config = Config::new(url).expect("valid");
    assert!(!format!("{config:?}").contains("canary"));
}

#[test]
fn what_a_registered_store_does_not_ask_for_is_refused() {
    synod::register("foreign-plain", |opening| {
        let _size = opening.parameter("size");
        Ok(Arc::new(MemBackend::new()))
    })
    .expect("a new scheme");

    let opens = |url: &str| Config::new(url).and_then(|config| config.backend());
    opens("foreign-plain://").expect("nothing is said");
    opens("foreign-plain:///app?size=3").expect("all of it is asked for");
    let table = [
        ("foreign-plain://?colour=blue", "knows no parameter \"colour\"; it knows session"),
        ("foreign-plain://host", "has no hosts"),
        ("foreign-plain://u:canary-7f3a@", "knows no users"),
        ("foreign-plain://?ca=x.pem", "does not use TLS"),
    ];
    for (url, why) in table {
        let error = opens(url).expect_err(url);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        assert!(error.to_string().contains(why), "{url}: {error}");
        assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
    }
}

#[test]
fn a_scheme_is_registered_once_and_never_one_of_synod() {
    let register = |scheme: &str| synod::register(scheme, |_| Ok(Arc::new(MemBackend::new())));
    register("foreign-once").expect("a new scheme");
    for scheme in ["foreign-once", "mem", "zk", "zks", "etcd", "etcds", "", "Upper", "1st", "a b"] {
        let error = register(scheme).expect_err(scheme);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{scheme}: {error}");
    }
    let error = Config::new("foreign-none://").expect_err("it is not registered");
    assert!(error.to_string().contains("this program adds"), "{error}");
    assert!(error.to_string().contains("foreign-once://"), "{error}");
}
