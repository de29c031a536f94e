//! [`Contender`]: a holder or a waiter in a line, as a reader of the line sees it.

use std::time::SystemTime;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::held::Token;
use synod_core::path::Path;
use synod_core::store::{Node, Query, SessionId};

use crate::line::Line;
use crate::line::downgrade::{SHARES, shares};
use crate::line::marks::{Capacity, Claim};
use crate::line::order::{Entry, Tickets, Turn, turn};
use crate::line::ticket_name::since;
use crate::mutant::mistake;

/// A holder of a lock, of permits or of the lead, or a waiter for them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contender {
    /// The path of its ticket.
    pub path: Path,
    /// What it asks for.
    pub claim: Claim,
    /// Whether it is a holder. `None` if that depends on a number that only the contender knows: the number of permits
    /// of another library's semaphore.
    pub holds: Option<bool>,
    /// The token of its ticket.
    pub token: Token,
    /// When it made its request, to the second, by the clock of its own host. `None` for tickets of other libraries.
    pub since: Option<SystemTime>,
    /// The session that owns its ticket.
    pub owner: Option<SessionId>,
    /// Its label.
    pub label: Bytes,
}

impl Contender {
    /// The contender of this ticket, by its node.
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

/// All contenders in the line at `dir`, in order.
pub(crate) async fn contenders(
    client: &Client,
    dir: &Path,
    capacity: Capacity,
) -> Result<Vec<Contender>> {
    let view = client.read(Query::children(dir.clone())).await?;
    let sharing = view.nodes.iter().filter(|node| shares(node)).map(|node| node.path.clone());
    let queue = Tickets::of(&view).sharing(&sharing.collect::<Vec<_>>());
    let capacity =
        if queue.permits(Capacity::Posted) > Some(0) { Capacity::Posted } else { capacity };
    let contenders = queue.entries().iter().filter_map(|one| {
        let node = view.nodes.iter().find(|node| node.path == one.path)?;
        Contender::of(one, node, holds(&queue, one, capacity))
    });
    Ok(contenders.collect())
}

fn holds(queue: &Tickets, one: &Entry, capacity: Capacity) -> Option<bool> {
    let capacity = match (one.claim, one.all) {
        // By its own limit, which may be another one than that of the client that looks.
        (Claim::Permits(_), Some(all)) if capacity != Capacity::Posted => Capacity::Permits(all),
        (Claim::Permits(_), None) if capacity == Capacity::One => return None,
        _ => capacity,
    };
    Some(turn(queue, &one.path, capacity) == Turn::Now)
}

impl Line {
    /// All contenders in the line, in order.
    pub(crate) async fn contenders(&self) -> Result<Vec<Contender>> {
        let all = contenders(&self.client, &self.dir, self.form.capacity).await?;
        mistake!(VanishedIsError: crate::mutant::line::read_each(&self.client, &all).await?);
        Ok(all)
    }
}
