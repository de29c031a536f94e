//! [`Attempt`]: one run of the function of a transaction.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Query, View};
use synod_core::value::{decode, encode};
use tokio::sync::Notify;
use tokio::task::yield_now;

use crate::transaction::footprint::{BufferedWrite, DOING, Footprint};

/// One run of the function of a [`Transaction`](crate::transaction::Transaction): reads, and
/// collects writes.
///
/// Clones are the same run. When the function has ended, or the run was aborted, its calls fail as
/// [`ErrorKind::Invalid`].
#[derive(Clone)]
pub struct Attempt {
    run: Arc<Run>,
}

/// The parts that the clones of an attempt share.
pub(super) struct Run {
    session: Session,
    has_snapshot: bool,
    prefetch: Arc<BTreeSet<Path>>,
    state: Mutex<RunState>,
    aborted: Notify,
}

enum RunState {
    Running(Footprint),
    /// The nodes that the run relied on have changed. Has the footprint of the next run; `None` if
    /// the session was lost.
    Aborted(Option<Footprint>),
    Ended,
}

impl Attempt {
    pub(super) fn new(run: Arc<Run>) -> Self {
        Self { run }
    }

    /// Returns the data of the node at `path`; `None` if there is no node. A run reads its own
    /// writes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] if the run reads more than [`Query::MAX_NODES`] nodes, and its
    /// [level](crate::transaction::Isolation) checks the nodes that were read; [`ErrorKind::Invalid`] if the run
    /// is over; and the errors that are common to all calls: see
    /// [`Client`](synod_core::client::Client).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn get(&self, path: &Path) -> Result<Option<Bytes>> {
        loop {
            let query = {
                let mut state = self.run.state();
                let footprint = running(&mut state)?;
                footprint.admit(path)?;
                if let Ok(data) = footprint.read(path) {
                    return Ok(data);
                }
                self.run.query(footprint, path)
            };
            self.run.read(path, query).await?;
        }
    }

    /// Returns the value at `path`, stored as JSON; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the stored data cannot be read as `T`, and as [`Attempt::get`].
    ///
    /// # Cancel safety
    ///
    /// As [`Attempt::get`].
    pub async fn get_value<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>> {
        self.get(path).await?.map(|data| decode(path, &data)).transpose()
    }

    /// Returns `true` if there is a node at `path`.
    ///
    /// # Errors
    ///
    /// As [`Attempt::get`].
    ///
    /// # Cancel safety
    ///
    /// As [`Attempt::get`].
    pub async fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.get(path).await?.is_some())
    }

    /// Creates a persistent node with the commit, if there is none. Returns `true` if there was
    /// none.
    ///
    /// # Errors
    ///
    /// As [`Attempt::get`] and [`Attempt::put`].
    ///
    /// # Cancel safety
    ///
    /// As [`Attempt::get`].
    pub async fn create(&self, path: &Path, data: impl Into<Bytes>) -> Result<bool> {
        if self.exists(path).await? {
            return Ok(false);
        }
        let data = self.checked(path, data.into())?;
        self.write(|footprint| footprint.create(path, data))?;
        Ok(true)
    }

    /// Writes data to the node at `path` with the commit, and creates a persistent node if there is
    /// none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] if the store accepts less data in a node, [`ErrorKind::Invalid`] if
    /// the run is over.
    pub fn put(&self, path: &Path, data: impl Into<Bytes>) -> Result<()> {
        let data = self.checked(path, data.into())?;
        self.write(|footprint| footprint.put(path, data))
    }

    /// Writes a value as JSON, as [`Attempt::put`] does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the value cannot be written as JSON, and as [`Attempt::put`].
    /// Unlike other recipes, this writes values that serde cannot read back, such as an infinite
    /// number.
    pub fn put_value<T: Serialize + ?Sized>(&self, path: &Path, value: &T) -> Result<()> {
        let data = encode(path, value)?;
        self.put(path, data)
    }

    /// Deletes the node at `path` with the commit, if there is one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the run is over.
    pub fn delete(&self, path: &Path) -> Result<()> {
        self.write(|footprint| footprint.delete(path))
    }

    /// Returns the data, unless the store refuses data of this size.
    fn checked(&self, path: &Path, data: Bytes) -> Result<Bytes> {
        let max = self.run.session.info().limits.data;
        if data.len() <= max {
            return Ok(data);
        }
        Err(Error::new(ErrorKind::TooLarge, DOING)
            .at(path)
            .because(format!("{} bytes of data, and this store takes {max} a node", data.len())))
    }

    fn write(&self, write: impl FnOnce(&mut Footprint) -> Option<BufferedWrite>) -> Result<()> {
        let replaced = {
            let mut state = self.run.state();
            write(running(&mut state)?)
        };
        // The data may have its own `Drop`: it is dropped outside the lock.
        drop(replaced);
        Ok(())
    }
}

