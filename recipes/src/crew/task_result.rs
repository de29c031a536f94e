//! [`TaskResult`]: the result of a task, and the writes that are applied with it.

use std::fmt;

use bytes::Bytes;
use synod_core::store::Txn;

/// The result of the work on a task. The bytes alone can be returned as a result, too.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TaskResult {
    pub(super) bytes: Bytes,
    pub(super) writes: Txn,
}

impl TaskResult {
    /// Creates a result with these bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), writes: Txn::new() }
    }

    /// Adds the operations of a transaction, which are applied together with the end of the task:
    /// all of them, if the result is accepted, or none. So they are applied once, however often the
    /// task is executed.
    ///
    /// The transaction needs no check that the worker has the task. If the store rejects one of its
    /// operations, the attempt has failed, for that reason, and is retried as after an error. A
    /// query of the transaction is not answered.
    pub fn with(mut self, writes: Txn) -> Self {
        self.writes.ops.extend(writes.ops);
        self
    }
}

impl<T: Into<Bytes>> From<T> for TaskResult {
    fn from(bytes: T) -> Self {
        Self::new(bytes)
    }
}

/// Omits the bytes and the data of the writes, which are the application's.
impl fmt::Debug for TaskResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskResult")
            .field("bytes", &self.bytes.len())
            .field("writes", &self.writes.ops.len())
            .finish()
    }
}
