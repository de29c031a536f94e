//! [`CohortMutex`]: a mutex that the tasks of one process pass on to each other.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_core::future::BoxFuture;
use synod_core::client::Client;
use synod_core::clock::{self, Instant};
use synod_core::error::Result;
use synod_core::held::{Held, Release, Token};
use synod_core::path::Path;
use synod_core::store::Txn;

use crate::cohort_mutex::handover::{Handover, SlotTurn};
use crate::line::hold::Hold;
use crate::line::{Form, Line};

mod handover;

#[cfg_attr(not(doctest), doc = include_str!("../docs/cohort_mutex.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/locks.md"))]
#[derive(Clone, Debug)]
pub struct CohortMutex {
    line: Line,
    max_passes: u32,
    here: Arc<Here>,
}

/// A guard of the lock.
#[derive(Debug)]
#[must_use = "dropping this releases the lock"]
pub struct CohortGuard {
    hold: Option<Hold>,
    turn: Option<SlotTurn<Hold>>,
    here: Arc<Here>,
    max_passes: u32,
    fenced: AtomicBool,
}

/// The state that the tasks of this process share: the turn among them, and the ticket that is
/// passed on.
type Here = Handover<Hold>;

impl CohortMutex {
    /// The lock at `path`, passed on within this process at most `max_passes` times in a row.
    pub fn new(client: &Client, path: impl Into<Path>, max_passes: NonZeroU32) -> Self {
        let line =
            Line::new(client, path.into(), Form::exclusive("cohort_mutex", "lock-").renewing());
        Self { line, max_passes: max_passes.get(), here: Arc::default() }
    }

    /// Sets the label of the tickets that this handle creates: [`inspect`](crate::lock::inspect())
    /// shows it.
    pub fn label(self, label: impl Into<Bytes>) -> Self {
        Self { line: self.line.labelled(label.into()), ..self }
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
    pub async fn lock(&self) -> Result<CohortGuard> {
        let since = clock::now();
        let (turn, passed) = self.here.turn().await;
        let hold = match passed.filter(Hold::is_held) {
            Some(hold) => self.received(hold, since),
            None => self.line.enter().await?.hold(()),
        };
        Ok(self.guard(turn, hold))
    }

    /// Acquires the lock if it has no holder and no waiter, in this process or another. Never
    /// waits, and leaves no ticket if it returns `None`. Sends nothing to the store while a task of
    /// this process holds or requests the lock.
    ///
    /// # Errors
    ///
    /// As [`CohortMutex::lock`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn try_lock(&self) -> Result<Option<CohortGuard>> {
        let since = clock::now();
        let Some((turn, passed)) = self.here.try_turn() else { return Ok(None) };
        let hold = match passed.filter(Hold::is_held) {
            Some(hold) => Some(self.received(hold, since)),
            None => self.line.try_enter().await?.map(|ticket| ticket.hold(())),
        };
        Ok(hold.map(|hold| self.guard(turn, hold)))
    }

    /// The hold that another task of this process passed on to a call that began at `since`.
    fn received(&self, hold: Hold, since: Instant) -> Hold {
        self.line.record_passed_on(clock::elapsed(since));
        hold.passed_on()
    }

    fn guard(&self, turn: SlotTurn<Hold>, hold: Hold) -> CohortGuard {
        let (here, fenced) = (self.here.clone(), AtomicBool::new(false));
        CohortGuard {
            hold: Some(hold),
            turn: Some(turn),
            here,
            max_passes: self.max_passes,
            fenced,
        }
    }
}

impl CohortGuard {
    /// The fencing token: larger for each later holder, in this process or another.
    pub fn token(&self) -> Token {
        self.held().token()
    }

    /// The path of the ticket of this guard.
    pub fn path(&self) -> &Path {
        self.held().path()
    }

    /// Returns `true` if the lock is certainly held at this moment.
    pub fn is_held(&self) -> bool {
        self.held().is_held()
    }

    /// Waits until the lock is lost.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches.
    pub async fn lost(&self) {
        self.held().lost().await;
    }

    /// A transaction that is applied only while this is held. After this call the lock is not
    /// passed on, but released.
    pub fn txn(&self) -> Txn {
        self.fenced.store(true, Ordering::Relaxed);
        self.held().txn()
    }

    /// Runs `work` while the lock is held: `work` is dropped when the lock is lost.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`](synod_core::error::ErrorKind::SessionLost) if the lock was lost
    /// before `work` completed.
    ///
    /// # Cancel safety
    ///
    /// A dropped call drops `work`.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        self.held().run(work).await
    }

    /// Passes the lock on to the next task of this process, if a task is waiting and `max_passes`
    /// permits it. Otherwise releases it.
    ///
    /// # Errors
    ///
    /// As [`MutexGuard::release`](crate::lock::MutexGuard::release).
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background.
    pub async fn release(mut self) -> Result<()> {
        self.pass_on();
        match self.hold.take() {
            Some(hold) => hold.give_back().await,
            None => Ok(()),
        }
    }

    fn held(&self) -> &Hold {
        self.hold.as_ref().expect("`hold` is taken only by `release` and by dropping the guard")
    }

    /// Passes the ticket on to the next task of this process, if a task waits and the ticket may be
    /// passed on. Otherwise the ticket stays in `hold`, and is released with it.
    fn pass_on(&mut self) {
        let wanted = self.here.is_wanted();
        let fenced = self.fenced.load(Ordering::Relaxed);
        let may_be =
            |hold: &Hold| hold.token().turn() < self.max_passes && !fenced && hold.is_held();
        if wanted
            && self.hold.as_ref().is_some_and(may_be)
            && let (Some(hold), Some(turn)) = (self.hold.take(), self.turn.take())
        {
            self.hold = self.here.pass(turn, hold);
        }
    }
}

impl Held for CohortGuard {
    fn token(&self) -> Token {
        self.held().token()
    }

    fn path(&self) -> &Path {
        self.held().path()
    }

    fn seen_path(&self) -> &Path {
        self.held().node.path()
    }

    fn is_held(&self) -> bool {
        self.held().is_held()
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.held().lost())
    }

    fn txn(&self) -> Txn {
        Self::txn(self)
    }

    async fn run<T: Send>(&self, work: impl Future<Output = T> + Send) -> Result<T> {
        self.held().run(work).await
    }
}

impl Release for CohortGuard {
    async fn release(self) -> Result<()> {
        Self::release(self).await
    }
}

impl Drop for CohortGuard {
    fn drop(&mut self) {
        self.pass_on();
    }
}
