//! [`Batch`]: changes that are decided one after the other, and written together.

use bytes::Bytes;
use synod_core::clock::{self, Instant};
use synod_core::error::{Error, Result};
use tokio::sync::oneshot;

use crate::cell::update::Cost;
use crate::mutant::mistake;

/// A decision on a value: the bytes to write, or `None` to keep what is there.
pub(super) type Decide = Box<dyn FnMut(Option<&Bytes>) -> Result<Option<Bytes>> + Send>;

/// A change that a task waits for.
pub(super) struct Pending {
    decide: Decide,
    since: Instant,
    tries: u32,
    decided: Option<Result<Decided>>,
    tell: oneshot::Sender<Result<Decided>>,
}

/// What a change did.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    pub(crate) before: Option<Bytes>,
    pub(crate) after: Option<Bytes>,
    /// Whether it wrote anything.
    pub(crate) written: bool,
    pub(crate) cost: Cost,
}

/// Changes in the order in which they were asked for.
pub(super) struct Batch(Vec<Pending>);

impl Pending {
    pub(super) fn new(
        decide: Decide,
        since: Instant,
        tell: oneshot::Sender<Result<Decided>>,
    ) -> Self {
        Self { decide, since, tries: 0, decided: None, tell }
    }

    /// Decides on a value, and returns the next one.
    fn decide(&mut self, before: Option<Bytes>) -> Option<Bytes> {
        let decided = (self.decide)(before.as_ref());
        let next = decided.as_ref().ok().cloned().flatten();
        let written = next.is_some();
        let after = next.or_else(|| before.clone());
        self.decided = Some(decided.map(|_next| Decided {
            before,
            after: after.clone(),
            written,
            cost: Cost::default(),
        }));
        after
    }

    fn writes(&self) -> bool {
        matches!(&self.decided, Some(Ok(decided)) if decided.written)
    }

    fn tell(self) {
        let cost = Cost { tries: self.tries, time: clock::elapsed(self.since) };
        if let Some(decided) = self.decided {
            let _heard = self.tell.send(decided.map(|decided| Decided { cost, ..decided })).is_ok();
        }
    }
}

impl Batch {
    pub(super) fn new(changes: Vec<Pending>) -> Self {
        Self(changes)
    }

    /// Adds changes, and drops those whose callers are gone: none of them was sent.
    pub(super) fn renew(&mut self, more: Vec<Pending>) {
        self.0.extend(more);
        self.0.retain(|change| !change.tell.is_closed());
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Decides all of them, each on the result of the one before. `None` if nothing is to be written.
    pub(super) fn decide(&mut self, value: Option<&Bytes>) -> Option<Bytes> {
        let first = value.cloned();
        let last = self.0.iter_mut().fold(first.clone(), |value, change| {
            mistake!(SharesOneAnswer: let value = first.clone());
            change.decide(value)
        });
        let writes = self.0.iter().any(Pending::writes);
        last.filter(|_| writes)
    }

    /// Counts a try to write.
    pub(super) fn count(&mut self) {
        for change in &mut self.0 {
            change.tries += 1;
        }
    }

    /// Answers each as it was decided.
    pub(super) fn answer(self) {
        self.0.into_iter().for_each(Pending::tell);
    }

    /// Fails all of them.
    pub(super) fn fail(self, error: &Error) {
        for change in self.0 {
            let _heard = change.tell.send(Err(error.clone())).is_ok();
        }
    }
}
