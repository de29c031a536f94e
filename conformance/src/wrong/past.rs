//! [`Past`]: the earlier answers of one session.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use synod_core::store::View;
use tokio::time::Instant;

/// Earlier answers of a session.
#[derive(Debug, Default)]
pub(super) struct Past(Mutex<Remembered>);

#[derive(Debug, Default)]
pub(super) struct Remembered {
    pub(super) views: BTreeMap<String, Vec<View>>,
    pub(super) last_call: Option<Instant>,
    pub(super) forgetful: bool,
}

impl Past {
    pub(super) fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the earlier answers. Called when the session has a newer state.
    pub(super) fn forget(&self) {
        self.lock().views.clear();
    }
}
