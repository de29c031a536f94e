//! [`TaskStatus`] and [`TaskEnd`]: the state of a task. [`TaskRecord`]: the content of its node.

use std::fmt;

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Node, Version};
use synod_core::value::{decode, encode};

/// The status of a task.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskStatus {
    /// The task waits until it is assigned.
    Waiting,
    /// A worker has the task, or had it and was lost.
    Assigned,
    /// The task is finished.
    Over(TaskEnd),
}

/// The end of a task.
#[derive(Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a submitter must distinguish them")]
pub enum TaskEnd {
    /// The task was done, with this result.
    Done(Bytes),
    /// The last attempt failed, with this error message.
    Failed(String),
    /// The task was cancelled: no result was accepted, nor will be.
    Cancelled,
    /// The task was not finished by its [deadline](crate::crew::NewTask::deadline): no result was
    /// accepted, nor will be.
    Expired,
}

/// Omits the result, which is the application's.
impl fmt::Debug for TaskStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting => f.write_str("Waiting"),
            Self::Assigned => f.write_str("Assigned"),
            Self::Over(end) => f.debug_tuple("Over").field(end).finish(),
        }
    }
}

/// Omits the result, which is the application's.
impl fmt::Debug for TaskEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(result) => write!(f, "Done({} bytes)", result.len()),
            Self::Failed(_) => f.write_str("Failed(..)"),
            Self::Cancelled => f.write_str("Cancelled"),
            Self::Expired => f.write_str("Expired"),
        }
    }
}

/// The state of a task, as its node holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(super) enum TaskState {
    Open {
        /// The number of failed attempts.
        failed: u32,
    },
    Done,
    Failed,
    Cancelled,
    Expired,
}

/// The content of the node of a task: a line of JSON with the state, followed by bytes. These are
/// the data of an open task, or the result of one that is done.
#[derive(Clone, Debug)]
pub(super) struct TaskRecord {
    pub(super) state: TaskState,
    pub(super) bytes: Bytes,
    /// The version of the node that was read.
    pub(super) version: Version,
}

impl TaskRecord {
    /// Reads the node of a task.
    pub(super) fn of(node: &Node) -> Result<Self> {
        let end = node.data.iter().position(|byte| *byte == b'\n');
        let (Some(end), Some(stat)) = (end, node.stat) else {
            return Err(Error::new(ErrorKind::Corrupt, "reading a task")
                .at(&node.path)
                .because("the node holds no task"));
        };
        let state = decode(&node.path, &node.data[..end])?;
        Ok(Self { state, bytes: node.data.slice(end + 1..), version: stat.version })
    }

    /// Returns how the task ended, or `None` if it is open.
    pub(super) fn end(&self) -> Option<TaskEnd> {
        match self.state {
            TaskState::Open { .. } => None,
            TaskState::Done => Some(TaskEnd::Done(self.bytes.clone())),
            TaskState::Failed => {
                Some(TaskEnd::Failed(String::from_utf8_lossy(&self.bytes).into_owned()))
            }
            TaskState::Cancelled => Some(TaskEnd::Cancelled),
            TaskState::Expired => Some(TaskEnd::Expired),
        }
    }
}

/// Returns how the task with this node ended, or `None` while it is open. A missing task counts as
/// ended.
pub(super) fn ended(node: Option<&Node>) -> Option<Result<Option<TaskEnd>>> {
    let Some(node) = node else { return Some(Ok(None)) };
    TaskRecord::of(node).map(|record| record.end()).transpose().map(|end| end.map(Some))
}

impl TaskState {
    /// Serializes a task in this state.
    pub(super) fn with(self, path: &Path, bytes: &[u8]) -> Result<Bytes> {
        let state = encode(path, &self)?;
        let mut data = BytesMut::with_capacity(state.len() + 1 + bytes.len());
        data.extend_from_slice(&state);
        data.extend_from_slice(b"\n");
        data.extend_from_slice(bytes);
        Ok(data.freeze())
    }
}

#[cfg(test)]
mod tests {
    use synod_core::path;
    use synod_core::store::{Revision, Stat};

    use super::*;

    fn node(data: Bytes) -> Node {
        let stat = Stat::new(Revision::new(1), Revision::new(2), Version::new(3), None);
        Node::new(path!("/crew/tasks/a")).with(data, stat)
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for (state, end) in [
            (TaskState::Open { failed: 2 }, None),
            (TaskState::Done, Some(TaskEnd::Done(Bytes::from_static(b"a\nb\xff")))),
            (TaskState::Failed, Some(TaskEnd::Failed("a\nb\u{fffd}".to_owned()))),
            (TaskState::Cancelled, Some(TaskEnd::Cancelled)),
            (TaskState::Expired, Some(TaskEnd::Expired)),
        ] {
            let data = state.with(&path!("/crew/tasks/a"), b"a\nb\xff").expect("JSON");
            let record = TaskRecord::of(&node(data)).expect("a record");
            assert_eq!((record.state, record.end()), (state, end));
            assert_eq!((&record.bytes[..], record.version), (&b"a\nb\xff"[..], Version::new(3)));
        }
    }

    #[test]
    fn other_content_is_an_error() {
        for data in [&b""[..], b"not ours", b"{}\n", b"{\"state\":\"other\"}\n"] {
            let error = TaskRecord::of(&node(Bytes::from_static(data))).expect_err("no task");
            assert_eq!(error.kind(), ErrorKind::Corrupt);
        }
    }
}
