//! synod as a racer: at the floor, and through the door.

use std::sync::Arc;

use async_trait::async_trait;
use synod::client::Client;
use synod::path::Path;
use synod::store::{Expect, Lifetime, Outcome, Query, Store, Txn};

use crate::race::{Racer, Work};

/// What is written.
pub const DATA: &[u8] = &[b'x'; 100];

/// How many lanes have a node.
const LANES: usize = 64;

/// A session at the floor: no layers, no retries.
#[derive(Debug)]
pub struct Floor(Arc<dyn Store>);

/// A client, as applications hold it.
#[derive(Debug)]
pub struct Door(Client);

impl Floor {
    /// Races on this session, and makes the nodes that all racers work on.
    ///
    /// # Panics
    ///
    /// If the store does not do what it should.
    pub async fn prepare(store: Box<dyn Store>) -> Self {
        let dirs = ["/bench", "/bench/nodes", "/bench/made"].map(path);
        for node in dirs.into_iter().chain((0..LANES).map(node)) {
            let txn = Txn::new().create(node, DATA, Lifetime::Persistent);
            done(&store.commit(txn).await.expect("the server answers"));
        }
        Self(Arc::from(store))
    }

    async fn commit(&self, txn: Txn) {
        done(&self.0.commit(txn).await.expect("the server answers"));
    }

    async fn get(&self, query: Query) {
        let view = self.0.read(query).await.expect("the server answers");
        assert!(view.node().is_some(), "it was made");
    }
}

impl Door {
    /// Races with this client, on nodes that are there.
    pub fn new(client: Client) -> Self {
        Self(client)
    }
}

#[async_trait]
impl Racer for Floor {
    async fn run(&self, work: Work, lane: usize, laps: usize) {
        let (node, made) = (node(lane), made(lane));
        for _ in 0..laps {
            match work {
                Work::GetLocal => self.get(Query::node(&node).local()).await,
                Work::Get => self.get(Query::node(&node)).await,
                Work::Set => {
                    self.commit(Txn::new().set(&node, DATA, Expect::Any)).await;
                }
                Work::CreateDelete => {
                    self.commit(Txn::new().create(&made, DATA, Lifetime::Session)).await;
                    self.commit(Txn::new().delete(&made, Expect::Any)).await;
                }
            }
        }
    }
}

#[async_trait]
impl Racer for Door {
    async fn run(&self, work: Work, lane: usize, laps: usize) {
        let (node, made, client) = (node(lane), made(lane), &self.0);
        for _ in 0..laps {
            match work {
                Work::GetLocal => {
                    let found = client.get_local(&node).await.expect("the server answers");
                    assert!(found.is_some(), "it was made");
                }
                Work::Get => {
                    let found = client.get(&node).await.expect("the server answers");
                    assert!(found.is_some(), "it was made");
                }
                Work::Set => {
                    let set = client.set(&node, DATA, Expect::Any).await;
                    done(&set.expect("the server answers"));
                }
                Work::CreateDelete => {
                    let created = client.create(&made, DATA, Lifetime::Session).await;
                    done(&created.expect("the server answers"));
                    let deleted = client.delete(&made, Expect::Any).await;
                    done(&deleted.expect("the server answers"));
                }
            }
        }
    }
}

fn done<T>(outcome: &Outcome<T>) {
    assert!(matches!(outcome, Outcome::Committed(_)), "nobody else is there");
}

/// The node that a lane reads and writes.
pub fn node(lane: usize) -> Path {
    path(&format!("/bench/nodes/{lane}"))
}

/// The node that a lane makes and deletes.
pub fn made(lane: usize) -> Path {
    path(&format!("/bench/made/{lane}"))
}

fn path(text: &str) -> Path {
    Path::new(text).expect("valid")
}
