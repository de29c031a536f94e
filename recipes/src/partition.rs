//! [`Partition`]: a set of items, split among the current members.

pub use crate::hash_ring::ring::Ring;
pub use crate::hash_ring::{HashRing, RingView};
pub use crate::partition::share_state::ShareChange;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use futures_core::Stream;
use futures_util::stream::unfold;
use synod_core::client::Client;
use synod_core::clock::timeout;
use synod_core::error::{Error, Result};
use synod_core::held::Token;
use synod_core::name::Name;
use synod_core::path::Path;
use synod_core::store::{Expect, Txn};
use synod_core::task;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use crate::partition::roster::{PartitionPaths, Roster, name_of};
use crate::partition::session_share::PartitionTerms;
use crate::partition::share_state::{ShareReader, ShareShared};
use crate::partition::share_task::ShareTask;
use crate::support::detached::{closed, late};

mod division;
mod roster;
mod session_share;
pub(crate) mod share_state;
mod share_task;

/// The operation of a member, in errors.
const DOING: &str = "taking part in a partition";

#[cfg_attr(not(doctest), doc = include_str!("../docs/partition.md"))]
#[derive(Clone, Debug)]
pub struct Partition {
    client: Client,
    path: Path,
    items: BTreeSet<String>,
    weight: u32,
}

/// The items that this member holds. Dropping this leaves the partition in the background, as
/// [`leave`](Self::leave) does.
#[must_use = "dropping this leaves the partition"]
pub struct Share {
    client: Client,
    terms: Arc<PartitionTerms>,
    path: Path,
    shared: Arc<ShareShared>,
    left: Option<oneshot::Receiver<Result<()>>>,
}

impl Partition {
    /// The partition of these items at `path`. All members must pass the same items.
    pub fn new(
        client: &Client,
        path: impl Into<Path>,
        items: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let items = items.into_iter().map(Into::into).collect();
        Self { client: client.clone(), path: path.into(), items, weight: 1 }
    }

    /// Sets the weight of the member that joins with this handle. A member with twice the weight
    /// gets twice as many items, and a member of weight 0 gets none. The default is 1.
    pub fn weight(self, weight: u32) -> Self {
        Self { weight, ..self }
    }

    /// Becomes a member, and takes part in the division of the items from then on, across sessions.
    /// The name is for information only, and need not be unique.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`](synod_core::error::ErrorKind::Unreachable) if it could not join
    /// within the time limit of the client,
    /// [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid) if the name of the member or
    /// of an item is empty or too long, and any error that the store returns. After an error it is
    /// not a member.
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves the partition in the background.
    pub async fn join(&self, name: &str) -> Result<Share> {
        let paths = PartitionPaths::new(&self.path)?;
        for item in &self.items {
            paths.claim(item)?;
        }
        let prefix = paths.members().join(&format!("{}-", Name::encode(name)?.as_str()))?;
        let (items, weight) = (self.items.clone(), self.weight);
        let terms = Arc::new(PartitionTerms { paths, items, prefix, weight });
        let shared = Arc::new(ShareShared::new());
        let (joined, first) = oneshot::channel();
        let (left_tx, left) = oneshot::channel();
        let work = ShareTask::new(&self.client, terms.clone(), shared.clone(), joined);
        let span = tracing::info_span!("sharing", recipe = "partition", path = %self.path);
        let run = async move {
            let _is_received = left_tx.send(Box::pin(work.run()).await).is_ok();
        };
        // The task ends when the share is left or dropped, and with the client.
        task::spawn(run.instrument(span)).let_go();
        let (client, path) = (self.client.clone(), self.path.clone());
        let share = Share { client, terms, path, shared, left: Some(left) };
        match timeout(self.client.timeout(), first).await {
            Ok(Ok(joined)) => joined.map(|()| share),
            Ok(Err(_ended)) => Err(share.over()),
            Err(_late) => Err(share.late()),
        }
    }

