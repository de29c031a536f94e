//! A view that lags is followed immediately by the events that it does not reflect, and by no older
//! view.

use synod_core::path::Path;
use synod_core::store::{
    Backend as _, Event, Expect, Lifetime, Query, Revision, SessionOptions, Store, Txn, View,
};
use synod_mem::MemBackend;

async fn written(store: &dyn Store, txn: Txn) -> Revision {
    let outcome = store.commit(txn).await.expect("memory answers");
    outcome.required().expect("nothing is against it").revision.expect("memory reports it")
}

fn modified(view: &View) -> Revision {
    view.node().and_then(|node| node.stat).expect("the node is there").modified
}

#[tokio::test]
async fn what_is_read_is_no_older_than_an_event_that_a_view_had_missed() {
    let (backend, options) = (MemBackend::new(), SessionOptions::default());
    let ann = backend.open(&options).await.expect("memory opens it");
    let bob = backend.open(&options).await.expect("memory opens it");
    let path = Path::new("/n").expect("valid");
    written(&*ann, Txn::new().create(path.clone(), "0", Lifetime::Persistent)).await;
    let local = || Query::node(path.clone()).local();
    bob.read(local()).await.expect("memory answers");

    let mut lagged = 0;
    for round in 1..=60 {
        let set = Txn::new().set(path.clone(), round.to_string(), Expect::Any);
        let newest = written(&*ann, set).await;
        let (view, mut watch) = bob.watch(local()).await.expect("memory answers");
        if modified(&view) < newest {
            lagged += 1;
            let event = watch.next().await;
            assert!(matches!(event, Some(Event::Changed(_))), "{event:?}");
            let read = bob.read(local()).await.expect("memory answers");
            assert_eq!(modified(&read), newest, "in round {round}");
        }
    }
    assert!(lagged > 0, "no view lagged");
}
