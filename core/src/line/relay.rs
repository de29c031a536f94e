//! [`PassingGuard`]: what a task holds and may pass on to the next task of its process.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

use crate::clock;
use crate::error::Result;
use crate::line::hold::Hold;
use crate::line::token::Token;
use crate::line::{Line, meter};
use crate::mutant::{self, Mutant};
use crate::path::Path;
use crate::store::Txn;

/// What the tasks of this process share.
#[derive(Default)]
pub(crate) struct Here {
    /// Whose turn it is among them, and what was passed on to him.
    turn: Arc<Turn<Option<Hold>>>,
    waiting: AtomicUsize,
}

/// The lock, held.
#[derive(Debug)]
#[must_use = "the lock is given back when this is dropped"]
pub struct PassingGuard {
    hold: Option<Hold>,
    turn: OwnedMutexGuard<Option<Hold>>,
    here: Arc<Here>,
    most: u32,
    fenced: AtomicBool,
}

/// Somebody who waits for his turn.
struct Waits<'a>(&'a Here);

/// Waits for what is passed on here, up to `most` times, or else for the line.
pub(crate) async fn enter(line: &Line, here: &Arc<Here>, most: u32) -> Result<PassingGuard> {
    let (since, waits) = (clock::now(), Waits::new(here));
    let mut turn = here.turn.clone().lock_owned().await;
    drop(waits);
    let hold = match turn.take().filter(Hold::is_held) {
        Some(hold) => {
            meter::called(line.form().recipe, clock::elapsed(since), 0);
            hold.passed_on()
        }
        None => line.enter().await?.hold(()),
    };
    let (here, fenced) = (here.clone(), AtomicBool::new(false));
    Ok(PassingGuard { hold: Some(hold), turn, here, most, fenced })
}

impl fmt::Debug for Here {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Here").finish_non_exhaustive()
    }
}

impl<'a> Waits<'a> {
    fn new(here: &'a Here) -> Self {
        here.waiting.fetch_add(1, Ordering::Relaxed);
        Self(here)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
        // It may have been passed on to this one, who does not come for it. If nobody else is about to, it
        // goes back.
        if !mutant::is(Mutant::PassedForgotten)
            && let Ok(mut turn) = self.0.turn.try_lock()
        {
            drop(turn.take());
        }
    }
}

impl PassingGuard {
    /// The number to give to systems outside. Larger for whoever holds it later, of this process or another.
    pub fn token(&self) -> Token {
        self.held().token()
    }

    /// The node that stands for it.
    pub fn path(&self) -> &Path {
        self.held().path()
    }

    #[doc(hidden)]
    pub fn seen_path(&self) -> &Path {
        self.held().seen_path()
    }

    /// Whether it is certainly held at this moment. See [`Hold::is_held`].
    pub fn is_held(&self) -> bool {
        self.held().is_held()
    }

    /// Waits until it is lost.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches.
    pub async fn lost(&self) {
        self.held().lost().await;
    }

    /// A transaction that happens only while this is held. See [`Hold::txn`]. From now on this guard is not
    /// passed on, but given back.
    pub fn txn(&self) -> Txn {
        self.fenced.store(true, Ordering::Relaxed);
        self.held().txn()
    }

    /// Does something while it is held. See [`Hold::run`].
    ///
    /// # Errors
    ///
    /// As [`Hold::run`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call drops `work`.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        self.held().run(work).await
    }

    /// Passes it on to the next task here, if one waits and it may be, or gives it back.
    ///
    /// # Errors
    ///
    /// As [`Hold::release`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call goes on in the background.
    pub async fn release(mut self) -> Result<()> {
        self.pass_on();
        match self.hold.take() {
            Some(hold) => hold.release().await,
            None => Ok(()),
        }
    }

    fn held(&self) -> &Hold {
        self.hold.as_ref().expect("only who lets go takes it")
    }

    fn pass_on(&mut self) {
        let wanted = self.here.waiting.load(Ordering::Relaxed) > 0;
        let fenced = self.fenced.load(Ordering::Relaxed) && !mutant::is(Mutant::PassesFenced);
        let may_be = |hold: &Hold| {
            (hold.token().turn() < self.most || mutant::is(Mutant::PassesForEver))
                && !fenced
                && hold.is_held()
        };
        if wanted && self.hold.as_ref().is_some_and(may_be) {
            *self.turn = self.hold.take();
        }
    }
}

impl Drop for PassingGuard {
    fn drop(&mut self) {
        self.pass_on();
    }
}
