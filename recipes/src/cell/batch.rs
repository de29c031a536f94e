//! [`Batch`]: changes that are decided one after the other, and written together.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use synod_core::clock::{self, Instant};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::Stat;
use tokio::sync::oneshot;

use crate::cell::guarded::discard;
use crate::cell::mark::{CellValue, DOING};
use crate::cell::update::Cost;
use crate::mutant::mistake;

/// What a change decides on.
#[derive(Clone, Debug, Default)]
pub(crate) struct CellState {
    /// `None` if there is no node.
    pub(crate) data: Option<Bytes>,
    /// Which version of the node has it. `None` if there is no node, or if an earlier change of the same write replaces it.
    pub(crate) stat: Option<Stat>,
}

/// A decision on a value: the bytes to write, or `None` to keep what is there.
pub(super) type Decide = Box<dyn FnMut(&CellState) -> Result<Option<Bytes>> + Send>;

/// A change that a task waits for. However it is dropped, its caller gets an answer.
pub(super) struct Pending {
    /// `None` once it is answered.
    change: Option<(Decide, oneshot::Sender<ChangeEnd>)>,
    since: Instant,
    tries: u32,
    /// Since when it waits for the lock or has it, and how many of the tries were made under it.
    promoted: Option<(Instant, u32)>,
    decided: Option<Result<Decided>>,
}

/// The end of a change.
pub(super) enum ChangeEnd {
    Ended(Result<Decided>),
    /// Its function panicked, with this payload.
    Panicked(Box<dyn Any + Send>),
    /// The task that writes has ended before it sent the change, as its runtime has: another one can write it.
    Unsent(Decide),
}

/// What a change did.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    pub(crate) before: Option<Bytes>,
    pub(crate) after: Option<Bytes>,
    /// Whether it wrote anything.
    pub(crate) written: bool,
    /// What the node has after the write that contains this change, or when the decision was confirmed; if that is known.
    pub(crate) last: Option<CellValue>,
    pub(crate) cost: Cost,
}

/// Changes in the order in which they were asked for.
pub(super) struct Batch(Vec<Pending>);

impl Pending {
    pub(super) fn new(decide: Decide, since: Instant, tell: oneshot::Sender<ChangeEnd>) -> Self {
        Self { change: Some((decide, tell)), since, tries: 0, promoted: None, decided: None }
    }

    /// Decides on a value, and returns the next one. A decision that panics or is too large for a node fails alone.
    fn decide(&mut self, found: CellState, limit: DataLimit<'_>) -> CellState {
        let Some((decide, _tell)) = &mut self.change else { return found };
        let decided = match catch_unwind(AssertUnwindSafe(|| decide(&found))) {
            Ok(decided) => decided.and_then(|next| limit.admit(next)),
            Err(payload) => {
                self.answer(ChangeEnd::Panicked(payload));
                return found;
            }
        };
        let next = decided.as_ref().ok().cloned().flatten();
        let (before, written) = (found.data.clone(), next.is_some());
        let next = if written { CellState { data: next, stat: None } } else { found };
        let after = next.data.clone();
        let (last, cost) = (None, Cost::default());
        self.decided = Some(decided.map(|_next| Decided { before, after, written, last, cost }));
        next
    }

    fn writes(&self) -> bool {
        matches!(&self.decided, Some(Ok(decided)) if decided.written)
    }

    /// Returns whether its caller waits for an answer.
    fn waits(&self) -> bool {
        self.change.as_ref().is_some_and(|(_decide, tell)| !tell.is_closed())
    }

    fn tell(mut self, last: Option<CellValue>) {
        let (promoted_time, promoted_tries) =
            self.promoted.map_or_else(Default::default, |(at, tries)| (clock::elapsed(at), tries));
        let (tries, time) = (self.tries, clock::elapsed(self.since));
        let cost = Cost { tries, time, promoted_tries, promoted_time };
        if let Some(decided) = self.decided.take() {
            self.answer(ChangeEnd::Ended(decided.map(|decided| Decided { last, cost, ..decided })));
        }
    }

    fn answer(&mut self, answer: ChangeEnd) {
        if let Some((decide, tell)) = self.change.take() {
            discard(decide);
            discard(tell.send(answer));
        }
    }
}

impl Drop for Pending {
    /// Answers a change whose task has ended early.
    fn drop(&mut self) {
        let Some((decide, tell)) = self.change.take() else { return };
        if self.tries == 0 {
            return discard(tell.send(ChangeEnd::Unsent(decide)));
        }
        discard(decide);
        discard(tell.send(ChangeEnd::Ended(Err(stopped().with_unknown_effect()))));
    }
}

/// The error of a change whose task has ended.
pub(super) fn stopped() -> Error {
    Error::new(ErrorKind::Backend, DOING).because("the task that writes has ended")
}

/// The limit of the store for the data of the node.
#[derive(Clone, Copy)]
pub(super) struct DataLimit<'a> {
    pub(super) path: &'a Path,
    pub(super) most: usize,
}

impl DataLimit<'_> {
    /// Returns the data that is to be written, if the node takes as much.
    fn admit(self, next: Option<Bytes>) -> Result<Option<Bytes>> {
        let Self { path, most } = self;
        match next {
            Some(data) if data.len() > most => {
                Err(Error::new(ErrorKind::TooLarge, DOING).at(path).because(format!(
                    "{} bytes of data, and this store takes {most} a node",
                    data.len()
                )))
            }
            next => Ok(next),
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
        self.0.retain(Pending::waits);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Decides all of them, each on the result of the one before. `None` if nothing is to be written.
    pub(super) fn decide(
        &mut self,
        value: Option<&CellValue>,
        limit: DataLimit<'_>,
    ) -> Option<Bytes> {
        let first = value.map_or_else(CellState::default, |value| CellState {
            data: Some(value.data.clone()),
            stat: Some(value.stat),
        });
        let last = self.0.iter_mut().fold(first.clone(), |found, change| {
            mistake!(SharesOneAnswer: let found = first.clone());
            change.decide(found, limit)
        });
        // Those that panicked are answered.
        self.0.retain(|change| change.change.is_some());
        let writes = self.0.iter().any(Pending::writes);
        last.data.filter(|_| writes)
    }

    /// Counts a try to write.
    pub(super) fn count(&mut self) {
        for change in &mut self.0 {
            change.tries += 1;
            if let Some((_since, tries)) = &mut change.promoted {
                *tries += 1;
            }
        }
    }

    /// From now on its time and its tries are those of promoted changes.
    pub(super) fn promote(&mut self) {
        for change in &mut self.0 {
            change.promoted.get_or_insert_with(|| (clock::now(), 0));
        }
    }

    /// Waits until no caller waits any more.
    pub(super) async fn given_up(&mut self) {
        for (_decide, tell) in self.0.iter_mut().filter_map(|change| change.change.as_mut()) {
            tell.closed().await;
        }
    }

    /// Answers each as it was decided, with what the node has now.
    pub(super) fn answer(self, last: Option<&CellValue>) {
        for change in self.0 {
            change.tell(last.cloned());
        }
    }

    /// Fails all of them.
    pub(super) fn fail(self, error: &Error) {
        for mut change in self.0 {
            change.answer(ChangeEnd::Ended(Err(error.clone())));
        }
    }
}
