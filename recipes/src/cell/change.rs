//! [`ChangeBatch`]: changes of one value that are decided one after the other, and written
//! together.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bytes::Bytes;
use synod_core::clock::{self, Instant};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Node, Stat};
use tokio::sync::oneshot;

use crate::cell::codec::discard;
use crate::mutant::mistake;

/// The action that errors of a change name.
pub(super) const DOING: &str = "changing a value";

/// The values of type `B` before a change and `A` after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Update<B, A = B> {
    /// The value before the change.
    pub before: B,
    /// The value after the change.
    pub after: A,
    /// The attempts and the time that the change took.
    pub cost: Cost,
}

/// The attempts and the time that a change of a value took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cost {
    /// The number of attempts to write: 1 if no other client interfered, 0 if nothing had to be
    /// written. A write that is sent again because its answer was lost is one attempt.
    pub tries: u32,
    /// The time from the call to the answer.
    pub time: Duration,
    /// The number of attempts under the lock of a [`Promotion`](crate::value::Promotion).
    pub promoted_tries: u32,
    /// The part of the time that was spent waiting for that lock and holding it.
    pub promoted_time: Duration,
}

impl<B, A> Update<B, A> {
    pub(crate) fn new(before: B, after: A, cost: Cost) -> Self {
        Self { before, after, cost }
    }
}

/// A value of the store, and the version of the node that has it.
#[derive(Clone, Debug)]
pub(crate) struct StoredValue {
    pub(crate) data: Bytes,
    pub(crate) stat: Stat,
}

impl StoredValue {
    pub(super) fn of(node: Node) -> Option<Self> {
        Some(Self { stat: node.stat?, data: node.data })
    }
}

/// The value that a decision is made on.
#[derive(Clone, Debug, Default)]
pub(crate) struct CurrentValue {
    /// `None` if there is no node.
    pub(crate) data: Option<Bytes>,
    /// The version of the node with this value. `None` if there is no node, or if an earlier change
    /// of the same batch replaces the value.
    pub(crate) stat: Option<Stat>,
}

/// A decision on a value: the bytes to write, or `None` to keep the value.
pub(super) type Decide = Box<dyn FnMut(&CurrentValue) -> Result<Option<Bytes>> + Send>;

/// A change that a call waits for. The call gets an answer even if the change is dropped.
pub(super) struct PendingChange {
    /// `None` once it is answered.
    change: Option<(Decide, oneshot::Sender<ChangeEnd>)>,
    since: Instant,
    tries: u32,
    /// The time at which the change was promoted, and the number of attempts since then.
    promoted: Option<(Instant, u32)>,
    decided: Option<Result<Decided>>,
}

/// The end of a change.
pub(super) enum ChangeEnd {
    Ended(Result<Decided>),
    /// The decision panicked, with this payload.
    Panicked(Box<dyn Any + Send>),
    /// The writing task ended with its runtime before it sent the change: another task can write
    /// it.
    Unsent(Decide),
}

/// The result of a change.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    pub(crate) before: Option<Bytes>,
    pub(crate) after: Option<Bytes>,
    /// True if the change replaced the value.
    pub(crate) written: bool,
    /// The value of the node after the write of the batch, or when the decision was confirmed;
    /// `None` if it is not known.
    pub(crate) last: Option<StoredValue>,
    pub(crate) cost: Cost,
}

impl PendingChange {
    pub(super) fn new(decide: Decide, since: Instant, reply: oneshot::Sender<ChangeEnd>) -> Self {
        Self { change: Some((decide, reply)), since, tries: 0, promoted: None, decided: None }
    }

    /// Decides on a value, and returns the next one. A decision that panics or is too large for a
    /// node fails alone.
    fn decide(&mut self, found: CurrentValue, limit: DataLimit<'_>) -> CurrentValue {
        let Some((decide, _reply)) = &mut self.change else { return found };
        let decided = match catch_unwind(AssertUnwindSafe(|| decide(&found))) {
            Ok(decided) => decided.and_then(|next| limit.check(next)),
            Err(payload) => {
                self.answer(ChangeEnd::Panicked(payload));
                return found;
            }
        };
        let next = decided.as_ref().ok().cloned().flatten();
        let (before, written) = (found.data.clone(), next.is_some());
        let next = if written { CurrentValue { data: next, stat: None } } else { found };
        let after = next.data.clone();
        let (last, cost) = (None, Cost::default());
        self.decided = Some(decided.map(|_next| Decided { before, after, written, last, cost }));
        next
    }

    /// Returns `true` if the decision was to write.
    fn writes(&self) -> bool {
        matches!(&self.decided, Some(Ok(decided)) if decided.written)
    }