impl Run {
    pub(super) fn new(
        session: &Session,
        footprint: Footprint,
        has_snapshot: bool,
        prefetch: &Arc<BTreeSet<Path>>,
    ) -> Self {
        let (state, aborted) = (Mutex::new(RunState::Running(footprint)), Notify::new());
        Self { session: session.clone(), has_snapshot, prefetch: prefetch.clone(), state, aborted }
    }

    /// Ends the run. Returns its footprint, and true unless the run was aborted.
    pub(super) fn end(&self) -> (Option<Footprint>, bool) {
        match std::mem::replace(&mut *self.state(), RunState::Ended) {
            RunState::Running(footprint) => (Some(footprint), true),
            RunState::Aborted(footprint) => (footprint, false),
            RunState::Ended => (None, false),
        }
    }

    /// Waits until the run is aborted.
    pub(super) async fn aborted(&self) {
        self.aborted.notified().await;
    }

    /// Returns the query for a path that is not known. At the levels with a snapshot the query has
    /// all known nodes.
    fn query(&self, footprint: &Footprint, path: &Path) -> Query {
        let alone = || Query::node(path).local();
        if !self.has_snapshot {
            return alone();
        }
        let mut more = BTreeSet::from([path.clone()]);
        if !footprint.has_read() {
            more.extend(self.prefetch.iter().cloned());
        }
        let query = footprint.query(&more).unwrap_or_else(alone);
        // The first view is not older than the call, and no later view is older than the first.
        if footprint.has_base() { query.local() } else { query }
    }

    /// Reads an unknown path. If a node that the run has read has changed, the run is aborted.
    async fn read(&self, path: &Path, query: Query) -> Result<()> {
        let result = self.session.read(query.clone()).await;
        if self.record(path, &query, result)? {
            return Ok(());
        }
        self.aborted.notify_one();
        // The function is dropped here. A clone that is used elsewhere fails.
        yield_now().await;
        Err(over())
    }

    /// Records the result of a read. Returns `true` if the run continues.
    fn record(&self, path: &Path, query: &Query, result: Result<View>) -> Result<bool> {
        let mut state = self.state();
        let footprint = running(&mut state)?;
        let next = match result {
            Ok(view) if self.has_snapshot => match footprint.record_view(query, view)? {
                Some(false) => Some(footprint.clone().next()),
                _ => return Ok(true),
            },
            Ok(view) => return footprint.record_node(path, view.into_node()).map(|()| true),
            Err(error) if error.kind() == ErrorKind::SessionLost => None,
            Err(error) => return Err(error),
        };
        let aborted = std::mem::replace(&mut *state, RunState::Aborted(next));
        drop(state);
        // The data to write may have its own `Drop`.
        drop(aborted);
        Ok(false)
    }

    fn state(&self) -> MutexGuard<'_, RunState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn running(state: &mut RunState) -> Result<&mut Footprint> {
    match state {
        RunState::Running(footprint) => Ok(footprint),
        RunState::Aborted(_) | RunState::Ended => Err(over()),
    }
}

fn over() -> Error {
    Error::new(ErrorKind::Invalid, DOING).because("this run of the function is over")
}

/// Shows nothing: the data belongs to the application.
impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").finish_non_exhaustive()
    }
}
