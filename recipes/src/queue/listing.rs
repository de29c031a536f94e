//! [`QueuedItem`]: the items and the dead letters of a queue, for tools and people.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::store::{Expect, Lifetime, Node, Outcome, Query, RejectReason, SessionId, Txn};

use crate::queue::Queue;
use crate::queue::codec::Codec;
use crate::queue::item_name::ItemName;
use crate::queue::place::QueuePlace;
use crate::queue::room::QueueEntry;
use crate::stamped::sent::{Sent, is_only_lost};

/// An item of a [`Queue`], or a dead letter, as it was when it was listed.
#[derive(Clone, PartialEq, Eq)]
pub struct QueuedItem<T> {
    name: ItemName,
    node: Node,
    item: Option<T>,
    claim: Option<QueueClaim>,
}

/// The claim of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueClaim {
    /// The session of the consumer.
    pub session: SessionId,
    /// When it was claimed, by the clock of the consumer.
    pub since: Option<SystemTime>,
}

impl<T> QueuedItem<T> {
    /// The item; `None` if it cannot be read.
    pub fn item(&self) -> Option<&T> {
        self.item.as_ref()
    }

    /// The id that its producer gave it.
    pub fn id(&self) -> Option<String> {
        self.name.id()
    }

    /// The name of its node, which changes with each delivery.
    pub fn name(&self) -> &str {
        self.node.path.name()
    }

    /// Its data, as it is stored.
    pub fn data(&self) -> &Bytes {
        &self.node.data
    }

    /// Before this date it is not to be delivered.
    pub fn not_before(&self) -> Option<SystemTime> {
        SystemTime::UNIX_EPOCH.checked_add(self.name.date()?)
    }

    /// Its priority: one with a lower number is delivered earlier.
    pub fn priority(&self) -> u16 {
        self.name.priority
    }

    /// How often it was delivered.
    pub fn delivered(&self) -> u32 {
        self.name.delivered
    }

    /// When it was put, by the clock of its producer. `None` for an item of another program.
    pub fn since(&self) -> Option<SystemTime> {
        self.name.since()
    }

    /// The claim of the consumer that has it.
    pub fn claim(&self) -> Option<QueueClaim> {
        self.claim
    }
}

/// Shows no data.
impl<T> fmt::Debug for QueuedItem<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuedItem")
            .field("path", &self.node.path)
            .field("claim", &self.claim)
            .finish_non_exhaustive()
    }
}