    /// The name of the member that holds each item, for information only: the answer may already be
    /// out of date.
    ///
    /// # Errors
    ///
    /// The errors common to all calls of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn holders(&self) -> Result<BTreeMap<String, String>> {
        let paths = PartitionPaths::new(&self.path)?;
        let roster = Roster::of(&paths, self.client.read(paths.query()).await?);
        let holders = roster.holders().into_iter();
        Ok(holders.map(|(item, it)| (item, name_of(&it).unwrap_or(it))).collect())
    }
}

impl Share {
    /// The items that this member certainly holds now. Empty while its session is not certain.
    /// Sends nothing to the store.
    pub fn items(&self) -> BTreeSet<String> {
        self.shared.items()
    }

    /// Returns `true` if this member certainly holds an item at this moment. Sends nothing to the
    /// store.
    pub fn is_held(&self, item: &str) -> bool {
        self.shared.is_held(item)
    }

    /// The fencing token of an item that is held: larger for each later holder of the item. `None`
    /// if the item is not held, or for the duration of one request after it was acquired.
    pub fn token(&self, item: &str) -> Option<Token> {
        self.shared.created(item).map(Token::new)
    }

    /// A transaction that is applied only while this member exists in this session, and some member
    /// holds the item. So it is rejected once the session of this member has ended. `None` if the
    /// item is not held.
    ///
    /// Release an item only after its guarded writes were answered: the transaction does not
    /// distinguish this member from the next holder of the item.
    pub fn txn(&self, item: &str) -> Option<Txn> {
        let member = self.shared.member_of(item)?;
        let claim = self.terms.paths.claim(item).ok()?;
        Some(Txn::new().check(member, Expect::Any).check(claim, Expect::Any))
    }

    /// The held items, as acquired, and then every change. Items that are acquired and lost between
    /// two reads are skipped.
    ///
    /// An outage that the session survives is not reported: call [`is_held`](Self::is_held) before
    /// each piece of work. The stream ends with the share and with the client, after which nothing
    /// is held.
    pub fn changes(&self) -> impl Stream<Item = ShareChange> + Send + use<> {
        unfold(ShareReader::new(self.shared.watch()), |mut reader| async move {
            let change = reader.next().await?;
            Some((change, reader))
        })
    }

    /// Releases items that a [release request](ShareChange::Release) named. Stop the work on them
    /// before the call. They are no longer held from the start of the call, and other members can
    /// get them when it returns without an error. Items without a release request stay.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`](synod_core::error::ErrorKind::Unreachable), with an unknown
    /// effect, if the store did not answer within the time limit of the client: the items are
    /// released as soon as it answers.
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background: the items are released.
    pub async fn release(&self, items: &BTreeSet<String>) -> Result<()> {
        self.shared.release(items);
        let gone = timeout(self.client.timeout(), self.shared.gone(items)).await;
        gone.map_err(|_late| self.late())
    }

    /// Waits until each item has its designated member, according to the view of this member. That
    /// may change at any time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`](synod_core::error::ErrorKind::SessionLost) once the client is
    /// closed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    pub async fn settled(&self) -> Result<()> {
        let is_settled = self.shared.settled().await;
        // The task of the member may not have noticed yet that the client was closed.
        if is_settled && !self.client.is_closed() { Ok(()) } else { Err(self.over()) }
    }

    /// Leaves the partition. Stop the work on all items before the call: none is held from its
    /// start. When this returns without an error, the store has no node of this member.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`](synod_core::error::ErrorKind::Unreachable), with an unknown
    /// effect, if the store did not answer within the time limit of the client: it leaves as soon
    /// as the store answers, or when its session ends.
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background: the member leaves.
    pub async fn leave(mut self) -> Result<()> {
        self.shared.stop();
        let Some(left) = self.left.take() else { return Ok(()) };
        match timeout(self.client.timeout(), left).await {
            Ok(left) => left.unwrap_or(Ok(())),
            Err(_late) => Err(self.late()),
        }
    }

    fn over(&self) -> Error {
        closed(DOING, &self.path)
    }

    fn late(&self) -> Error {
        late(DOING, &self.path)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share")
            .field("path", &self.path)
            .field("items", &self.shared.items().len())
            .finish_non_exhaustive()
    }
}
