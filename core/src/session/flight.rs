//! The state of the requests of a write in flight: [`Flight`].

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// The state of the requests of a write that has not ended.
#[derive(Debug, Default)]
pub(super) struct Flight {
    sending: AtomicBool,
    unsure: AtomicBool,
    repeated: AtomicBool,
    abandoned: AtomicBool,
}

impl Flight {
    /// Waits for the result of a request, and records whether its effect is unknown.
    pub(super) async fn send<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        if self.unsure.load(Ordering::Relaxed) {
            self.repeated.store(true, Ordering::Relaxed);
        }
        self.sending.store(true, Ordering::Relaxed);
        let result = call.await;
        if result.as_ref().is_err_and(Error::has_unknown_effect) {
            self.unsure.store(true, Ordering::Relaxed);
        }
        self.sending.store(false, Ordering::Relaxed);
        result
    }

    /// Returns `true` if a request may have been applied, or may still be.
    pub(super) fn is_unsure(&self) -> bool {
        self.sending.load(Ordering::Relaxed) || self.unsure.load(Ordering::Relaxed)
    }

    /// Returns `true` if the write was sent again while the effect of the first request was
    /// unknown.
    pub(super) fn is_repeated(&self) -> bool {
        self.repeated.load(Ordering::Relaxed)
    }

    /// Records that callers no longer wait for the outcome.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if callers no longer wait for the outcome.
    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }
}
