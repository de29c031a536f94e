//! [`MemBackend`]: a store in this process, with controls for tests.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use synod_core::clock;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{
    Backend, Change, Feature, SessionEnd, SessionHandover, SessionId, SessionOptions, Store,
    clamp_ttl,
};

use crate::event_queue::EventQueue;
use crate::link::{Direction, Link, Weather};
use crate::session::{MemStore, STORE};
use crate::shared::{Buffers, Shared};
use crate::world::{Census, SessionOver};

/// The shortest and the longest session of the store in memory.
const TTLS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(3_600));

/// A store in this process. Clones are the same store; it is freed with the last of them and of its
/// sessions.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use synod_core::path::Path;
/// use synod_core::store::{Backend, Lifetime, Query, SessionOptions, Store, Txn};
/// use synod_mem::MemBackend;
///
/// let session = MemBackend::new().open(&SessionOptions::default()).await?;
/// let path = Path::new("/config/colour")?;
/// let made = Txn::new().create(path.clone(), "blue", Lifetime::Persistent);
/// session.commit(made).await?.required()?;
///
/// let view = session.read(Query::node(path)).await?;
/// assert_eq!(view.node().expect("just made").data, "blue");
/// # Ok::<(), synod_core::error::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MemBackend(Arc<Shared>);

impl MemBackend {
    /// A new, empty store that is not shared.
    pub fn new() -> Self {
        Self::with(Buffers::USUAL, &[])
    }

    /// [`MemBackend::new`] with as little as the contract allows: a watch buffers one event, and a
    /// link that lets nothing through buffers one message; more are replaced by a
    /// [`Resync`](synod_core::store::Event::Resync). It keeps no nodes with a time to live.
    pub fn minimal() -> Self {
        Self::with(Buffers::SMALL, &[Feature::TtlNodes])
    }

    /// The store is [`minimal`](MemBackend::minimal).
    pub fn is_minimal(&self) -> bool {
        !self.0.missing_features.is_empty()
    }

    fn with(buffers: Buffers, missing_features: &'static [Feature]) -> Self {
        Self(Arc::new(Shared::new(buffers, missing_features)))
    }

    /// The store of this process with that name: the same for every caller, as long as any handle
    /// or session of it exists.
    pub fn named(name: &str) -> Self {
        static STORES: Mutex<BTreeMap<String, Weak<Shared>>> = Mutex::new(BTreeMap::new());

        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        stores.retain(|_, store| store.strong_count() > 0);
        if let Some(store) = stores.get(name).and_then(Weak::upgrade) {
            return Self(store);
        }
        let store = Self::new();
        stores.insert(name.to_owned(), Arc::downgrade(&store.0));
        store
    }

    /// Expires a session, as if the store had received nothing from it for too long. The session is
    /// not notified, and has to detect it.
    pub fn expire(&self, id: SessionId) {
        self.0.world().end(id, clock::now());
    }

    /// Changes the link between the store and one of its sessions.
    pub fn set_weather(&self, id: SessionId, weather: Weather) {
        if let Some(link) = self.0.links().get(&id).and_then(Weak::upgrade) {
            link.set(weather);
        }
    }

    /// Changes the link between the store and the session that is opened next, including its
    /// opening.
    pub fn set_next_weather(&self, weather: Weather) {
        self.0.set_next_weather(weather);
    }

    /// Sets the next sequence of an existing directory.
    pub fn skip_sequences(&self, dir: &Path, next: u64) {
        self.0.world().skip_sequences(dir, next);
    }

    /// Records every change from now on. By default changes are not kept.
    pub fn keep_log(&self) {
        self.0.world().keep_log();
    }

    /// Every change since [`MemBackend::keep_log`], in the order of the commits, each with its
    /// revision and the node as of then.
    pub fn log(&self) -> Vec<Change> {
        let mut world = self.0.world();
        world.tick(clock::now());
        world.log().to_vec()
    }

    /// Counts the contents.
    pub fn census(&self) -> Census {
        let mut world = self.0.world();
        world.tick(clock::now());
        world.census()
    }
}

/// Carries one message of the session handshake over the link.
async fn cross(link: &Link, way: Direction, limit: Duration) -> Result<()> {
    if link.is_clear() {
        return Ok(());
    }
    let crossed = clock::timeout(limit, link.cross(way)).await;
    crossed.map_err(|_elapsed| {
        Error::new(ErrorKind::Unreachable, "opening a session")
            .because("the memory store did not answer within the session's time to live")
    })
}

impl MemBackend {
    /// Continues a session that was handed over, on its link.
    async fn resume(&self, handover: &SessionHandover) -> Result<Box<dyn Store>> {
        let (id, sent) = (handover.session(), clock::now());
        let over = |_: SessionOver| SessionEnd::Expired.error("resuming a session");
        let (queue, ttl) = self.0.world().resume(id, sent).map_err(over)?;
        let link = queue.link().clone();
        cross(&link, Direction::ToStore, ttl).await?;
        self.0.world().touch(id, clock::now()).map_err(over)?;
        self.0.remember(id, &link);
        cross(&link, Direction::ToSession, ttl).await?;
        Ok(Box::new(MemStore::start(self.0.clone(), (link, queue), id, ttl, sent)))
    }
}

#[async_trait]
impl Backend for MemBackend {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        if let Some(handover) = &options.resume {
            return self.resume(handover.of_store(STORE)?).await;
        }
        let ttl = clamp_ttl(options.ttl, TTLS.0, TTLS.1)?;
        let sent = clock::now();
        let link = Arc::new(Link::new());
        if let Some(weather) = self.0.take_next_weather() {
            link.set(weather);
        }
        let queue = Arc::new(EventQueue::new(link.clone(), self.0.buffers.messages));
        cross(&link, Direction::ToStore, ttl).await?;
        let id = self.0.world().open_with(ttl, Some(queue.clone()), clock::now());
        self.0.remember(id, &link);
        self.0.sooner.notify_waiters();
        cross(&link, Direction::ToSession, ttl).await.map_err(Error::with_unknown_effect)?;
        Ok(Box::new(MemStore::start(self.0.clone(), (link, queue), id, ttl, sent)))
    }
}

impl Default for MemBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
