//! [`LastingNode`]: a node with a time to live, as its owner knows it.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use synod_core::client::{Client, ClientWatch};
use synod_core::clock::{self, Instant, sleep_until};
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{Expect, Outcome, Query, Stat, certain_until};

use crate::keeper::kept::{Cause, foreign_event, shown};
use crate::keeper::page::{KeeperPage, Lasts, Wanted};
use crate::mutant::mistake;

/// How often a node is written in its time to live: a write that fails may be repeated for two thirds of it.
const WRITES: u32 = 3;

/// A node with a time to live that its owner has made.
pub(super) struct LastingNode {
    client: Client,
    path: Path,
    ttl: Duration,
    pub(super) stat: Stat,
    /// The number of the data that it has; 0 if it is none that was set.
    pub(super) stored: u64,
    /// Whether it was read since an event of it.
    is_read: bool,
    /// When the last request was sent that found it.
    found: Instant,
    /// When the last write was sent that was answered.
    written: Option<Instant>,
    watch: Option<ClientWatch>,
}

impl LastingNode {
    /// A node that is there, and is not watched yet. When it was written is not known.
    pub(super) fn new(client: &Client, path: &Path, ttl: Duration, stat: Stat) -> Self {
        let (client, path) = (client.clone(), path.clone());
        let (stored, is_read, found) = (0, false, clock::now());
        Self { client, path, ttl, stat, stored, is_read, found, written: None, watch: None }
    }

    /// It was written with this data, by a request that was sent then.
    pub(super) fn written(mut self, sent: Instant, wanted: &Wanted) -> Self {
        (self.written, self.stored) = (Some(sent), wanted.number);
        self
    }

    /// It may have changed.
    pub(super) fn may_have_changed(&mut self) {
        self.is_read = false;
    }

    /// Whether nothing says that it is gone or another one. After a silence of its owner it may be, and a write that expects a
    /// version may hit the node of another owner that has the same one.
    pub(super) fn is_known(&self) -> bool {
        self.is_read && clock::now() < self.certain_from(self.found)
    }

    fn certain_from(&self, sent: Instant) -> Instant {
        certain_until(sent, self.ttl, Duration::ZERO)
    }

    /// How long it is certainly there.
    pub(super) fn lasts(&self) -> Lasts {
        Lasts::Until(self.written.map_or_else(clock::now, |sent| self.certain_from(sent)))
    }

    /// Whether it is to be written again, although its data stays.
    pub(super) fn is_due(&self) -> bool {
        self.due().is_none_or(|due| clock::now() >= due)
    }

    fn due(&self) -> Option<Instant> {
        let written = self.written?;
        mistake!(NeverWrittenAgain: return written.checked_add(self.ttl * 1_000));
        written.checked_add(self.ttl / WRITES)
    }

    /// Waits for the next thing to do.
    pub(super) async fn cause(&mut self, page: &KeeperPage) -> Cause {
        let (stored, due) = (self.stored, self.due());
        let wanted = pin!(page.wants_other(stored));
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

    /// Waits for an event that may be about more than its owner's writes.
    async fn event(&mut self) -> Cause {
        foreign_event(&mut self.watch, &self.path, &self.stat).await
    }

    /// Reads it, and watches it from then on. Returns whether it is there.
    pub(super) async fn look(&mut self, wanted: &Wanted) -> Result<bool> {
        let (query, sent) = (Query::node(&self.path), clock::now());
        let view = if self.watch.is_some() {
            self.client.read(query).await?
        } else {
            let (view, watch) = self.client.watch(query).await?;
            self.watch = Some(watch);
            view
        };
        (self.is_read, self.found) = (true, sent);
        let Some((stat, is_stored)) = shown(&view, self.stat.created, wanted) else {
            return Ok(false);
        };
        self.stat = stat;
        self.stored = if is_stored { wanted.number } else { 0 };
        Ok(true)
    }

    /// Writes the data, which begins its time anew. Returns whether it was written; if not, the node has to be read.
    pub(super) async fn write(&mut self, wanted: &Wanted) -> Result<bool> {
        // Until it is answered, what the node has is not known.
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
        (self.stored, self.written, self.found) = (wanted.number, Some(sent), sent);
        Ok(true)
    }
}