/// # What is in the queue
impl<T> Queue<T> {
    /// How many items there are, with those that are claimed.
    ///
    /// The count is not of one moment: an item that is taken meanwhile, and the one that gets its slot, may both be counted, and an item that is
    /// put back and claimed again meanwhile may not be.
    ///
    /// # Errors
    ///
    /// As every verb of a [`Client`](synod_core::client::Client).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn len(&self) -> Result<usize> {
        Ok(self.nodes(Query::names_only).await?.len())
    }

    /// The items that there are, in their order, with those that are claimed. As [`Queue::len`] it is not of one moment.
    ///
    /// # Errors
    ///
    /// As [`Queue::len`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn items(&self) -> Result<Vec<QueuedItem<T>>> {
        let claims = Query::children(&self.place.claims);
        let claims = self.place.client.read(claims).await?.nodes.into_iter();
        let claims = claims.filter_map(|node| Some((node.path.name().to_owned(), claim(&node)?)));
        let claims: BTreeMap<String, _> = claims.collect();
        let nodes = self.nodes(|items| items).await?;
        let mut items = in_order(self.codec, nodes.into_values());
        for item in &mut items {
            item.claim = claims.get(item.node.path.name()).copied();
        }
        Ok(items)
    }

    /// The nodes of the items, by what stays the same of their names. An item that a consumer claims or puts back meanwhile is in one
    /// of the lists.
    async fn nodes(&self, query: impl Fn(Query) -> Query) -> Result<BTreeMap<(u16, String), Node>> {
        let QueuePlace { client, items, claimed, .. } = &*self.place;
        let mut all = BTreeMap::new();
        for dir in [items, claimed, items] {
            let nodes = client.read(query(Query::children(dir))).await?.nodes;
            let keyed = nodes
                .into_iter()
                .filter_map(|node| Some((ItemName::parse(node.path.name())?.identity(), node)));
            all.extend(keyed);
        }
        Ok(all)
    }

    /// The dead letters: items that were rejected, could not be read, or were delivered too often.
    ///
    /// # Errors
    ///
    /// As [`Queue::len`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn dead(&self) -> Result<Vec<QueuedItem<T>>> {
        let dead = self.place.client.read(Query::children(&self.place.dead)).await?;
        Ok(in_order(self.codec, dead.nodes))
    }

    /// Moves a dead letter back to the items, as if it had not been delivered before. Returns whether it was as listed, no item has its id,
    /// and there is [room](Queue::capacity) for it.
    ///
    /// # Errors
    ///
    /// As [`Queue::put`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has moved it, or has not.
    pub async fn revive(&self, dead: &QueuedItem<T>) -> Result<bool> {
        let name = dead.name.anew();
        let Some(stat) = dead.node.stat else { return Ok(false) };
        let node = self.place.dead.join(dead.node.path.name())?;
        let txn = Txn::new().delete(node, Expect::Version(stat.version));
        let entry =
            QueueEntry { place: &self.place, txn, items: vec![(name, dead.node.data.clone())] };
        self.room.try_enter(&entry).await?.map_or(Ok(false), |entered| self.is_done(&entered))
    }

    /// Changes the data of an item that is not claimed, or of a dead letter. An item keeps its place and its id. Returns whether it was
    /// still as it was listed.
    ///
    /// # Errors
    ///
    /// As [`Queue::put`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has changed it, or has not.
    pub async fn change(&self, item: &QueuedItem<T>, to: &T) -> Result<bool> {
        let (place, data) = (&self.place, self.codec.encode(&item.node.path, to)?);
        let Some(stat) = item.node.stat else { return Ok(false) };
        let txn = if self.is_dead(item) {
            Txn::new().set(&item.node.path, data, Expect::Version(stat.version))
        } else {
            // Consumers keep the data of a name.
            let changed = place.item(&item.name.changed(stat.created))?;
            let txn = Txn::new().delete(place.item(&item.name)?, Expect::Any);
            txn.create(changed, data, Lifetime::Persistent)
        };
        self.is_done(&place.writes.insist(&txn).await?)
    }

    /// Whether a transaction that moves what was listed was applied. An error if no change since then explains its rejection.
    fn is_done<C>(&self, outcome: &Outcome<C>) -> Result<bool> {
        match outcome {
            Outcome::Committed(_) => Ok(true),
            Outcome::Rejected(no)
                if matches!(
                    no.reason,
                    RejectReason::Missing | RejectReason::Exists | RejectReason::OtherVersion
                ) =>
            {
                Ok(false)
            }
            Outcome::Rejected(no) => Err(self.place.writes.refused(no)),
        }
    }

    fn is_dead(&self, item: &QueuedItem<T>) -> bool {
        item.node.path.parent().is_some_and(|dir| dir == self.place.dead)
    }

    /// Removes an item or a dead letter, whatever its claim, and however often it was delivered or changed since it was listed. Returns
    /// whether it was there. A consumer that has claimed it cannot acknowledge it any more. An item that became a dead letter since is
    /// not removed.
    ///
    /// # Errors
    ///
    /// As [`Queue::put`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has removed it, or has not.
    pub async fn remove(&self, item: &QueuedItem<T>) -> Result<bool> {
        if self.is_dead(item) {
            let txn = Txn::new().delete(&item.node.path, Expect::Any);
            return self.is_done(&self.place.writes.insist(&txn).await?);
        }
        let (mut node, mut name) = (item.node.path.clone(), item.name.clone());
        loop {
            if self.remove_node(node, &name).await? {
                return Ok(true);
            }
            // It may have another name since.
            let mut nodes = self.nodes(Query::names_only).await?;
            let Some(found) = nodes.remove(&name.identity()) else { return Ok(false) };
            let Some(now) = ItemName::parse(found.path.name()) else { return Ok(false) };
            (node, name) = (found.path, now);
        }
    }

    /// Removes the node of an item, and those of its id and its slot if they are there. Returns whether the item was there.
    async fn remove_node(&self, node: Path, name: &ItemName) -> Result<bool> {
        let (mut own, more) = (self.place.without(Txn::new(), node.clone(), name), Txn::new());
        loop {
            let session = self.place.client.session().await?;
            let limit = Retry::until_elapsed(session.timeout());
            match self.place.send_removal(limit, &session, &mut own, &more, &node).await {
                Ok(Sent::Applied(_)) => return Ok(true),
                Ok(Sent::Rejected(no)) if no.reason == RejectReason::Missing => return Ok(false),
                Ok(Sent::Rejected(no)) => return Err(self.place.writes.refused(&no)),
                Ok(Sent::Lost) => {}
                Err(error) if is_only_lost(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// What the node of a claim says.
fn claim(node: &Node) -> Option<QueueClaim> {
    let millis = str::from_utf8(&node.data).ok().and_then(|millis| millis.parse().ok());
    let since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis.unwrap_or(0)));
    Some(QueueClaim { session: node.stat?.owner?, since: since.filter(|_| millis.is_some()) })
}

/// The items that these nodes are, in their order.
fn in_order<T>(codec: Codec<T>, nodes: impl IntoIterator<Item = Node>) -> Vec<QueuedItem<T>> {
    let items = nodes.into_iter().filter_map(|node| {
        let name = ItemName::parse(node.path.name())?;
        let rank = name.rank(node.stat?.created);
        let item = codec.decode(&node.path, &node.data).ok();
        Some((rank, QueuedItem { name, node, item, claim: None }))
    });
    let items: BTreeMap<_, _> = items.collect();
    items.into_values().collect()
}
