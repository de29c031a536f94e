//! [`Mutex`]: one holder at a time, in the order of the requests.

use std::time::Duration;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::clock::timeout;
use synod_core::error::Result;
use synod_core::path::Path;

use crate::line::hold::MutexGuard;
use crate::line::order::Contender;
use crate::line::ticket::Ticket;
use crate::line::{Form, Line};

#[cfg_attr(not(doctest), doc = include_str!("../docs/mutex.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/locks.md"))]
#[derive(Clone, Debug)]
pub struct Mutex {
    line: Line,
}

/// A ticket in the queue of a [`Mutex`]. Dropping it removes it.
#[derive(Debug)]
#[must_use = "dropping this removes the ticket"]
pub struct MutexTicket {
    ticket: Ticket,
}

impl Mutex {
    /// The lock at `path`.
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        Self { line: Line::new(client, path.into(), Form::exclusive("mutex", "lock-").renewing()) }
    }

    /// Sets the label of the tickets that this handle creates: [`inspect`](crate::lock::inspect())
    /// shows it.
    pub fn label(self, label: impl Into<Bytes>) -> Self {
        Self { line: self.line.labelled(label.into()) }
    }

    /// Waits for the lock.
    ///
    /// The wait continues after the loss of a session: the lock is then requested again in the next
    /// session.
    ///
    /// # Errors
    ///
    /// [`Unreachable`](synod_core::error::ErrorKind::Unreachable) if there was no session within
    /// the time limit of the client, [`SessionLost`](synod_core::error::ErrorKind::SessionLost)
    /// once the client is closed, and any error that the store returns.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn lock(&self) -> Result<MutexGuard> {
        Ok(MutexGuard(self.line.enter().await?.hold(())))
    }

    /// Waits for the lock for at most `limit`. `None` if the lock was not granted by then: the
    /// ticket is then removed in the background, and is not granted later.
    /// [`within`](crate::within) does the same for other recipes.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn lock_within(&self, limit: Duration) -> Result<Option<MutexGuard>> {
        timeout(limit, self.lock()).await.ok().transpose()
    }

    /// Acquires the lock if it has no holder and no waiter. Never waits, and leaves no ticket if it
    /// returns `None`.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn try_lock(&self) -> Result<Option<MutexGuard>> {
        Ok(self.line.try_enter().await?.map(|ticket| MutexGuard(ticket.hold(()))))
    }

    /// Returns the guard that another client held in this session before it [handed the session
    /// over](synod_core::client::Client::hand_over), with the same token. `None` if there is none,
    /// if it was returned before, or if this session was not resumed. Tickets of that client that
    /// still wait here are removed.
    ///
    /// # Errors
    ///
    /// The errors common to all calls of a [`Client`]. The lock is then released.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may release the lock.
    pub async fn resume(&self) -> Result<Option<MutexGuard>> {
        Ok(self.line.resume().await?.map(|(ticket, _)| MutexGuard(ticket.hold(()))))
    }

    /// Creates a ticket in the queue, to wait for the lock later.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn enqueue(&self) -> Result<MutexTicket> {
        Ok(MutexTicket { ticket: self.line.enqueue().await? })
    }
}

impl MutexTicket {
    /// The contenders that are before this ticket, in order: empty if it is this ticket's turn.
    /// `None` if the ticket was lost: [`MutexTicket::wait`] will then create a new one.
    ///
    /// # Errors
    ///
    /// The errors common to all calls of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn ahead(&self) -> Result<Option<Vec<Contender>>> {
        self.ticket.ahead().await
    }

    /// Waits for the lock.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call removes the ticket.
    pub async fn wait(mut self) -> Result<MutexGuard> {
        self.ticket.granted().await?;
        Ok(MutexGuard(self.ticket.hold(())))
    }
}
