//! [`Contender`]: somebody who stands in a line, for who looks at it from outside.

use std::time::SystemTime;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{Node, Query, SessionId};

use crate::line::order::{Capacity, Claim, Entry, Queue, SHARES, Turn, shares, turn};
use crate::line::ticket_name::since;
use synod_core::held::Token;

/// Somebody who holds something, or waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contender {
    /// The node that stands for him.
    pub path: Path,
    /// What he wants.
    pub claim: Claim,
    /// Whether he has it. `None` where that depends on a number that only he knows: how many permits there are, of
    /// semaphores of programs of other kinds.
    pub holds: Option<bool>,
    /// The token that goes with it.
    pub token: Token,
    /// Since when he stands here, to the second, by the clock of his own host. `None` of programs of other kinds.
    pub since: Option<SystemTime>,
    /// The session that it hangs on.
    pub owner: Option<SessionId>,
    /// What he said of himself.
    pub label: Bytes,
}

impl Contender {
    /// Whoever has this ticket, by its node.
    pub(crate) fn of(one: &Entry, node: &Node, holds: Option<bool>) -> Option<Self> {
        let stat = node.stat?;
        let said = if shares(node) { SHARES.len() } else { 0 };
        Some(Self {
            path: one.path.clone(),
            claim: one.claim,
            holds,
            token: Token::new(stat.created),
            since: since(one.path.name()),
            owner: stat.owner,
            label: node.data.slice(said..),
        })
    }
}

/// Everybody in the line at `dir`, in order.
pub(crate) async fn contenders(
    client: &Client,
    dir: &Path,
    capacity: Capacity,
) -> Result<Vec<Contender>> {
    let view = client.read(Query::children(dir.clone())).await?;
    let sharing = view.nodes.iter().filter(|node| shares(node)).map(|node| node.path.clone());
    let queue = Queue::of(&view).sharing(&sharing.collect::<Vec<_>>());
    let capacity =
        if queue.permits(Capacity::Posted) > Some(0) { Capacity::Posted } else { capacity };
    let contenders = queue.entries().iter().filter_map(|one| {
        let node = view.nodes.iter().find(|node| node.path == one.path)?;
        Contender::of(one, node, holds(&queue, one, capacity))
    });
    Ok(contenders.collect())
}

fn holds(queue: &Queue, one: &Entry, capacity: Capacity) -> Option<bool> {
    let capacity = match (one.claim, one.all) {
        (Claim::Permits(_), Some(all)) if capacity == Capacity::One => Capacity::Permits(all),
        (Claim::Permits(_), None) if capacity == Capacity::One => return None,
        _ => capacity,
    };
    Some(turn(queue, &one.path, capacity) == Turn::Now)
}
