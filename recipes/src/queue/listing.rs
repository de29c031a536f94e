//! [`QueuedItem`]: the items and the dead letters of a queue, for tools and operators.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::store::{Expect, Lifetime, Node, Outcome, Query, RejectReason, SessionId, Txn};

use crate::queue::Queue;
use crate::queue::failures::FailedDelivery;
use crate::queue::item_name::ItemName;
use crate::queue::layout::{Codec, QueueShared};
use crate::queue::put::QueueEntry;
use crate::support::exactly_once::settling::{Sent, is_only_lost};
use crate::support::time::date;

/// An item of a [`Queue`], or a dead letter, at the time of the listing.
#[derive(Clone, PartialEq, Eq)]
pub struct QueuedItem<T> {
    name: ItemName,
    node: Node,
    item: Option<T>,
    claim: Option<QueueClaim>,
    failures: Vec<FailedDelivery>,
    /// True if this dead letter has a node with its failures.
    has_history: bool,
}

/// The claim of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueClaim {
    /// The session of the consumer.
    pub session: SessionId,
    /// The time of the claim, by the clock of the consumer.
    pub since: Option<SystemTime>,
}

impl<T> QueuedItem<T> {
    /// The item, or `None` if it cannot be deserialized.
    pub fn item(&self) -> Option<&T> {
        self.item.as_ref()
    }

    /// The id that the producer gave to the item.
    pub fn id(&self) -> Option<String> {
        self.name.id()
    }

    /// The name of the node of the item. It changes with each delivery.
    pub fn name(&self) -> &str {
        self.node.path.name()
    }

    /// The data of the item, as it is stored.
    pub fn data(&self) -> &Bytes {
        &self.node.data
    }

    /// The date before which the item is not delivered.
    pub fn not_before(&self) -> Option<SystemTime> {
        SystemTime::UNIX_EPOCH.checked_add(self.name.date()?)
    }

    /// The priority of the item. A lower number is delivered earlier.
    pub fn priority(&self) -> u16 {
        self.name.priority
    }

    /// The number of deliveries of the item.
    pub fn delivered(&self) -> u32 {
        self.name.delivered
    }

    /// The time of the put, by the clock of the producer. `None` for an item of another program.
    pub fn since(&self) -> Option<SystemTime> {
        self.name.since()
    }

    /// The claim of the consumer that has the item.
    pub fn claim(&self) -> Option<QueueClaim> {
        self.claim
    }

    /// The reason of the last failed delivery: that of
    /// [`Delivery::reject`](crate::queue::Delivery::reject), the error of the work in
    /// [`Queue::consume`], or the reason for which no consumer can receive the item. `None` for an
    /// item that did not fail, and for a letter of a program that stores no reason.
    pub fn reason(&self) -> Option<&str> {
        self.failures.last().map(|failure| &*failure.reason)
    }

    /// The failed deliveries, the oldest first: the last ten, and fewer if their reasons are long.
    /// A delivery that ended without a reason, as that of a consumer that died, is not among them.
    pub fn failures(&self) -> &[FailedDelivery] {
        &self.failures
    }
}

/// Omits the data.
impl<T> fmt::Debug for QueuedItem<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuedItem")
            .field("path", &self.node.path)
            .field("claim", &self.claim)
            .finish_non_exhaustive()
    }
}

