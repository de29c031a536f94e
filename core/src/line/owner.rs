//! [`Owner`]: who may enter again, and what each of them has.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as Plain, PoisonError, Weak};

use tokio::sync::Mutex as AsyncMutex;

use crate::line::hold::Hold;
use crate::mutant::{self, Mutant};

/// Who locks. Clones are the same owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(u64);

/// What each owner has, with a turn for each who shows his value, so that they do not both go and ask.
#[derive(Default)]
pub(crate) struct Owners {
    turns: Plain<BTreeMap<Owner, OwnerSlot>>,
}

/// What one owner has, if he has it still.
pub(crate) type OwnerSlot = Arc<AsyncMutex<Weak<Hold>>>;

impl Owner {
    /// An owner that nobody else is.
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Default for Owner {
    fn default() -> Self {
        Self::new()
    }
}

impl Owners {
    /// What this one has, for whoever has the turn among those who show his value.
    pub(crate) fn own(&self, owner: &Owner) -> OwnerSlot {
        let owner = if mutant::is(Mutant::OwnersMixedUp) { &Owner(0) } else { owner };
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever has nothing, and asks for nothing, is forgotten.
        turns.retain(|other, turn| {
            let idle = turn.try_lock().is_ok_and(|own| own.strong_count() == 0);
            other == owner || !idle || Arc::strong_count(turn) > 1
        });
        turns.entry(owner.clone()).or_default().clone()
    }
}

impl fmt::Debug for Owners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owners").finish_non_exhaustive()
    }
}
