//! A service whose configuration changes while it runs, on the store that the environment names.
//!
//! ```text
//! cargo run --example live_config
//! SYNOD_STORE=zk://localhost:2181/app cargo run --features zookeeper --example live_config
//! ```
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use serde::{Deserialize, Serialize};
use synod::{Expect, Result, path};

#[derive(Debug, Serialize, Deserialize, PartialEq)]
struct Limits {
    requests_per_second: u32,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = std::env::var("SYNOD_STORE").unwrap_or_else(|_| "mem://".to_owned());
    let client = synod::connect(&url).await?;
    let path = path!("/config/limits");
    client.put_value(&path, &Limits { requests_per_second: 100 }).await?;

    // The current value, and then each change.
    let mut limits = client.follow_value::<Limits>(&path).await?;
    for requests_per_second in [200, 300] {
        client.put_value(&path, &Limits { requests_per_second }).await?;
        limits.changed().await?;
        let now = limits.current().expect("it was put");
        println!("now {} requests a second", now.value.requests_per_second);
    }

    let left = client.delete(&path, Expect::Any).await?;
    assert!(left.is_committed());
    client.close().await
}
