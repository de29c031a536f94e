//! [`HashRing`]: the member of a group that is responsible for a key.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_core::Stream;
use futures_util::stream::unfold;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::name::Name;
use synod_core::path::Path;
use synod_core::store::{Node, Revision};
use synod_core::task::{self, Task};
use tokio::sync::watch;

use crate::hash_ring::ring::Ring;
use crate::mirror::Mirror;
use crate::mirror::event::CacheState;
use crate::mirror::extent::Extent;
use crate::mirror::snapshot::Snapshot;

pub(crate) mod ring;

#[cfg_attr(not(doctest), doc = include_str!("../docs/hash_ring.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/mirrors.md"))]
#[derive(Clone)]
pub struct HashRing {
    inner: Arc<RingInner>,
}

/// A ring, and whether it is up to date with the group.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RingView {
    /// The ring of the known members.
    pub ring: Arc<Ring>,
    /// The ring shows the group at this revision, or later.
    pub as_of: Revision,
    /// [`CacheState::Live`] if each later change of the group will be reported. Otherwise the group
    /// may have changed.
    pub state: CacheState,
}

struct RingInner {
    mirror: Mirror,
    last: watch::Receiver<RingView>,
    /// The task ends with this value, and with the client.
    _task: Task,
}

/// The weight of a member, by its data.
type Weigh = Box<dyn Fn(&[u8]) -> u8 + Send + Sync>;

/// The state of the task that computes rings from the members.
struct RingMaker {
    weigh: Weigh,
    members: BTreeMap<String, u8>,
    sender: watch::Sender<RingView>,
}

impl HashRing {
    /// Opens the ring of the [`Group`](crate::presence::Group) at `path`, and follows it. All its
    /// members have the same weight.
    ///
    /// # Errors
    ///
    /// The error with which the store rejects reads, and
    /// [`ErrorKind::SessionLost`](synod_core::error::ErrorKind::SessionLost) once the client is
    /// closed. An outage is not an error: the call waits for its end. [`within`](crate::within)
    /// sets a limit.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves no task and no watch.
    pub async fn open(client: &Client, path: impl Into<Path>) -> Result<Self> {
        Self::open_weighted(client, path, |_data| 1).await
    }

    /// [`HashRing::open`], with weights from the data of the members: a member with twice the
    /// weight of another is responsible for about twice as many keys, and a member of weight 0 for
    /// no keys. All clients must use the same weights. A member whose data makes `weigh` panic has
    /// no weight.
    ///
    /// # Errors
    ///
    /// As [`HashRing::open`].
    ///
    /// # Cancel safety
    ///
    /// As [`HashRing::open`].
    pub async fn open_weighted(
        client: &Client,
        path: impl Into<Path>,
        weigh: impl Fn(&[u8]) -> u8 + Send + Sync + 'static,
    ) -> Result<Self> {
        let mirror = Mirror::start(client, Extent::children(path), "hash_ring");
        // Boxed, so that the future of a caller stays small.
        Box::pin(mirror.complete()).await?;
        let (ring, state) = (Arc::default(), CacheState::Syncing);
        let (sender, last) = watch::channel(RingView { ring, as_of: Revision::ZERO, state });
        let mut maker = RingMaker { weigh: Box::new(weigh), members: BTreeMap::new(), sender };
        maker.update(&mirror.snapshot());
        let read = mirror.clone();
        let making = async move {
            let updating = read.until(|_state| -> Option<()> {
                maker.update(&read.snapshot());
                None
            });
            // Returns when the client is closed.
            let _ended = updating.await;
        };
        let task = task::spawn(making);
        Ok(Self { inner: Arc::new(RingInner { mirror, last, _task: task }) })
    }

    /// The member that is responsible for a key, among the known members. Sends nothing to the
    /// store. `None` if no member has a weight.
    pub fn owner(&self, key: impl AsRef<[u8]>) -> Option<String> {
        self.inner.last.borrow().ring.owner(key).map(str::to_owned)
    }

    /// The members for a key and its copies: [`Ring::owners`].
    pub fn owners(&self, key: impl AsRef<[u8]>, count: usize) -> Vec<String> {
        let last = self.inner.last.borrow();
        last.ring.owners(key, count).into_iter().map(str::to_owned).collect()
    }

    /// The current ring with its revision and state. Use it for several consistent queries.
    pub fn view(&self) -> RingView {
        let last = self.inner.last.borrow().clone();
        // The mirror reports this immediately, before any task is notified.
        match self.inner.mirror.state() {
            CacheState::Live(_) => last,
            state => RingView { state, ..last },
        }
    }

    /// The current ring, then each change, including a change of only the state. A slow reader may
    /// miss intermediate rings. The stream ends with the client, and when the last clone of `self`
    /// is dropped.
    pub fn changes(&self) -> impl Stream<Item = RingView> + Send + use<> {
        let mut receiver = self.inner.last.clone();
        receiver.mark_changed();
        unfold(receiver, |mut receiver| async move {
            receiver.changed().await.ok()?;
            let last = receiver.borrow_and_update().clone();
            Some((last, receiver))
        })
    }
}

impl RingView {
    /// Returns `true` if each later change of the group will be reported.
    pub fn is_current(&self) -> bool {
        self.state.is_live()
    }
}

impl RingMaker {
    /// Updates the ring from the mirror.
    fn update(&mut self, snapshot: &Snapshot) {
        let members: BTreeMap<_, _> =
            snapshot.iter().filter_map(|node| member(node, &self.weigh)).collect();
        let has_changed = members != self.members;
        self.members = members;
        self.sender.send_if_modified(|last| {
            let was = std::mem::replace(&mut last.state, snapshot.state().clone());
            if let CacheState::Live(revision) = last.state {
                last.as_of = revision;
            }
            if has_changed {
                last.ring = Arc::new(Ring::new(self.members.clone()));
            }
            has_changed || std::mem::discriminant(&was) != std::mem::discriminant(&last.state)
        });
    }
}

/// The name and the weight of the member that a node represents. `None` for a persistent node.
fn member(node: &Node, weigh: &Weigh) -> Option<(String, u8)> {
    node.stat?.owner?;
    let name = Name::new(node.path.name()).ok().and_then(|name| name.decode());
    // One invalid registration must not end the task.
    let weight = catch_unwind(AssertUnwindSafe(|| weigh(&node.data))).unwrap_or_else(|_panic| {
        tracing::warn!(path = %node.path, "the weight function panicked: the member has no weight");
        0
    });
    Some((name.unwrap_or_else(|| node.path.name().to_owned()), weight))
}

impl fmt::Debug for HashRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashRing").field("mirror", &self.inner.mirror).finish_non_exhaustive()
    }
}
