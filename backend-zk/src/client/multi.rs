//! Requests of several operations: [`MultiWriter`] and [`MultiReader`].

use std::fmt;

use futures_util::FutureExt as _;

use crate::client::answer::Reply;
use crate::client::jute::{Decoder, Encoder};
use crate::client::node::{CreateOptions, ZkStat};
use crate::client::outbox::Outbox;
use crate::client::request::{Message, create_op, op};
use crate::client::zk_error::ZkError;

/// Collects operations for a request that is applied as a whole or not at all.
#[derive(Debug)]
pub(crate) struct MultiWriter<'c> {
    outbox: &'c Outbox,
    message: Message,
}

/// Collects reads for a request that is answered with a consistent snapshot.
#[derive(Debug)]
pub(crate) struct MultiReader<'c> {
    outbox: &'c Outbox,
    message: Message,
}

/// The result of one operation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MultiWriteResult {
    Done,
    /// Some servers do not return the stat.
    Create {
        path: String,
        stat: ZkStat,
    },
    SetData {
        stat: ZkStat,
    },
}

/// The reason that nothing was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MultiWriteError {
    RequestFailed(ZkError),
    OperationFailed { index: usize, source: ZkError },
}

/// The result of one read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MultiReadResult {
    Data { data: Vec<u8>, stat: ZkStat },
    Children { children: Vec<String> },
    Error { err: ZkError },
}

impl<'c> MultiWriter<'c> {
    pub(super) fn new(outbox: &'c Outbox) -> Self {
        Self { outbox, message: Message::new(op::MULTI) }
    }

    pub(crate) fn add_check_version(&mut self, path: &str, version: i32) {
        self.operation(op::CHECK).text(path).int(version);
    }

    pub(crate) fn add_create(&mut self, path: &str, data: &[u8], options: &CreateOptions) {
        self.operation(create_op(options)).create(path, data, options);
    }

    pub(crate) fn add_set_data(&mut self, path: &str, data: &[u8], version: Option<i32>) {
        self.operation(op::SET_DATA).text(path).buffer(data).int(version.unwrap_or(-1));
    }

    pub(crate) fn add_delete(&mut self, path: &str, version: Option<i32>) {
        self.operation(op::DELETE).text(path).int(version.unwrap_or(-1));
    }

    fn operation(&mut self, op: i32) -> &mut Encoder {
        self.message.body().int(op).flag(false).int(-1)
    }

    /// Sends the request.
    pub(crate) fn commit(
        mut self,
    ) -> impl Future<Output = Result<Vec<MultiWriteResult>, MultiWriteError>> + Send + 'static {
        end(self.message.body());
        let answer = self.outbox.send(self.message, None, |reply| written(&reply.done()?));
        answer.map(|answer| answer.unwrap_or_else(|error| Err(error.into())))
    }
}

impl<'c> MultiReader<'c> {
    pub(super) fn new(outbox: &'c Outbox) -> Self {
        Self { outbox, message: Message::new(op::MULTI_READ) }
    }

    pub(crate) fn add_get_data(&mut self, path: &str) {
        self.operation(op::GET_DATA, path);
    }

    pub(crate) fn add_get_children(&mut self, path: &str) {
        self.operation(op::GET_CHILDREN, path);
    }

    fn operation(&mut self, op: i32, path: &str) {
        self.message.body().int(op).flag(false).int(-1).text(path).flag(false);
    }

    /// Sends the request.
    pub(crate) fn commit(
        mut self,
    ) -> impl Future<Output = Result<Vec<MultiReadResult>, ZkError>> + Send + use<> {
        end(self.message.body());
        self.outbox.send(self.message, None, read)
    }
}

/// Writes the end of the operations.
fn end(body: &mut Encoder) {
    body.int(-1).flag(true).int(-1);
}

/// The operation code of the next operation. `None` after the last one.
fn next(reading: &mut Decoder<'_>) -> Result<Option<i32>, ZkError> {
    let (op, over, _code) = (reading.int()?, reading.flag()?, reading.int()?);
    Ok((!over).then_some(op))
}

const UNEXPECTED: ZkError = ZkError::Malformed("the answer to another operation");

