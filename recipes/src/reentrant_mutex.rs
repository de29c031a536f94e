//! [`ReentrantMutex`]: a mutex that its owner may lock again.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as Plain, PoisonError, Weak};

use bytes::Bytes;
use futures_core::future::BoxFuture;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::held::{Held, Release, Token};
use synod_core::path::Path;
use synod_core::store::Txn;
use tokio::sync::Mutex as AsyncMutex;

use crate::line::hold::MutexGuard;
use crate::line::ticket::Ticket;
use crate::line::{Form, Line};
use crate::mutant::mistake;

#[cfg_attr(not(doctest), doc = include_str!("../docs/reentrant_mutex.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/locks.md"))]
#[derive(Clone, Debug)]
pub struct ReentrantMutex {
    line: Line,
    owners: Arc<Owners>,
}

/// A guard of the lock: the first guard of its owner, or a later one.
#[derive(Debug)]
#[must_use = "the lock is released when the last guard is dropped"]
pub struct ReentrantGuard {
    first: Arc<MutexGuard>,
}

/// An owner of a lock. Clones are the same owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(u64);

/// The lock state of each owner.
#[derive(Default)]
struct Owners {
    slots: Plain<BTreeMap<Owner, OwnerSlot>>,
}

/// The guard of one owner, if it holds the lock. Calls with the same owner lock the slot one at a
/// time.
type OwnerSlot = Arc<AsyncMutex<Weak<MutexGuard>>>;

impl ReentrantMutex {
    /// The lock at `path`.
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        let line =
            Line::new(client, path.into(), Form::exclusive("reentrant_mutex", "lock-").renewing());
        Self { line, owners: Arc::default() }
    }

    /// Sets the label of the tickets that this handle creates: [`inspect`](crate::lock::inspect())
    /// shows it.
    pub fn label(self, label: impl Into<Bytes>) -> Self {
        Self { line: self.line.labelled(label.into()), ..self }
    }

    /// Waits for the lock, unless `owner` already holds it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`] if `owner` lost the lock and still has guards of it; otherwise as
    /// [`Mutex::lock`](crate::lock::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn lock(&self, owner: &Owner) -> Result<ReentrantGuard> {
        let slot = self.owners.slot(owner);
        let mut own = slot.lock().await;
        if let Some(guard) = again(&own)? {
            return Ok(guard);
        }
        Ok(first(&mut own, self.line.enter().await?))
    }

    /// Acquires the lock if `owner` holds it, or if it has no holder and no waiter. Never waits,
    /// and leaves no ticket if it returns `None`. Also returns `None` while another call with the
    /// same owner waits for the lock.
    ///
    /// # Errors
    ///
    /// As [`ReentrantMutex::lock`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn try_lock(&self, owner: &Owner) -> Result<Option<ReentrantGuard>> {
        let slot = self.owners.slot(owner);
        let Ok(mut own) = slot.try_lock() else { return Ok(None) };
        if let Some(guard) = again(&own)? {
            return Ok(Some(guard));
        }
        Ok(self.line.try_enter().await?.map(|ticket| first(&mut own, ticket)))
    }
}

impl ReentrantGuard {
    /// The guard that all guards of this owner share: use it for the token, for transactions and to
    /// wait for a loss.
    pub fn guard(&self) -> &MutexGuard {
        &self.first
    }

    /// The number of guards of this owner.
    pub fn count(&self) -> usize {
        Arc::strong_count(&self.first)
    }

    /// Releases the lock if this is the last guard of its owner.
    ///
    /// # Errors
    ///
    /// As [`MutexGuard::release`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background.
    pub async fn release(self) -> Result<()> {
        match Arc::into_inner(self.first) {
            Some(guard) => guard.release().await,
            None => Ok(()),
        }
    }
}

impl Held for ReentrantGuard {
    fn token(&self) -> Token {
        self.first.token()
    }

    fn path(&self) -> &Path {
        self.first.path()
    }

    fn seen_path(&self) -> &Path {
        self.first.seen_path()
    }

    fn is_held(&self) -> bool {
        self.first.is_held()
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.first.lost())
    }

    fn txn(&self) -> Txn {
        self.first.txn()
    }

    async fn run<T: Send>(&self, work: impl Future<Output = T> + Send) -> Result<T> {
        self.first.run(work).await
    }
}

impl Release for ReentrantGuard {
    async fn release(self) -> Result<()> {
        Self::release(self).await
    }
}

impl Owner {
    /// Creates an owner that differs from all others.
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Default for Owner {
    fn default() -> Self {
        Self::new()
    }
}

impl Owners {
    /// The slot of `owner`.
    fn slot(&self, owner: &Owner) -> OwnerSlot {
        mistake!(OwnersMixedUp: let owner = &Owner(0));
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        // Owners that neither hold nor request the lock are removed.
        slots.retain(|other, slot| {
            // A slot in use is not locked here, not even briefly: the call that uses it may be a
            // `try_lock`.
            let is_used = other == owner || Arc::strong_count(slot) > 1;
            is_used || slot.try_lock().is_ok_and(|own| own.strong_count() > 0)
        });
        slots.entry(owner.clone()).or_default().clone()
    }
}

/// Another guard of an owner that holds the lock; `None` if it does not.
fn again(own: &Weak<MutexGuard>) -> Result<Option<ReentrantGuard>> {
    let Some(first) = own.upgrade() else { return Ok(None) };
    let is_held = first.is_held();
    mistake!(ReentersLost: let is_held = true);
    if !is_held {
        return Err(Error::new(ErrorKind::SessionLost, "locking again")
            .at(first.path())
            .because("the lock was lost; drop the remaining guards first"));
    }
    Ok(Some(ReentrantGuard { first }))
}

/// The first guard of an owner, from a granted ticket.
fn first(own: &mut Weak<MutexGuard>, ticket: Ticket) -> ReentrantGuard {
    let first = Arc::new(MutexGuard(ticket.hold(())));
    *own = Arc::downgrade(&first);
    ReentrantGuard { first }
}

impl fmt::Debug for Owners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owners").finish_non_exhaustive()
    }
}
