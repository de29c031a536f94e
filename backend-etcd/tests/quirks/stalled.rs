//! A leader whose disk stalls, while its process and its connections work.

use std::time::Duration;

use etcd_client::Client;
use synod_core::store::{Backend as _, Expect, Lifetime, Query, SessionOptions, Txn};
use synod_etcd::{EtcdBackend, EtcdOptions};
use synod_servers::etcd::Flavour;
use synod_testkit::limit::waits_for;
use tokio::time::{Instant, timeout};

use crate::world::{World, create, next, path};

/// Its leader renews leases from memory, even while the next leader expires them.
pub(crate) async fn no_session_is_certain_of_what_the_next_leader_has_ended() {
    const TTL: Duration = Duration::from_secs(3);
    let mut flavour = Flavour::default();
    flavour.fsync = true;
    let world = World::new(3, &flavour);
    let leader = world.cluster.leader().expect("one leads");
    let mut others = world.hosts();
    let first = others.remove(leader);
    let session = async |hosts: Vec<String>| {
        let backend = EtcdBackend::new(EtcdOptions::new(hosts)).expect("valid");
        backend.open(&SessionOptions::new(TTL)).await.expect("a session is opened")
    };
    let (ann, bob) = (session(vec![first.clone()]).await, session(others).await);
    create(&*ann, "/n", Lifetime::Persistent).await;
    create(&*ann, "/e", Lifetime::Session).await;
    let waiting = bob.watch(Query::until_gone(path("/e"))).await;
    let (_view, mut watch) = waiting.expect("answered");

    // Nothing is left to be written to the database, which would keep reads waiting as well.
    let client = Client::connect([first], None).await.expect("valid");
    client.maintenance_client().hash().await.expect("answered");
    let _stalled = world.cluster.stall(leader).expect("it runs");
    // The leader stalls when it has something to write.
    let stalling = ann.commit(Txn::new().set(path("/n"), "y", Expect::Any));
    let _none = timeout(TTL / 10, stalling).await;
    waits_for("the end of the session at the next leader");
    let began = Instant::now();
    next(&mut watch).await;

    let status = *ann.status().borrow();
    assert!(!status.is_certain(), "{status:?}, {:?} after the stall", began.elapsed());
}
