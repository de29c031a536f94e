//! [`TaskRecord`]: what the node of a task holds.
//!
//! A line of JSON with the state of the task, and then bytes: the data of an open task, or the result of one that is done.

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Node, Version};
use synod_core::value::{decode, encode};

use crate::crew::task_end::TaskEnd;

/// How a task is, as its node holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(super) enum TaskState {
    Open {
        /// How many attempts have failed.
        failed: u32,
    },
    Done,
    Failed,
    Cancelled,
    Expired,
}

/// The content of the node of a task.
#[derive(Clone, Debug)]
pub(super) struct TaskRecord {
    pub(super) state: TaskState,
    pub(super) bytes: Bytes,
    /// The version that it was read in.
    pub(super) version: Version,
}

impl TaskRecord {
    /// What the node of a task holds.
    pub(super) fn of(node: &Node) -> Result<Self> {
        let end = node.data.iter().position(|byte| *byte == b'\n');
        let (Some(end), Some(stat)) = (end, node.stat) else {
            return Err(Error::new(ErrorKind::Corrupt, "reading a task")
                .at(&node.path)
                .because("it is no task"));
        };
        let state = decode(&node.path, &node.data[..end])?;
        Ok(Self { state, bytes: node.data.slice(end + 1..), version: stat.version })
    }

    /// How the task ended, if it has.
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

impl TaskState {
    /// The content of the node of a task in this state.
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
    fn what_was_written_is_read_again() {
        for (state, end) in [
            (TaskState::Open { failed: 2 }, None),
            (TaskState::Done, Some(TaskEnd::Done(Bytes::from_static(b"a\nb\xff")))),
            (TaskState::Failed, Some(TaskEnd::Failed("a\nb\u{fffd}".to_owned()))),
            (TaskState::Cancelled, Some(TaskEnd::Cancelled)),
            (TaskState::Expired, Some(TaskEnd::Expired)),
        ] {
            let data = state.with(&path!("/crew/tasks/a"), b"a\nb\xff").expect("JSON");
            let record = TaskRecord::of(&node(data)).expect("it is one");
            assert_eq!((record.state, record.end()), (state, end));
            assert_eq!((&record.bytes[..], record.version), (&b"a\nb\xff"[..], Version::new(3)));
        }
    }

    #[test]
    fn what_is_no_task_is_an_error() {
        for data in [&b""[..], b"not ours", b"{}\n", b"{\"state\":\"other\"}\n"] {
            let error = TaskRecord::of(&node(Bytes::from_static(data))).expect_err("no task");
            assert_eq!(error.kind(), ErrorKind::Corrupt);
        }
    }
}
