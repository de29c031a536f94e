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

/// One run of the function of a [`Transaction`](crate::Transaction): reads, and collects writes.
///
/// Clones are the same run. When the function has ended, or the run was given up, its calls fail as
/// [`ErrorKind::Invalid`].
#[derive(Clone)]
pub struct Attempt {
    run: Arc<Run>,
}

/// What the clones of an attempt share.
pub(super) struct Run {
    session: Session,
    one_moment: bool,
    prefetch: Arc<BTreeSet<Path>>,
    state: Mutex<RunState>,
    given_up: Notify,
}

enum RunState {
    Running(Footprint),
    /// What it relied on has changed. With what is known now; without it, the session was lost.
    GivenUp(Option<Footprint>),
    Ended,
}

impl Attempt {
    pub(super) fn new(run: Arc<Run>) -> Self {
        Self { run }
    }

    /// The data of the node at `path`; `None` if there is none. What this run has written is what it reads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] if the run reads more than [`Query::MAX_NODES`] nodes, and its
    /// [level](crate::Isolation) checks what was read; [`ErrorKind::Invalid`] if it is over; and as every verb of a [`Client`](synod_core::client::Client).
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
                self.run.question(footprint, path)
            };
            self.run.ask(path, query).await?;
        }
    }

    /// The value at `path`, stored as JSON; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if what is stored is no such value, and as [`Attempt::get`].
    ///
    /// # Cancel safety
    ///
    /// As [`Attempt::get`].
    pub async fn get_value<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>> {
        self.get(path).await?.map(|data| decode(path, &data)).transpose()
    }

    /// Whether there is a node at `path`.
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

    /// Creates a persistent node if there is none, and returns whether there was none. It is created with the commit.
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
        let data = self.sized(path, data.into())?;
        self.write(|footprint| footprint.create(path, data))?;
        Ok(true)
    }

    /// Writes data to the node at `path`, and makes a persistent node if there is none, with the commit.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] if the store takes less data in a node, [`ErrorKind::Invalid`] if the run is over.
    pub fn put(&self, path: &Path, data: impl Into<Bytes>) -> Result<()> {
        let data = self.sized(path, data.into())?;
        self.write(|footprint| footprint.put(path, data))
    }

    /// [`Attempt::put`] of a value as JSON.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the value cannot be written as JSON, and as [`Attempt::put`]. What serde writes and does not read
    /// again, such as a number that is infinite, is written.
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

    /// The data, if the store takes as much in a node.
    fn sized(&self, path: &Path, data: Bytes) -> Result<Bytes> {
        let most = self.run.session.info().limits.data;
        if data.len() <= most {
            return Ok(data);
        }
        Err(Error::new(ErrorKind::TooLarge, DOING)
            .at(path)
            .because(format!("{} bytes of data, and this store takes {most} a node", data.len())))
    }

    fn write(&self, write: impl FnOnce(&mut Footprint) -> Option<BufferedWrite>) -> Result<()> {
        let replaced = {
            let mut state = self.run.state();
            write(running(&mut state)?)
        };
        // Data may have a `Drop` of its own: the lock is free here.
        drop(replaced);
        Ok(())
    }
}

impl Run {
    pub(super) fn new(
        session: &Session,
        footprint: Footprint,
        one_moment: bool,
        prefetch: &Arc<BTreeSet<Path>>,
    ) -> Self {
        let (state, given_up) = (Mutex::new(RunState::Running(footprint)), Notify::new());
        Self { session: session.clone(), one_moment, prefetch: prefetch.clone(), state, given_up }
    }

    /// Ends the run. Returns what it has read and is going to write, and whether it is not given up.
    pub(super) fn end(&self) -> (Option<Footprint>, bool) {
        match std::mem::replace(&mut *self.state(), RunState::Ended) {
            RunState::Running(footprint) => (Some(footprint), true),
            RunState::GivenUp(footprint) => (footprint, false),
            RunState::Ended => (None, false),
        }
    }

    /// Waits until the run is given up.
    pub(super) async fn given_up(&self) {
        self.given_up.notified().await;
    }

    /// The question for a path that is not known. At the levels that promise it, all that is known is asked for again.
    fn question(&self, footprint: &Footprint, path: &Path) -> Query {
        let alone = || Query::node(path).local();
        if !self.one_moment {
            return alone();
        }
        let mut more = BTreeSet::from([path.clone()]);
        if !footprint.has_read() {
            more.extend(self.prefetch.iter().cloned());
        }
        let query = footprint.query(&more).unwrap_or_else(alone);
        // The first answer is not older than the call, and no later one is older than that.
        if footprint.has_base() { query.local() } else { query }
    }

    /// Asks for a path that is not known. If what the run has read is not unchanged, the run is given up.
    async fn ask(&self, path: &Path, query: Query) -> Result<()> {
        let answer = self.session.read(query.clone()).await;
        if self.take(path, &query, answer)? {
            return Ok(());
        }
        self.given_up.notify_one();
        // The function is dropped now. What goes on elsewhere fails.
        yield_now().await;
        Err(over())
    }

    /// Adds an answer to what is known. Returns whether the run goes on.
    fn take(&self, path: &Path, query: &Query, answer: Result<View>) -> Result<bool> {
        let mut state = self.state();
        let footprint = running(&mut state)?;
        let next = match answer {
            Ok(view) if self.one_moment => match footprint.learn(query, view)? {
                Some(false) => Some(footprint.clone().next()),
                _ => return Ok(true),
            },
            Ok(view) => return footprint.note(path, view.into_node()).map(|()| true),
            Err(error) if error.kind() == ErrorKind::SessionLost => None,
            Err(error) => return Err(error),
        };
        let given_up = std::mem::replace(&mut *state, RunState::GivenUp(next));
        drop(state);
        // With the data that was to be written, which may have a `Drop` of its own.
        drop(given_up);
        Ok(false)
    }

    fn state(&self) -> MutexGuard<'_, RunState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn running(state: &mut RunState) -> Result<&mut Footprint> {
    match state {
        RunState::Running(footprint) => Ok(footprint),
        RunState::GivenUp(_) | RunState::Ended => Err(over()),
    }
}

fn over() -> Error {
    Error::new(ErrorKind::Invalid, DOING).because("this run of the function is over")
}

/// Shows nothing: what it has read is the application's.
impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").finish_non_exhaustive()
    }
}
