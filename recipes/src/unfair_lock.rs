//! [`UnfairLock`]: a lock without a queue, for a lock with little contention.

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::store::Query;
use tracing::Instrument as _;

use crate::line::hold::guard;
use crate::line::{Form, Line, meter};
use crate::mutant::mistake;
use crate::support::retry::RetryDelays;

#[cfg_attr(not(doctest), doc = include_str!("../docs/unfair_lock.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/locks.md"))]
#[derive(Clone, Debug)]
pub struct UnfairLock {
    line: Line,
}

guard! {
    /// A guard of an [`UnfairLock`].
    UnfairGuard(())
}

impl UnfairLock {
    /// The lock at `path`.
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        Self { line: Line::new(client, path.into(), Form::exclusive("unfair_lock", "lock-")) }
    }

    /// Sets the label of the tickets that this handle creates: [`inspect`](crate::lock::inspect())
    /// shows it.
    pub fn label(self, label: impl Into<Bytes>) -> Self {
        Self { line: self.line.labelled(label.into()) }
    }

    /// Waits for the lock.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::lock::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn lock(&self) -> Result<UnfairGuard> {
        let path = self.line.dir();
        let waited = tracing::field::Empty;
        let span = tracing::debug_span!("waiting", recipe = "unfair_lock", %path, waited);
        let (since, _waiter) = (clock::now(), meter::Waiter::new("unfair_lock"));
        // Boxed, so that the future of a caller with many waits stays small.
        let guard = Box::pin(self.wait()).instrument(span.clone()).await?;
        span.record("waited", tracing::field::debug(clock::elapsed(since)));
        Ok(guard)
    }

    async fn wait(&self) -> Result<UnfairGuard> {
        let delays = RetryDelays::new(Retry::contended(), self.line.client().random());
        let (mut delays, mut first, mut misled) = (delays, None, false);
        loop {
            let ahead = match first.take() {
                Some(ahead) => ahead,
                None => match self.attempt(misled).await? {
                    Ok(guard) => return Ok(guard),
                    Err(ahead) => ahead,
                },
            };
            let was_there = self.until_gone(&ahead).await?;
            self.line.client().session().await?;
            delays.wait().await;
            // The read avoids a useless create while another client holds the lock.
            first = self.line.first().await?;
            misled = !was_there && first.as_ref() == Some(&ahead);
            if misled {
                // The listing has the name, but there is no node: it is a container, which does not
                // hold the lock.
                first = None;
            }
        }
    }

    /// Acquires the lock, if it has no holder. Never waits.
    ///
    /// # Errors
    ///
    /// As [`UnfairLock::lock`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn try_lock(&self) -> Result<Option<UnfairGuard>> {
        Ok(self.line.try_enter().await?.map(|ticket| UnfairGuard(ticket.hold(()))))
    }

    /// Acquires the lock, or returns the ticket of its holder. With `all_names`, also checks for
    /// containers among the names that this library gave to tickets recently.
    async fn attempt(&self, all_names: bool) -> Result<Result<UnfairGuard, Path>> {
        let mut ticket = self.line.enqueue().await?;
        let ahead = ticket.blocked_by(all_names).await?;
        mistake!(UnfairUnlooked: let ahead = ahead.filter(|_| false));
        match ahead {
            Some(ahead) => {
                ticket.leave().await;
                Ok(Err(ahead))
            }
            None => Ok(Ok(UnfairGuard(ticket.hold(())))),
        }
    }

    /// Waits until the holder's ticket is gone. Returns `true` if the ticket existed at first.
    async fn until_gone(&self, holder: &Path) -> Result<bool> {
        let holder = Query::until_gone(holder.clone());
        let (view, mut watch) = self.line.client().watch(holder).await?;
        let was_there = view.node().is_some();
        if was_there {
            let _event = watch.next().await;
        }
        Ok(was_there)
    }
}
