//! The mistake that is switched on: one at a time, for each thread.

use std::cell::Cell;

use super::Mutant;

thread_local! {
    static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Returns `true` if this mistake is switched on for this thread.
pub fn is(mutant: Mutant) -> bool {
    ACTIVE.get() == Some(mutant)
}

/// Runs `work` with this mistake switched on for everything that runs on this thread.
pub fn with<T>(mutant: Mutant, work: impl FnOnce() -> T) -> T {
    /// Switches the mistake off again, after a panic too.
    struct Off;
    impl Drop for Off {
        fn drop(&mut self) {
            ACTIVE.set(None);
        }
    }

    ACTIVE.set(Some(mutant));
    let _off = Off;
    work()
}