/// Decodes the results of a request that wrote, or the first operation that was refused: the
/// operations before it have an error without a code.
fn written(body: &[u8]) -> Result<Result<Vec<MultiWriteResult>, MultiWriteError>, ZkError> {
    let (mut reading, mut results) = (Decoder::new(body), Vec::new());
    let mut index = 0;
    while let Some(op) = next(&mut reading)? {
        match op {
            op::CHECK | op::DELETE => results.push(MultiWriteResult::Done),
            op::CREATE => {
                let path = reading.text()?.to_owned();
                results.push(MultiWriteResult::Create { path, stat: ZkStat::UNKNOWN });
            }
            op::CREATE_2 => {
                let (path, stat) = (reading.text()?.to_owned(), reading.stat()?);
                results.push(MultiWriteResult::Create { path, stat });
            }
            op::SET_DATA => results.push(MultiWriteResult::SetData { stat: reading.stat()? }),
            op::ERROR => {
                if let Some(source) = ZkError::of(reading.int()?) {
                    return Ok(Err(MultiWriteError::OperationFailed { index, source }));
                }
            }
            _ => return Err(UNEXPECTED),
        }
        index += 1;
    }
    Ok(Ok(results))
}

/// Decodes the results of a request that read, one for each read.
fn read(reply: Reply) -> Result<Vec<MultiReadResult>, ZkError> {
    let body = reply.done()?;
    let (mut reading, mut results) = (Decoder::new(&body), Vec::new());
    while let Some(op) = next(&mut reading)? {
        results.push(match op {
            op::GET_DATA => {
                let data = reading.buffer()?.to_vec();
                MultiReadResult::Data { data, stat: reading.stat()? }
            }
            op::GET_CHILDREN => MultiReadResult::Children { children: reading.texts()? },
            op::ERROR => {
                let code = reading.int()?;
                MultiReadResult::Error { err: ZkError::of(code).unwrap_or(ZkError::Code(code)) }
            }
            _ => return Err(UNEXPECTED),
        });
    }
    Ok(results)
}

impl From<ZkError> for MultiWriteError {
    fn from(error: ZkError) -> Self {
        Self::RequestFailed(error)
    }
}

impl From<MultiWriteError> for ZkError {
    fn from(error: MultiWriteError) -> Self {
        match error {
            MultiWriteError::RequestFailed(error)
            | MultiWriteError::OperationFailed { source: error, .. } => error,
        }
    }
}

impl fmt::Display for MultiWriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RequestFailed(error) => error.fmt(f),
            Self::OperationFailed { index, source } => write!(f, "operation {index}: {source}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(of: impl FnOnce(&mut Encoder)) -> Vec<u8> {
        let mut body = Encoder::default();
        of(&mut body);
        end(&mut body);
        body.finish()
    }

    #[test]
    fn an_error_says_which_operation_failed() {
        let failed = MultiWriteError::OperationFailed { index: 2, source: ZkError::NoNode };
        assert_eq!(failed.to_string(), "operation 2: there is no such node");
        let lost = MultiWriteError::RequestFailed(ZkError::Code(-7));
        assert_eq!(lost.to_string(), "error -7 of the server");
    }

    #[test]
    fn the_operation_that_was_refused_is_named() {
        let refused = body(|body| {
            for code in [0, -110, -2] {
                body.int(op::ERROR).flag(false).int(code).int(code);
            }
        });
        let expected = MultiWriteError::OperationFailed { index: 1, source: ZkError::NodeExists };
        assert_eq!(written(&refused), Ok(Err(expected)));
        let done = body(|body| {
            body.int(op::DELETE).flag(false).int(0);
            body.int(op::CREATE).flag(false).int(0).text("/a");
        });
        let created = MultiWriteResult::Create { path: "/a".to_owned(), stat: ZkStat::UNKNOWN };
        assert_eq!(written(&done), Ok(Ok(vec![MultiWriteResult::Done, created])));
    }

    #[test]
    fn an_answer_without_an_end_or_to_something_else_is_malformed() {
        let strange = body(|body| {
            body.int(77).flag(false).int(0);
        });
        assert!(written(&strange).is_err());
        assert!(written(&[]).is_err());
        let reply = |body: Vec<u8>| Reply { code: 0, body: body.into(), watch: None };
        assert!(read(reply(strange)).is_err());
        assert!(read(reply(vec![0; 8])).is_err());
        let gone = body(|body| {
            body.int(op::ERROR).flag(false).int(-101).int(-101);
        });
        let expected = MultiReadResult::Error { err: ZkError::NoNode };
        assert_eq!(read(reply(gone)), Ok(vec![expected]));
    }
}
