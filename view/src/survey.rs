//! [`Survey`]: finds the recipes in a subtree, one after the other.

use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{Node, Query};
use synod_recipes::layout::{crew, queue};

use crate::item::{Item, ItemState};
use crate::recognition::{Certainty, Recognised, Sign, has_items, recognise};
use crate::walk::{Visit, Walk};

/// A search for recipes in a subtree. It only reads.
#[derive(Debug)]
pub struct Survey<'a> {
    client: &'a Client,
    walk: Walk,
    /// The number of directories that may still be read.
    left: usize,
    is_cut: bool,
}

impl<'a> Survey<'a> {
    /// Starts at a path, which need not be a node. At most `limit` nodes are visited.
    ///
    /// # Errors
    ///
    /// The errors that are common to all calls: see [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn new(client: &'a Client, path: &Path, limit: usize) -> Result<Self> {
        let walk = Walk::names_only(client.session().await?, path).skipping_denied();
        Ok(Self { client, walk, left: limit, is_cut: false })
    }

    /// The next recipe; `None` at the end, or at the limit.
    ///
    /// # Errors
    ///
    /// The errors that are common to all calls: see [`Client`]. What must not be read is an item
    /// that [says so](ItemState::Denied).
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have skipped a node.
    pub async fn next(&mut self) -> Result<Option<Item>> {
        while let Some(visit) = self.walk.next().await? {
            if self.left == 0 {
                self.is_cut = true;
                return Ok(None);
            }
            self.left -= 1;
            if let Some(item) = self.visit(visit).await? {
                return Ok(Some(item));
            }
        }
        Ok(None)
    }

    /// Returns `true` if the search ended at its limit.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    async fn visit(&mut self, visit: Visit) -> Result<Option<Item>> {
        if let Some(error) = visit.denied {
            let state = ItemState::Denied(error);
            return Ok(Some(Item::new(visit.path, Certainty::Certain, state)));
        }
        let (path, children) = (visit.path, visit.children);
        let item = match self.recognise(&path, &children).await? {
            Some((sign, certainty)) => Item::read(self.client, &path, sign, certainty).await?,
            None => None,
        };
        let is_other = |child: &Node| item.as_ref().is_none_or(|item| !is_part(item, &child.path));
        let others = children.into_iter().filter(is_other).map(|child| child.path);
        self.walk.descend(others.collect());
        Ok(item)
    }

    async fn recognise(&self, path: &Path, children: &[Node]) -> Result<Option<(Sign, Certainty)>> {
        match recognise(children) {
            Recognised::As(sign, certainty) => return Ok(Some((sign, certainty))),
            Recognised::IfItemsIn(dir, sign) => {
                let query = Query::children(path.join(dir)?).names_only().local();
                if has_items(&self.client.read(query).await?.nodes) {
                    return Ok(Some((sign, Certainty::Certain)));
                }
            }
            Recognised::Nothing => {}
        }
        // Nodes of sessions, with any names, are the members of a group or of a service.
        let Some(first) = children.first() else { return Ok(None) };
        let first = self.client.read(Query::node(&first.path).local()).await?.into_node();
        let is_ephemeral = first.and_then(|node| node.stat).is_some_and(|it| it.owner.is_some());
        Ok(is_ephemeral.then_some((Sign::Group, Certainty::Likely)))
    }
}

/// Returns `true` if a child of the item's directory belongs to the item, so that nothing else is
/// below it. A container may have the name of a ticket.
fn is_part(item: &Item, child: &Path) -> bool {
    let name = child.name();
    match &item.state {
        ItemState::Contenders(_, contenders) => contenders.iter().any(|one| one.path == *child),
        ItemState::Queue { .. } => queue::ALL.contains(&name),
        ItemState::Crew { .. } => crew::ALL.contains(&name),
        ItemState::Denied(_) => false,
        _ => true,
    }
}
