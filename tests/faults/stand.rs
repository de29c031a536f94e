//! [`Stand`]: servers on which scenarios take place, one after the other.

#![expect(clippy::print_stdout, reason = "servers that are not used again are reported")]

use std::cmp::Reverse;
use std::sync::{Mutex, PoisonError};

use synod::{Client, ClientOptions, Config, Error, Path};
use synod::{Expect, Query};
use synod_servers::clients::entry::Fact;
use tokio::runtime::Runtime;

use crate::Stage;
use crate::scene::at;
use crate::servers::Servers;

/// Servers, started for the first scenario that needs some, and the proxies in front of them.
pub(crate) struct Stand {
    pub(crate) servers: Box<dyn Servers>,
    /// The last revision of the earlier scenarios.
    since: u64,
    /// The runtime of the proxies, as long as they run.
    _proxies: Proxies,
}

/// The runtime of proxies, which is ended without waiting for them.
struct Proxies(Option<Runtime>);

impl Drop for Proxies {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The servers of one stage that no scenario uses at the moment. The last scenario of a stage ends
/// them.
#[derive(Default)]
pub(crate) struct Pool(Mutex<Vec<Stand>>);

impl Pool {
    /// Servers whose state was cleared, or new servers.
    pub(crate) fn take(&self, stage: Stage) -> Result<Stand, String> {
        let used = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        used.map_or_else(|| Stand::start(stage), Ok)
    }

    /// Takes back servers whose clients have ended, if their state can be cleared.
    pub(crate) async fn put(&self, mut stand: Stand) {
        match stand.clear().await {
            Ok(()) => self.0.lock().unwrap_or_else(PoisonError::into_inner).push(stand),
            Err(why) => println!("these servers are not used again: {why}"),
        }
    }
}

impl Stand {
    fn start(stage: Stage) -> Result<Self, String> {
        // The servers are started and waited for on a thread that their proxies do not run on.
        let runtime = crate::runtime()?;
        let entered = runtime.enter();
        let servers = (stage.start)(stage.size)?;
        drop(entered);
        Ok(Self { servers, since: 0, _proxies: Proxies(Some(runtime)) })
    }

    /// Every write of this scenario that was kept, in order.
    pub(crate) async fn facts(&mut self) -> Result<Vec<Fact>, String> {
        let mut facts = self.servers.facts().await?;
        facts.retain(|fact| fact.revision > self.since);
        Ok(facts)
    }

    /// Removes what the clients of a scenario have left.
    async fn clear(&mut self) -> Result<(), String> {
        self.empty().await.map_err(|error| error.to_string())?;
        let latest = self.facts().await?.iter().map(|fact| fact.revision).max();
        self.since = latest.unwrap_or(self.since);
        Ok(())
    }

    async fn empty(&self) -> Result<(), Error> {
        let url = self.servers.url(&self.servers.addresses());
        let client = Client::open(Config::new(&url)?.backend()?, ClientOptions::default()).await?;
        let mut left = below(&client).await?;
        while !left.is_empty() {
            // The path of a child is longer than that of its parent.
            left.sort_by_key(|path| Reverse(path.as_str().len()));
            for path in left {
                // The session of a client that was killed may end, and remove it first.
                let _gone = client.delete(&path, Expect::Any).await?;
            }
            left = below(&client).await?;
        }
        client.close().await
    }
}

/// The nodes of scenarios.
async fn below(client: &Client) -> Result<Vec<Path>, Error> {
    let top = Path::new(&at(""))?;
    let view = client.read(Query::subtree(top).names_only()).await?;
    // On some stores the view shows parents that were never created, without a stat.
    let made = view.nodes.into_iter().filter(|node| node.stat.is_some());
    Ok(made.map(|node| node.path).collect())
}