/// # Inspecting
impl<T> Queue<T> {
    /// Counts the items, including claimed ones.
    ///
    /// The count is not a consistent snapshot: if an item is taken during the call, both the item
    /// and the next one in its slot may be counted; an item that is put back and claimed again
    /// during the call may be missed.
    ///
    /// # Errors
    ///
    /// The common errors of a [`Client`](synod_core::client::Client).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn len(&self) -> Result<usize> {
        Ok(self.nodes(Query::names_only).await?.len())
    }

    /// Lists the items in their order, including claimed ones. Items whose dates have not come are
    /// the last ones. As [`Queue::len`] it is not a
    /// consistent snapshot.
    ///
    /// # Errors
    ///
    /// As [`Queue::len`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn items(&self) -> Result<Vec<QueuedItem<T>>> {
        let claims = Query::children(&self.shared()?.claims);
        let claims = self.client.read(claims).await?.nodes.into_iter();
        let claims =
            claims.filter_map(|node| Some((node.path.name().to_owned(), claim_of(&node)?)));
        let claims: BTreeMap<String, _> = claims.collect();
        let nodes = self.nodes(|items| items).await?;
        let mut items = in_order(self.codec, nodes.into_values());
        for item in &mut items {
            item.claim = claims.get(item.node.path.name()).copied();
        }
        if items.iter().any(|item| item.name.has_failures) {
            self.add_failures(&mut items, false).await?;
        }
        Ok(items)
    }

    /// Reads the nodes of the items, by the parts of their names that never change. An item that is
    /// claimed or put back during the call is in one of the lists.
    pub(super) async fn nodes(
        &self,
        query: impl Fn(Query) -> Query,
    ) -> Result<BTreeMap<(u16, String), Node>> {
        let QueueShared { client, items, claimed, .. } = &**self.shared()?;
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

    /// Lists the dead letters, with their failures: items that were rejected, could not be
    /// deserialized, or reached the maximum number of deliveries.
    ///
    /// # Errors
    ///
    /// As [`Queue::len`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn dead(&self) -> Result<Vec<QueuedItem<T>>> {
        let shared = self.shared()?;
        let dead = self.client.read(Query::children(&shared.dead)).await?;
        let mut letters = in_order(self.codec, dead.nodes);
        if letters.is_empty() {
            return Ok(letters);
        }
        // They are created together with the letter.
        self.add_failures(&mut letters, true).await?;
        Ok(letters)
    }

    /// Reads the failures of listed items, or of dead letters.
    async fn add_failures(&self, listed: &mut [QueuedItem<T>], is_dead: bool) -> Result<()> {
        let shared = self.shared()?;
        let mut all = shared.all_failures().await?;
        for item in listed {
            let failures = shared.take_failures(&mut all, &item.name, is_dead);
            item.has_history = is_dead && failures.is_some();
            item.failures = failures.unwrap_or_default();
        }
        Ok(())
    }

    /// Moves a dead letter back to the items, with no deliveries counted. Returns false if it has
    /// changed since it was listed, if an item with its id is in the queue, or if the queue is
    /// [full](Queue::capacity).
    ///
    /// # Errors
    ///
    /// As [`Queue::put`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has moved the dead letter, or has not.
    pub async fn revive(&self, dead: &QueuedItem<T>) -> Result<bool> {
        let name = dead.name.anew();
        let Some(stat) = dead.node.stat else { return Ok(false) };
        let shared = self.shared()?;
        let node = shared.dead.join(dead.node.path.name())?;
        let txn = Txn::new().delete(node, Expect::Version(stat.version));
        let txn = without_failures(shared, txn, dead)?;
        let items = vec![(name, dead.node.data.clone())];
        let entry = QueueEntry { shared, txn, items, is_unlimited: false };
        let outcome = self.capacity.try_put(&entry).await?;
        outcome.map_or(Ok(false), |outcome| was_applied(shared, &outcome))
    }

    /// Changes the data of an item that is not claimed, or of a dead letter. An item keeps its
    /// place and its id. Returns false if it has changed since it was listed.
    ///
    /// # Errors
    ///
    /// As [`Queue::put`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has changed the data, or has not.
    pub async fn change(&self, item: &QueuedItem<T>, to: &T) -> Result<bool> {
        let (shared, data) = (self.shared()?, self.codec.encode(&item.node.path, to)?);
        let Some(stat) = item.node.stat else { return Ok(false) };
        let txn = if is_dead(shared, item) {
            Txn::new().set(&item.node.path, data, Expect::Version(stat.version))
        } else {
            // Consumers cache the data of a name, so the changed item gets another name.
            let changed = shared.item(&item.name.changed(stat.created))?;
            let txn = Txn::new().delete(shared.item(&item.name)?, Expect::Any);
            txn.create(changed, data, Lifetime::Persistent)
        };
        was_applied(shared, &shared.writes.commit(&txn).await?)
    }

    /// Removes an item or a dead letter, even if it is claimed, or was delivered or changed since
    /// it was listed. Returns whether it was there. A consumer that has claimed it cannot
    /// acknowledge it any more. An item that has become a dead letter since is not removed.
    ///
    /// # Errors
    ///
    /// As [`Queue::put`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has removed the item, or has not.
    pub async fn remove(&self, item: &QueuedItem<T>) -> Result<bool> {
        let shared = self.shared()?;
        if is_dead(shared, item) {
            let txn = Txn::new().delete(&item.node.path, Expect::Any);
            let txn = without_failures(shared, txn, item)?;
            return was_applied(shared, &shared.writes.commit(&txn).await?);
        }
        let (mut node, mut name) = (item.node.path.clone(), item.name.clone());
        loop {
            if remove_node(shared, node, &name).await? {
                return Ok(true);
            }
            // The item may have another name now.
            let mut nodes = self.nodes(Query::names_only).await?;
            let Some(current) = nodes.remove(&name.identity()) else { return Ok(false) };
            let Some(now) = ItemName::parse(current.path.name()) else { return Ok(false) };
            (node, name) = (current.path, now);
        }
    }
}

