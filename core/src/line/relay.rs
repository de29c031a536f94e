//! [`PassingGuard`]: what a task holds and may pass on to the next task of its process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::clock;
use crate::error::Result;
use crate::line::handover::{Handover, SlotTurn};
use crate::line::hold::Hold;
use crate::line::token::Token;
use crate::line::{Line, meter};
use crate::mutant::{self, Mutant};
use crate::path::Path;
use crate::store::Txn;

/// What the tasks of this process share: whose turn it is among them, and the ticket that is passed on.
pub(crate) type Here = Handover<Hold>;

/// The lock, held.
#[derive(Debug)]
#[must_use = "the lock is given back when this is dropped"]
pub struct PassingGuard {
    hold: Option<Hold>,
    turn: Option<SlotTurn<Hold>>,
    here: Arc<Here>,
    most: u32,
    fenced: AtomicBool,
}

/// Waits for what is passed on here, up to `most` times, or else for the line.
pub(crate) async fn enter(line: &Line, here: &Arc<Here>, most: u32) -> Result<PassingGuard> {
    let since = clock::now();
    let (turn, passed) = here.turn().await;
    let hold = match passed.filter(Hold::is_held) {
        Some(hold) => {
            meter::called(line.form().recipe, clock::elapsed(since), 0);
            hold.passed_on()
        }
        None => line.enter().await?.hold(()),
    };
    let (here, fenced) = (here.clone(), AtomicBool::new(false));
    Ok(PassingGuard { hold: Some(hold), turn: Some(turn), here, most, fenced })
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

    /// Leaves the ticket to the next task here, if it may have it and there is one. Otherwise the ticket stays in
    /// `hold`, and goes when that does.
    fn pass_on(&mut self) {
        let wanted = self.here.is_wanted();
        let fenced = self.fenced.load(Ordering::Relaxed) && !mutant::is(Mutant::PassesFenced);
        let may_be = |hold: &Hold| {
            (hold.token().turn() < self.most || mutant::is(Mutant::PassesForEver))
                && !fenced
                && hold.is_held()
        };
        if wanted
            && self.hold.as_ref().is_some_and(may_be)
            && let (Some(hold), Some(turn)) = (self.hold.take(), self.turn.take())
        {
            self.hold = self.here.pass(turn, hold);
        }
    }
}

impl Drop for PassingGuard {
    fn drop(&mut self) {
        self.pass_on();
    }
}