    /// Returns `true` if its call is still waiting.
    fn has_caller(&self) -> bool {
        self.change.as_ref().is_some_and(|(_decide, reply)| !reply.is_closed())
    }

    /// Answers the call with the decision.
    fn complete(mut self, last: Option<StoredValue>) {
        let (promoted_time, promoted_tries) =
            self.promoted.map_or_else(Default::default, |(at, tries)| (clock::elapsed(at), tries));
        let (tries, time) = (self.tries, clock::elapsed(self.since));
        let cost = Cost { tries, time, promoted_tries, promoted_time };
        if let Some(decided) = self.decided.take() {
            self.answer(ChangeEnd::Ended(decided.map(|decided| Decided { last, cost, ..decided })));
        }
    }

    fn answer(&mut self, answer: ChangeEnd) {
        if let Some((decide, reply)) = self.change.take() {
            discard(decide);
            discard(reply.send(answer));
        }
    }
}

impl Drop for PendingChange {
    /// Answers a change whose task has ended early.
    fn drop(&mut self) {
        let Some((decide, reply)) = self.change.take() else { return };
        if self.tries == 0 {
            return discard(reply.send(ChangeEnd::Unsent(decide)));
        }
        discard(decide);
        discard(reply.send(ChangeEnd::Ended(Err(writer_ended().with_unknown_effect()))));
    }
}

/// The error of a change whose task has ended.
pub(super) fn writer_ended() -> Error {
    Error::new(ErrorKind::Backend, DOING).because("the task that writes has ended")
}

/// The limit of the store for the data of the node.
#[derive(Clone, Copy)]
pub(super) struct DataLimit<'a> {
    pub(super) path: &'a Path,
    pub(super) max: usize,
}

impl DataLimit<'_> {
    /// Returns the data to write, unless the store refuses data of this size.
    fn check(self, next: Option<Bytes>) -> Result<Option<Bytes>> {
        let Self { path, max } = self;
        match next {
            Some(data) if data.len() > max => {
                Err(Error::new(ErrorKind::TooLarge, DOING).at(path).because(format!(
                    "{} bytes of data, and this store takes {max} a node",
                    data.len()
                )))
            }
            next => Ok(next),
        }
    }
}

/// Changes in the order of their calls.
pub(super) struct ChangeBatch(Vec<PendingChange>);

impl ChangeBatch {
    pub(super) fn new(changes: Vec<PendingChange>) -> Self {
        Self(changes)
    }

    /// Adds changes, and drops those without a caller: none of them was sent.
    pub(super) fn renew(&mut self, more: Vec<PendingChange>) {
        self.0.extend(more);
        self.0.retain(PendingChange::has_caller);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Decides all changes, each on the result of the one before. `None` if nothing is to be
    /// written.
    pub(super) fn decide(
        &mut self,
        value: Option<&StoredValue>,
        limit: DataLimit<'_>,
    ) -> Option<Bytes> {
        let first = value.map_or_else(CurrentValue::default, |value| CurrentValue {
            data: Some(value.data.clone()),
            stat: Some(value.stat),
        });
        let last = self.0.iter_mut().fold(first.clone(), |found, change| {
            mistake!(SharesOneAnswer: let found = first.clone());
            change.decide(found, limit)
        });
        // The changes that panicked were already answered.
        self.0.retain(|change| change.change.is_some());
        let writes = self.0.iter().any(PendingChange::writes);
        last.data.filter(|_| writes)
    }

    /// Counts an attempt to write.
    pub(super) fn count_try(&mut self) {
        for change in &mut self.0 {
            change.tries += 1;
            if let Some((_since, tries)) = &mut change.promoted {
                *tries += 1;
            }
        }
    }

    /// Counts the time and the attempts from now on as promoted.
    pub(super) fn promote(&mut self) {
        for change in &mut self.0 {
            change.promoted.get_or_insert_with(|| (clock::now(), 0));
        }
    }

    /// Waits until no call waits for any of the changes.
    pub(super) async fn abandoned(&mut self) {
        for (_decide, reply) in self.0.iter_mut().filter_map(|change| change.change.as_mut()) {
            reply.closed().await;
        }
    }

    /// Answers each call with its decision and the current value of the node.
    pub(super) fn answer(self, last: Option<&StoredValue>) {
        for change in self.0 {
            change.complete(last.cloned());
        }
    }

    /// Fails all changes.
    pub(super) fn fail(self, error: &Error) {
        for mut change in self.0 {
            change.answer(ChangeEnd::Ended(Err(error.clone())));
        }
    }
}
