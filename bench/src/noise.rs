//! [`Noise`]: background writes that are unrelated to the measurement.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::try_join_all;
use synod::client::Client;
use synod::path::Path;
use synod::store::{Expect, Lifetime};
use tokio::task::JoinSet;
use tokio::time::interval;

use crate::racer::Failure;
use crate::stand::{SESSION, Server};

/// The number of concurrent writes, and the pause: a thousand a second.
const BURST: usize = 10;
const PAUSE: Duration = Duration::from_millis(10);

/// Writes to a server until it is dropped.
#[derive(Debug)]
pub struct Noise {
    _writing: JoinSet<Result<(), Failure>>,
}

impl Noise {
    /// Starts to write.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached.
    pub async fn start(server: Server, address: SocketAddr) -> Result<Self, Failure> {
        let client = synod::connect(&server.url(&address.to_string(), SESSION)).await?;
        let nodes = (0..BURST).map(|node| Path::new(&format!("/noise/{node}")));
        let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        for node in &nodes {
            // It may exist from an earlier run.
            let _there = client.create(node, "", Lifetime::Persistent).await?;
        }
        let mut writing = JoinSet::new();
        writing.spawn(write(client, nodes));
        Ok(Self { _writing: writing })
    }
}

async fn write(client: Client, nodes: Vec<Path>) -> Result<(), Failure> {
    // Writes that are late are made up for.
    let mut next = interval(PAUSE);
    loop {
        next.tick().await;
        try_join_all(nodes.iter().map(|node| client.set(node, "noise", Expect::Any))).await?;
    }
}
