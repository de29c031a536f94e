//! [`Barrier`]: no waiter passes while it is set.

use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{Expect, Outcome, Query, RejectReason};

use crate::cell::repeat::repeat;
use crate::cell::until::until;

#[cfg_attr(not(doctest), doc = include_str!("../docs/barrier.md"))]
#[derive(Clone, Debug)]
pub struct Barrier {
    client: Client,
    path: Path,
}

impl Barrier {
    /// The barrier at `path`.
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        Self { client: client.clone(), path: path.into() }
    }

    /// Sets the barrier, if it is not set: when this returned without an error, no later wait returns before it is
    /// lifted.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Refused`](synod_core::error::ErrorKind::Refused) if the path is a directory, and as every verb of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has set the barrier or has not.
    pub async fn set(&self) -> Result<()> {
        repeat(&self.client, || self.client.put(&self.path, "")).await.map(drop)
    }

    /// Lifts the barrier, if it is set: all that wait for it may pass.
    ///
    /// If the answer is lost, the request is sent again. A barrier that another client sets meanwhile may then be lifted,
    /// too, before this returns.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Refused`](synod_core::error::ErrorKind::Refused) if there are nodes below it, and as every verb of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has lifted the barrier or has not.
    pub async fn lift(&self) -> Result<()> {
        match repeat(&self.client, || self.client.delete(&self.path, Expect::Any)).await? {
            Outcome::Rejected(no) if no.reason == RejectReason::Missing => Ok(()),
            lifted => lifted.required(),
        }
    }

    /// Whether the barrier is set.
    ///
    /// # Errors
    ///
    /// As every verb of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn is_set(&self) -> Result<bool> {
        self.client.exists(&self.path).await
    }

    /// Waits until the barrier is not set. Returns at once if it is not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`](synod_core::error::ErrorKind::SessionLost) once the client is closed, and what the store says if it refuses to be read. An outage
    /// is no error: the wait continues.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn wait(&self) -> Result<()> {
        let query = Query::until_gone(&self.path);
        // On the heap, so that the future of a caller with many waits stays small.
        Box::pin(until(&self.client, query, |view| view.node().is_none())).await
    }
}
