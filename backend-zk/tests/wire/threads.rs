//! Several threads: an answer may arrive before its call waits for it. L-OUT-5, L-OUT-8.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use synod_core::store::Query;
use synod_core::task::spawn;

use crate::peer::Peer;
use crate::scene::{LONG, PATIENCE, create, open, panics, path};

/// Observing and locking on threads while other threads deliver the answers: an answer may arrive
/// before its call waits for it.
pub(crate) fn immediate_answers_block_no_thread() {
    let (over, ended) = std::sync::mpsc::channel();
    let _thread = std::thread::spawn(move || {
        let mut built = tokio::runtime::Builder::new_multi_thread();
        let runtime = built.worker_threads(2).enable_all().build().expect("it starts");
        runtime.block_on(at_once());
        let _told = over.send(()).is_ok();
        runtime.shutdown_background();
    });
    ended.recv_timeout(PATIENCE * 2).expect("a thread waits for itself");
    assert_eq!(panics(), [""; 0]);
}

async fn at_once() {
    let peer = Arc::new(Peer::start(1).expect("there are ports"));
    let whole = Arc::new(AtomicUsize::new(0));
    let mut busy: Vec<_> = (0..4).map(|_| spawn(laps(peer.clone(), whole.clone()))).collect();
    for task in &mut busy {
        task.finished().await;
    }
    assert_eq!(whole.load(Ordering::Relaxed), busy.len(), "one has panicked");
}

async fn laps(peer: Arc<Peer>, whole: Arc<AtomicUsize>) {
    const LAPS: usize = 500;

    let store = open(&peer, LONG).await;
    let _is_there = store.commit(create("/once/there", "")).await.expect("the peer answers");
    for lap in 0..LAPS {
        let there = Query::until_gone(path("/once/there"));
        let (_view, _watch) = store.watch(there).await.expect("the peer answers");
        let none = Query::until_gone(path("/once/none"));
        let (view, _watch) = store.watch(none).await.expect("the peer answers");
        assert!(view.node().is_none(), "{lap}");
        let names = Query::children(path("/once")).names_only();
        let (_names, _watch) = store.watch(names).await.expect("the peer answers");
        let tree = Query::subtree(path("/once"));
        let (_tree, _watch) = store.watch(tree).await.expect("the peer answers");
    }
    whole.fetch_add(1, Ordering::Relaxed);
}
