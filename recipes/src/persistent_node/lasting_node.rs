//! [`LastingNode`]: a TTL node, as its owner knows it.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use synod_core::client::{Client, ClientWatch};
use synod_core::clock::{self, Instant, sleep_until};
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{Expect, Outcome, Query, Stat, certain_until};

use crate::keeper::node::{Cause, foreign_event, shown};
use crate::keeper::state::{KeeperShared, Lasts, Wanted};
use crate::mutant::mistake;

/// The number of writes per TTL: a write that fails may be repeated for two thirds of the TTL.
const WRITES: u32 = 3;

/// A TTL node that its owner has created.
pub(super) struct LastingNode {
    client: Client,
    path: Path,
    ttl: Duration,
    pub(super) stat: Stat,
    /// The number of its data; 0 for the data of the create.
    pub(super) stored: u64,
    /// True if it was read after its last event.
    is_read: bool,
    /// The sending time of the last request that found the node.
    found_at: Instant,
    /// The time at which the last answered write was sent.
    written: Option<Instant>,
    watch: Option<ClientWatch>,
}

impl LastingNode {
    /// A node that exists, and is not watched yet. The time of its last write is unknown.
    pub(super) fn new(client: &Client, path: &Path, ttl: Duration, stat: Stat) -> Self {
        let (client, path) = (client.clone(), path.clone());
        let (stored, is_read, found_at) = (0, false, clock::now());
        Self { client, path, ttl, stat, stored, is_read, found_at, written: None, watch: None }
    }

    /// Sets the data and the sending time of the write that created the node.
    pub(super) fn written(mut self, sent: Instant, wanted: &Wanted) -> Self {
        (self.written, self.stored) = (Some(sent), wanted.number);
        self
    }

    /// Requires a read, as the node may have changed.
    pub(super) fn set_stale(&mut self) {
        self.is_read = false;
    }

    /// Returns `true` if nothing indicates that the node is gone or replaced. If its owner has not
    /// written for too long, it may be, and a write that expects a version may overwrite the node
    /// of another owner with the same version.
    pub(super) fn is_known(&self) -> bool {
        self.is_read && clock::now() < self.certain_from(self.found_at)
    }

    fn certain_from(&self, sent: Instant) -> Instant {
        certain_until(sent, self.ttl, Duration::ZERO)
    }

    /// The condition under which the node certainly exists.
    pub(super) fn lasts(&self) -> Lasts {
        Lasts::Until(self.written.map_or_else(clock::now, |sent| self.certain_from(sent)))
    }

    /// Returns `true` if the node must be written again, although its data is unchanged.
    pub(super) fn is_due(&self) -> bool {
        self.due().is_none_or(|due| clock::now() >= due)
    }

    fn due(&self) -> Option<Instant> {
        let written = self.written?;
        mistake!(NeverWrittenAgain: return written.checked_add(self.ttl * 1_000));
        written.checked_add(self.ttl / WRITES)
    }

    /// Waits for the next reason to act.
    pub(super) async fn cause(&mut self, shared: &KeeperShared) -> Cause {
        let (stored, due) = (self.stored, self.due());
        let wanted = pin!(shared.wants_other(stored));
        let due = pin!(async {
            match due {
                Some(due) => sleep_until(due).await,
                None => pending().await,
            }
        });
        match select(pin!(self.event()), select(wanted, due)).await {
            Either::Left((cause, _)) => cause,
            Either::Right(_) => Cause::Wanted,
        }
    }

    /// Waits for an event that may report a write of another client.
    async fn event(&mut self) -> Cause {
        foreign_event(&mut self.watch, &self.path, &self.stat).await
    }

    /// Reads the node, and watches it from then on. Returns `true` if it exists.
    pub(super) async fn read(&mut self, wanted: &Wanted) -> Result<bool> {
        let (query, sent) = (Query::node(&self.path), clock::now());
        let view = if self.watch.is_some() {
            self.client.read(query).await?
        } else {
            let (view, watch) = self.client.watch(query).await?;
            self.watch = Some(watch);
            view
        };
        (self.is_read, self.found_at) = (true, sent);
        let Some((stat, is_stored)) = shown(&view, self.stat.created, wanted) else {
            return Ok(false);
        };
        self.stat = stat;
        self.stored = if is_stored { wanted.number } else { 0 };
        Ok(true)
    }

    /// Writes the data, which renews its TTL. Returns `true` if it was written; otherwise the node
    /// must be read.
    pub(super) async fn write(&mut self, wanted: &Wanted) -> Result<bool> {
        // The data of the node is unknown until the response.
        self.is_read = false;
        let (sent, expect) = (clock::now(), Expect::Version(self.stat.version));
        let Outcome::Committed(done) =
            self.client.set(&self.path, wanted.data.clone(), expect).await?
        else {
            return Ok(false);
        };
        let Some(stat) = done.stat.filter(|stat| stat.created == self.stat.created) else {
            return Ok(false);
        };
        (self.stat, self.is_read) = (stat, self.watch.is_some());
        (self.stored, self.written, self.found_at) = (wanted.number, Some(sent), sent);
        Ok(true)
    }
}
