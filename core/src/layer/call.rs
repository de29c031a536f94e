//! One call in [`trace`](super::trace), from its start to its end or until it is dropped.

use std::time::Duration;

use crate::clock::{self, Instant};

use crate::error::{Error, ErrorKind, Result};
use crate::layer::meter;
use crate::path::Path;
use crate::store::{Outcome, Rejected};

/// A call that was started. Logs and counts its end, even if it is dropped before.
pub(super) struct Call {
    verb: &'static str,
    path: Option<Path>,
    operations: usize,
    started: Instant,
    ended: bool,
}

impl Call {
    pub(super) fn start(verb: &'static str, path: Option<&Path>, operations: usize) -> Self {
        Self { verb, path: path.cloned(), operations, started: clock::now(), ended: false }
    }

    pub(super) fn end<T>(mut self, result: Result<T>) -> Result<T> {
        match &result {
            Ok(_) => self.log_answer("done", None),
            Err(error) => self.log_failure(error),
        }
        result
    }

    pub(super) fn end_commit(mut self, result: Result<Outcome>) -> Result<Outcome> {
        match &result {
            Ok(Outcome::Committed(_)) => self.log_answer("done", None),
            Ok(Outcome::Rejected(rejected)) => self.log_answer("rejected", Some(rejected)),
            Err(error) => self.log_failure(error),
        }
        result
    }

    fn log_answer(&mut self, outcome: &'static str, rejected: Option<&Rejected>) {
        let took = self.count(outcome);
        let path = self.path.as_ref().map(tracing::field::display);
        let why = rejected.map(|rejected| tracing::field::display(rejected.reason));
        let (verb, operations) = (self.verb, self.operations);
        tracing::debug!(verb, path, operations, outcome, why, ?took, "answered");
    }

    fn log_failure(&mut self, error: &Error) {
        let outcome = label(error.kind());
        let took = self.count(outcome);
        let path = self.path.as_ref().map(tracing::field::display);
        let effect = error.has_unknown_effect().then_some("unknown");
        let (verb, operations) = (self.verb, self.operations);
        if error.kind().is_outage() {
            // Most are repeated, and each that is not has a caller that gets the error.
            tracing::debug!(verb, path, operations, outcome, effect, ?took, "failed");
        } else {
            tracing::warn!(verb, path, operations, outcome, effect, ?took, "failed");
        }
    }

    fn count(&mut self, outcome: &'static str) -> Duration {
        self.ended = true;
        let took = clock::elapsed(self.started);
        meter::record_call(self.verb, outcome, took);
        took
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.ended {
            self.log_answer("dropped", None);
        }
    }
}

fn label(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Unreachable => "unreachable",
        ErrorKind::SessionLost => "session_lost",
        ErrorKind::Denied => "denied",
        ErrorKind::Invalid => "invalid",
        ErrorKind::TooLarge => "too_large",
        ErrorKind::Unsupported => "unsupported",
        ErrorKind::Corrupt => "corrupt",
        ErrorKind::Refused => "refused",
        ErrorKind::Backend => "backend",
    }
}
