//! [`MultiLock`]: several locks as one, all or none.

use std::pin::pin;

use bytes::Bytes;
use futures_util::future::{Either, pending, select, select_all};
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::Txn;

use crate::line::hold::MutexGuard;
use crate::line::{Form, Line};
use crate::mutant::mistake;

#[cfg_attr(not(doctest), doc = include_str!("../docs/multi_lock.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/locks.md"))]
#[derive(Clone, Debug)]
pub struct MultiLock {
    lines: Vec<Line>,
}

/// A guard of all the locks.
#[derive(Debug)]
#[must_use = "dropping this releases the locks"]
pub struct MultiGuard {
    guards: Vec<MutexGuard>,
}

impl MultiLock {
    /// The locks at `paths`. If there is no path, or a path occurs twice (it would wait for
    /// itself), each call fails with [`ErrorKind::Invalid`].
    pub fn new(client: &Client, paths: impl IntoIterator<Item = impl Into<Path>>) -> Self {
        let mut paths: Vec<Path> = paths.into_iter().map(Into::into).collect();
        mistake!(LocksInAnyOrder: {
            let form = Form::exclusive("multi_lock", "lock-").renewing();
            let lines = paths.into_iter().map(|path| Line::new(client, path, form.clone()));
            return Self { lines: lines.collect() };
        });
        paths.sort();
        let form = Form::exclusive("multi_lock", "lock-").renewing();
        let lines = paths.into_iter().map(|path| Line::new(client, path, form.clone()));
        Self { lines: lines.collect() }
    }

    /// Sets the label of the tickets that this handle creates: [`inspect`](crate::lock::inspect())
    /// shows it.
    pub fn label(self, label: impl Into<Bytes>) -> Self {
        let label = label.into();
        let lines = self.lines.into_iter().map(|line| line.labelled(label.clone()));
        Self { lines: lines.collect() }
    }

    /// Waits for all the locks.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::lock::Mutex::lock), and [`ErrorKind::SessionLost`] if a lock was
    /// lost during the wait for the others. The locks that the call holds are released, and the
    /// remaining locks are not requested.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn lock(&self) -> Result<MultiGuard> {
        let lines = self.lines()?;
        let mut guard = MultiGuard::new(Vec::with_capacity(lines.len()));
        for line in lines {
            guard = guard.and(line).await?;
        }
        Ok(guard)
    }

    /// Acquires all the locks, if none of them has a holder or a waiter. Never waits.
    ///
    /// # Errors
    ///
    /// As [`MultiLock::lock`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn try_lock(&self) -> Result<Option<MultiGuard>> {
        let lines = self.lines()?;
        let mut guards = Vec::with_capacity(lines.len());
        for line in lines {
            let Some(ticket) = line.try_enter().await? else {
                let some = MultiGuard::new(guards);
                if let Err(error) = some.release().await {
                    tracing::debug!(%error, "the locks will be released in the background");
                }
                return Ok(None);
            };
            guards.push(MutexGuard(ticket.hold(())));
        }
        let guard = MultiGuard::new(guards);
        Ok(guard.is_held().then_some(guard))
    }

    /// The queues of the locks, in the order of their paths, if they can be locked together.
    fn lines(&self) -> Result<&[Line]> {
        let has_twice = self.lines.windows(2).any(|pair| pair[0].dir() == pair[1].dir());
        if self.lines.is_empty() || has_twice {
            return Err(Error::new(ErrorKind::Invalid, "locking several")
                .because("at least one path is needed, and no path twice"));
        }
        Ok(&self.lines)
    }
}

impl MultiGuard {
    fn new(guards: Vec<MutexGuard>) -> Self {
        Self { guards }
    }

    /// Acquires one more lock. The wait ends with an error if a lock that is already held is lost.
    async fn and(mut self, line: &Line) -> Result<Self> {
        let lost = async {
            if self.guards.is_empty() {
                return pending().await;
            }
            self.lost().await;
        };
        let entered = match select(pin!(line.enter()), pin!(lost)).await {
            Either::Left((entered, _)) => Some(entered?),
            Either::Right(((), _)) => None,
        };
        let ticket = entered.filter(|_| self.is_held()).ok_or_else(|| {
            Error::new(ErrorKind::SessionLost, "locking several")
                .because("a lock was lost during the wait for the others")
        })?;
        self.guards.push(MutexGuard(ticket.hold(())));
        Ok(self)
    }

    /// The guards of the single locks, in the order of the paths. Each has its own token.
    pub fn guards(&self) -> &[MutexGuard] {
        &self.guards
    }

    /// Returns `true` if all of them are certainly held at this moment.
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(MutexGuard::is_held)
    }

    /// Waits until any of them is lost.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches.
    pub async fn lost(&self) {
        let each = self.guards.iter().map(|guard| Box::pin(guard.lost()));
        let _first = select_all(each).await;
    }

    /// A transaction that is applied only while all of them are held. See [`MutexGuard::txn`].
    pub fn txn(&self) -> Txn {
        self.guards.iter().fold(Txn::new(), Txn::under)
    }

    /// Runs `work` while all of them are held. See [`MutexGuard::run`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`] if one was lost before `work` completed.
    ///
    /// # Cancel safety
    ///
    /// A dropped call drops `work`.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        match select(pin!(work), pin!(self.lost())).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right(_) => Err(Error::new(ErrorKind::SessionLost, "working under locks")
                .because("a lock was lost; the work under them was stopped")),
        }
    }

    /// Releases all of them, the last one first.
    ///
    /// # Errors
    ///
    /// As [`MutexGuard::release`]: the first error. The other locks are still released.
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background.
    pub async fn release(self) -> Result<()> {
        let mut released = Ok(());
        for guard in self.guards.into_iter().rev() {
            released = released.and(guard.release().await);
        }
        released
    }
}
