//! A service whose configuration changes while it runs, on the store that the environment names.
//!
//! ```text
//! cargo run --example live_config
//! SYNOD_STORE=zk://localhost:2181/app cargo run --features zookeeper --example live_config
//! ```
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use serde::{Deserialize, Serialize};
use synod::{Client, Expect, Path, Query, Result};

#[derive(Debug, Serialize, Deserialize, PartialEq)]
struct Limits {
    requests_per_second: u32,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = std::env::var("SYNOD_STORE").unwrap_or_else(|_| "mem://".to_owned());
    let client = synod::connect(&url).await?;
    let path = Path::new("/config/limits")?;
    publish(&client, &path, 100).await?;

    // The current value, then an event whenever it may have changed.
    let (_view, mut changes) = client.watch(Query::node(&path)).await?;
    for limit in [200, 300] {
        publish(&client, &path, limit).await?;
        changes.next().await.expect("the client is open");
        let limits = client.get_value::<Limits>(&path).await?.expect("it was published");
        println!("now {} requests a second", limits.value.requests_per_second);
    }

    let left = client.delete(&path, Expect::Any).await?;
    assert!(left.committed().is_some());
    client.close().await
}

/// Writes the limits, whether or not there are any yet.
async fn publish(client: &Client, path: &Path, requests_per_second: u32) -> Result<()> {
    let limits = Limits { requests_per_second };
    if client.set_value(path, &limits, Expect::Any).await?.committed().is_some() {
        return Ok(());
    }
    client.create_value(path, &limits, synod::Lifetime::Persistent).await?.required()?;
    Ok(())
}
