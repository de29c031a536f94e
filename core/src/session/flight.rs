//! [`Flight`]: what is known of a write while its requests are on their way.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// What is known of a write that has not ended.
#[derive(Debug, Default)]
pub(super) struct Flight {
    sending: AtomicBool,
    unsure: AtomicBool,
    repeated: AtomicBool,
    abandoned: AtomicBool,
}

impl Flight {
    /// Waits for a write that is sent, and notes whether its effect is unknown.
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

    /// Whether a write may have happened, or may still.
    pub(super) fn is_unsure(&self) -> bool {
        self.sending.load(Ordering::Relaxed) || self.unsure.load(Ordering::Relaxed)
    }

    /// Whether it was sent again while the effect of the first request was unknown.
    pub(super) fn is_repeated(&self) -> bool {
        self.repeated.load(Ordering::Relaxed)
    }

    /// Notes that no caller waits for the outcome any more.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Whether no caller waits for the outcome any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }
}