/// Returns whether a transaction on a listed item was applied. Fails if no change since the
/// listing explains its rejection.
fn was_applied<C>(shared: &QueueShared, outcome: &Outcome<C>) -> Result<bool> {
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
        Outcome::Rejected(no) => Err(shared.writes.refused(no)),
    }
}

/// Adds the operation that deletes the failures of a dead letter, if it has some.
fn without_failures<T>(shared: &QueueShared, txn: Txn, dead: &QueuedItem<T>) -> Result<Txn> {
    if dead.has_history { shared.without_failures_of_dead(txn, &dead.name) } else { Ok(txn) }
}

fn is_dead<T>(shared: &QueueShared, item: &QueuedItem<T>) -> bool {
    item.node.path.parent().is_some_and(|dir| dir == shared.dead)
}

/// Removes the node of an item, and the nodes of its id and its slot if they exist. Returns
/// whether the item was there.
async fn remove_node(shared: &QueueShared, node: Path, name: &ItemName) -> Result<bool> {
    let (mut own, more) = (shared.without(Txn::new(), node.clone(), name), Txn::new());
    loop {
        let session = shared.client.session().await?;
        let limit = Retry::until_elapsed(session.timeout());
        match shared.send_removal(limit, &session, &mut own, &more, &node).await {
            Ok(Sent::Applied(_)) => return Ok(true),
            Ok(Sent::Rejected(no)) if no.reason == RejectReason::Missing => return Ok(false),
            Ok(Sent::Rejected(no)) => return Err(shared.writes.refused(&no)),
            Ok(Sent::Lost) => {}
            Err(error) if is_only_lost(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads the node of a claim.
fn claim_of(node: &Node) -> Option<QueueClaim> {
    let millis = str::from_utf8(&node.data).ok().and_then(|millis| millis.parse().ok());
    let since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis.unwrap_or(0)));
    Some(QueueClaim { session: node.stat?.owner?, since: since.filter(|_| millis.is_some()) })
}

/// Reads the items from their nodes, and sorts them: those that wait for their dates come last.
fn in_order<T>(codec: Codec<T>, nodes: impl IntoIterator<Item = Node>) -> Vec<QueuedItem<T>> {
    let now = date();
    let items = nodes.into_iter().filter_map(|node| {
        let name = ItemName::parse(node.path.name())?;
        let is_early = name.date().is_some_and(|date| date > now);
        let rank = (is_early, name.rank(node.stat?.created));
        let item = codec.decode(&node.path, &node.data).ok();
        let (claim, failures, has_history) = (None, Vec::new(), false);
        Some((rank, QueuedItem { name, node, item, claim, failures, has_history }))
    });
    let items: BTreeMap<_, _> = items.collect();
    items.into_values().collect()
}
