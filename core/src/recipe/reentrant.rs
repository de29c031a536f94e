//! [`ReentrantMutex`]: a mutex that whoever has it may lock again.

use std::sync::Arc;

use bytes::Bytes;

use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::line::hold::Hold;
use crate::line::owner::Owners;
use crate::line::{Form, Line};
use crate::mutant::{self, Mutant};
use crate::path::Path;

pub use crate::line::owner::Owner;

/// A [`Mutex`](crate::recipe::mutex::Mutex) that its owner may lock again while he has it, at no cost.
///
/// An owner is a value, not a thread or a task: whoever shows the same [`Owner`] to the same `ReentrantMutex` (or a
/// clone of it) enters again, and the lock is given back when the last of his guards is. All his guards
/// hang on one ticket: when that is lost all are, and he cannot enter again before they are gone.
///
/// What is promised otherwise, on what assumption, and what not, is as for `Mutex`. *Not promised* is that two
/// `ReentrantMutex`es made of the same path know each other's owners.
///
/// # Examples
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path::Path;
/// use synod_core::recipe::reentrant::{Owner, ReentrantMutex};
///
/// # async fn example(client: Client) -> Result<()> {
/// let mutex = ReentrantMutex::new(&client, Path::new("/locks/db")?);
/// let me = Owner::new();
/// let outer = mutex.lock(&me).await?;
/// let inner = mutex.lock(&me).await?;
/// assert_eq!(inner.hold().token(), outer.hold().token());
/// inner.release().await?;
/// outer.release().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ReentrantMutex {
    line: Line,
    owners: Arc<Owners>,
}

/// The lock, held, once or once more.
#[derive(Debug)]
#[must_use = "the lock is given back when the last guard is dropped"]
pub struct ReentrantGuard {
    hold: Arc<Hold>,
}

impl ReentrantMutex {
    /// The lock at `path`.
    pub fn new(client: &Client, path: Path) -> Self {
        let line = Line::new(client, path, Form::alone("reentrant mutex", "lock-").renewing());
        Self { line, owners: Arc::default() }
    }

    /// What [`inspect`](crate::recipe::inspect::inspect) shows of those who lock through this.
    pub fn label(self, label: impl Into<Bytes>) -> Self {
        Self { line: self.line.labelled(label.into()), ..self }
    }

    /// Waits for the lock, unless `owner` has it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`] if `owner` had it, lost it, and has guards of it still; otherwise as
    /// [`Mutex::lock`](crate::recipe::mutex::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing behind.
    pub async fn lock(&self, owner: &Owner) -> Result<ReentrantGuard> {
        let own = self.owners.own(owner);
        let mut own = own.lock().await;
        if let Some(hold) = own.upgrade() {
            if !hold.is_held() && !mutant::is(Mutant::ReentersLost) {
                return Err(Error::new(ErrorKind::SessionLost, "locking again")
                    .at(hold.path())
                    .because("the lock was lost; drop what is left of it first"));
            }
            return Ok(ReentrantGuard { hold });
        }
        let hold = Arc::new(self.line.enter().await?.hold(()));
        *own = Arc::downgrade(&hold);
        Ok(ReentrantGuard { hold })
    }
}

impl ReentrantGuard {
    /// What all guards of this owner share: token, transactions, and the loss of it.
    pub fn hold(&self) -> &Hold {
        &self.hold
    }

    /// How many guards of this owner there are.
    pub fn count(&self) -> usize {
        Arc::strong_count(&self.hold)
    }

    /// Gives the lock back if this is the last guard of its owner.
    ///
    /// # Errors
    ///
    /// As [`Hold::release`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call goes on in the background.
    pub async fn release(self) -> Result<()> {
        match Arc::into_inner(self.hold) {
            Some(hold) => hold.release().await,
            None => Ok(()),
        }
    }
}
