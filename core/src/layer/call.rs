//! One call as [`trace`](super::trace) sees it, from its start to its end or to where it is dropped.

use std::time::Duration;

use crate::clock::{self, Instant};

use crate::error::{Error, ErrorKind, Result};
use crate::layer::meter;
use crate::path::Path;
use crate::store::{Outcome, Rejected};

/// A call that was started. If it is dropped before its end, it logs and counts that.
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
            Ok(_) => self.answered("done", None),
            Err(error) => self.failed(error),
        }
        result
    }

    pub(super) fn end_commit(mut self, result: Result<Outcome>) -> Result<Outcome> {
        match &result {
            Ok(Outcome::Committed(_)) => self.answered("done", None),
            Ok(Outcome::Rejected(rejected)) => self.answered("rejected", Some(rejected)),
            Err(error) => self.failed(error),
        }
        result
    }

    fn answered(&mut self, outcome: &'static str, rejected: Option<&Rejected>) {
        let took = self.count(outcome);
        let path = self.path.as_ref().map(tracing::field::display);
        let why = rejected.map(|rejected| tracing::field::display(rejected.reason));
        let (verb, operations) = (self.verb, self.operations);
        tracing::debug!(verb, path, operations, outcome, why, ?took, "answered");
    }

    fn failed(&mut self, error: &Error) {
        let outcome = label(error.kind());
        let took = self.count(outcome);
        let path = self.path.as_ref().map(tracing::field::display);
        let effect = error.has_unknown_effect().then_some("unknown");
        let (verb, operations) = (self.verb, self.operations);
        tracing::warn!(verb, path, operations, outcome, effect, ?took, "failed");
    }

    fn count(&mut self, outcome: &'static str) -> Duration {
        self.ended = true;
        let took = clock::elapsed(self.started);
        meter::called(self.verb, outcome, took);
        took
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.ended {
            self.answered("dropped", None);
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
