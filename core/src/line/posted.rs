//! How many permits there are, where that is kept beside the tickets and can be changed: as the name of a node.

use crate::client::Client;
use crate::error::Result;
use crate::line::order::POSTED;
use crate::path::Path;
use crate::store::{Expect, Lifetime, Outcome, Query, Txn, Why};

/// What is written to change it.
const LIMIT: &str = "limit";

/// Sets it, from now on.
pub(crate) async fn set(client: &Client, dir: &Path, permits: u32) -> Result<()> {
    let limit = dir.join(LIMIT)?;
    let new = permits.to_string();
    let posted = dir.join(&format!("{POSTED}{new}"))?;
    loop {
        let said = client.get(&limit).await?;
        let posts = client.read(posts(dir)).await?.nodes;
        let agrees = said.as_ref().is_some_and(|node| node.data == new);
        if agrees && posts.iter().all(|node| node.path == posted) && !posts.is_empty() {
            return Ok(());
        }
        // Whoever changes it writes here, so that two do not do so at once.
        let mut txn = match said.map(|node| node.stat) {
            None => Txn::new().create(limit.clone(), new.clone(), Lifetime::Persistent),
            Some(stat) => {
                let version = stat.map_or(Expect::Any, |stat| Expect::Version(stat.version));
                Txn::new().set(limit.clone(), new.clone(), version)
            }
        };
        for post in posts.iter().filter(|node| node.path != posted) {
            txn = txn.delete(post.path.clone(), Expect::Any);
        }
        if posts.iter().all(|node| node.path != posted) {
            // A name tells the number in the same listing as it tells the tickets: of one moment.
            txn = txn.create(posted.clone(), "", Lifetime::Persistent);
        }
        match client.transaction(txn).await? {
            // Somebody else set them meanwhile.
            Outcome::Rejected(no) if no.why != Why::BelowEphemeral => {}
            outcome => return outcome.required().map(drop),
        }
    }
}

/// As far as is known.
pub(crate) async fn get(client: &Client, dir: &Path) -> Result<u32> {
    let view = client.read(posts(dir)).await?;
    let names = view.nodes.iter().filter_map(|node| node.path.name().strip_prefix(POSTED));
    // Of two, which cannot be, the one that harms less.
    Ok(names.filter_map(|permits| permits.parse().ok()).min().unwrap_or(0))
}

fn posts(dir: &Path) -> Query {
    Query::children(dir.clone()).starting_with(POSTED).names_only()
}
