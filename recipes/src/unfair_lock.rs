//! [`UnfairLock`]: a lock without a line, for a lock with little contention.

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::clock::{self, sleep};
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::store::Query;
use tracing::Instrument as _;

use crate::line::Line;
use crate::line::form::Form;
use crate::line::hold::Hold;
use crate::mutant::mistake;

#[cfg_attr(not(doctest), doc = include_str!("../docs/unfair_lock.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/locks.md"))]
#[derive(Clone, Debug)]
pub struct UnfairLock {
    line: Line,
}

/// The lock, held. See [`Hold`].
pub type UnfairGuard = Hold;

impl UnfairLock {
    /// The lock at `path`.
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        Self { line: Line::new(client, path.into(), Form::alone("unfair_lock", "lock-")) }
    }

    /// Sets the label of the tickets that are created through this: [`inspect`](crate::inspect()) shows it.
    pub fn label(self, label: impl Into<Bytes>) -> Self {
        Self { line: self.line.labelled(label.into()) }
    }

    /// Waits for the lock.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn lock(&self) -> Result<UnfairGuard> {
        let path = self.line.dir();
        let waited = tracing::field::Empty;
        let span = tracing::debug_span!("waiting", recipe = "unfair_lock", %path, waited);
        let since = clock::now();
        // On the heap, so that the future of a caller with many waits stays small.
        let guard = Box::pin(self.wait()).instrument(span.clone()).await?;
        span.record("waited", tracing::field::debug(clock::elapsed(since)));
        Ok(guard)
    }

    async fn wait(&self) -> Result<UnfairGuard> {
        let (mut delays, mut seen, mut misled) = (None, None, false);
        loop {
            let ahead = match seen.take() {
                Some(ahead) => ahead,
                None => match self.attempt(misled).await? {
                    Ok(guard) => return Ok(guard),
                    Err(ahead) => ahead,
                },
            };
            let was_there = self.until_gone(&ahead).await?;
            let session = self.line.client().session().await?;
            let delays = delays.get_or_insert_with(|| Retry::contended().delays(session.random()));
            sleep(delays.next().unwrap_or_default()).await;
            // A look before the try does not disturb a client that was quicker.
            seen = self.line.first().await?;
            misled = !was_there && seen.as_ref() == Some(&ahead);
            if misled {
                // No node is there, but the listing has the name: it is a container's. Nobody holds the lock by it.
                seen = None;
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
        Ok(self.line.try_enter().await?.map(|ticket| ticket.hold(())))
    }

    /// Acquires the lock, or returns the ticket of its holder. With `past_containers` also names that a ticket of this
    /// library was given lately are not believed to be tickets.
    async fn attempt(&self, past_containers: bool) -> Result<Result<UnfairGuard, Path>> {
        let mut ticket = self.line.enqueue().await?;
        let ahead = ticket.blocked_by(past_containers).await?;
        mistake!(UnfairUnlooked: let ahead = ahead.filter(|_| false));
        match ahead {
            Some(ahead) => {
                ticket.leave().await;
                Ok(Err(ahead))
            }
            None => Ok(Ok(ticket.hold(()))),
        }
    }

    /// Waits until the holder's ticket is gone. Returns whether it was there.
    async fn until_gone(&self, holder: &Path) -> Result<bool> {
        let holder = Query::until_gone(holder.clone());
        let (view, mut watch) = self.line.client().watch(holder).await?;
        let was_there = view.node().is_some();
        if was_there {
            let _look_again = watch.next().await;
        }
        Ok(was_there)
    }
}
