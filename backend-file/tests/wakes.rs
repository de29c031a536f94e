//! The wake of an observer in another seat: by the filter of what it watches, and not by the tick
//! that finds changes once a second.

use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use synod_core::clock;
use synod_core::path::Path;
use synod_core::store::{
    Backend as _, Event, Expect, Lifetime, Query, SessionOptions, Store, Txn, Watch,
};
use synod_file::{FileBackend, FileOptions};
use synod_servers::home::Home;

/// The number of changes that would take one tick each if no seat was woken.
const CHANGES: u64 = 60;

/// Less than the ticks take, and far more than the wakes.
const LIMIT: Duration = Duration::from_secs(45);

/// Opens a session in a seat of its own.
async fn open(directory: &FilePath) -> Box<dyn Store> {
    let options = FileOptions::new(directory).separate(true);
    let ttl = SessionOptions::new(Duration::from_secs(60));
    FileBackend::new(options).open(&ttl).await.expect("the directory is there")
}

/// A directory that only its owner may enter.
fn at(home: &Home) -> PathBuf {
    home.path().join("store")
}

fn path(text: &str) -> Path {
    Path::new(text).expect("valid")
}

async fn create(store: &dyn Store, at: &Path) {
    let created = Txn::new().create(at.clone(), "", Lifetime::Session);
    store.commit(created).await.expect("answered").ok().expect("it is free");
}

async fn delete(store: &dyn Store, at: &Path) {
    let deleted = Txn::new().delete(at.clone(), Expect::Any);
    store.commit(deleted).await.expect("answered").ok().expect("it is there");
}

/// Waits for a change of the node.
async fn observe(watch: &mut Watch, at: &Path) {
    loop {
        match watch.next().await.expect("the session lives") {
            Event::Changed(change) if change.path == *at => return,
            _ => {}
        }
    }
}

/// Two seats pass changes to and fro: each waits for that of the other.
async fn alternate(of_query: impl Fn(Path) -> Query) {
    let home = Home::in_memory("wakes").expect("a directory can be created");
    let (one, other) = (open(&at(&home)).await, open(&at(&home)).await);
    let rounds = async {
        for round in 0..CHANGES / 2 {
            let (there, back) = (format!("/at/there-{round}"), format!("/at/back-{round}"));
            let (there, back) = (path(&there), path(&back));
            // Added just before the change: its bits are new ones.
            let (_view, mut observed) = other.watch(of_query(there.clone())).await.expect("read");
            let (_view, mut returned) = one.watch(of_query(back.clone())).await.expect("read");
            create(&*one, &there).await;
            observe(&mut observed, &there).await;
            create(&*other, &back).await;
            observe(&mut returned, &back).await;
            delete(&*one, &there).await;
            observe(&mut observed, &there).await;
        }
    };
    clock::timeout(LIMIT, rounds).await.expect("woken, and not found by a tick");
}

#[tokio::test]
async fn a_seat_is_woken_for_the_nodes_that_it_watches() {
    alternate(Query::node).await;
}

#[tokio::test]
async fn a_seat_is_woken_for_children_and_subtrees() {
    alternate(|at| Query::children(at.parent().expect("not the root"))).await;
    alternate(|at| Query::subtree(at.parent().expect("not the root"))).await;
    alternate(|_| Query::subtree(Path::root())).await;
}

#[tokio::test]
async fn a_seat_with_many_watches_is_woken_for_each_of_them() {
    let home = Home::in_memory("wakes").expect("a directory can be created");
    let (writer, observer) = (open(&at(&home)).await, open(&at(&home)).await);
    let mut watches = Vec::new();
    for number in 0..2_000 {
        let at = path(&format!("/many/{number}"));
        watches.push((at.clone(), observer.watch(Query::node(at)).await.expect("read").1));
    }
    let rounds = async {
        for (at, watch) in watches.iter_mut().step_by(40) {
            create(&*writer, at).await;
            observe(watch, at).await;
        }
    };
    clock::timeout(LIMIT, rounds).await.expect("woken, and not found by a tick");
}
