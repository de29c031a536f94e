//! [`ServerConnection`]: a connection to one server, with the requests that are not answered yet.

use std::collections::VecDeque;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWrite as _};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::client::answer::ReplySender;
use crate::client::jute::Decoder;
use crate::client::request::{Message, op};
use crate::client::stream::Stream;
use crate::client::watches::WatchRequest;
use crate::client::zk_error::ZkError;

/// The maximum number of bytes per read.
const READ_BYTES: usize = 16 * 1024;

/// A connection to one server.
pub(super) struct ServerConnection {
    stream: Stream,
    /// The maximum length of a message that is read.
    max_answer: usize,
    input: BytesMut,
    output: Vec<u8>,
    written: usize,
    /// The requests that are not answered, in the order in which they were sent and are answered.
    calls: VecDeque<(i32, Call)>,
    /// Messages without a number of their own, which are not answered.
    pub(super) unnumbered: Unnumbered,
    /// The first message was answered: there is a session.
    pub(super) is_connected: bool,
    /// The session's end was requested. Nothing is sent after that.
    pub(super) is_closing: bool,
    /// The server is no longer in the list: no request is sent, and the connection ends when all
    /// are answered.
    pub(super) is_leaving: bool,
    /// The time of the next check for a silent server.
    pub(super) timer: Pin<Box<Sleep>>,
}

/// The receiver of the answer to a request.
#[derive(Debug)]
pub(super) enum Call {
    Request(Option<WatchRequest>, ReplySender),
    #[cfg(feature = "sasl")]
    Login,
    /// Nobody waits for the answer.
    Ignored,
}

/// The number of unanswered messages of each kind without a number.
#[derive(Debug, Default)]
pub(super) struct Unnumbered {
    pub(super) pings: usize,
    pub(super) logins: usize,
    pub(super) watches: usize,
}

/// The numbers of messages that have no number of their own.
pub(super) mod xid {
    pub(crate) const EVENT: i32 = -1;
    pub(crate) const PING: i32 = -2;
    pub(crate) const AUTH: i32 = -4;
    pub(crate) const SET_WATCHES: i32 = -8;
}

/// The head of the answer to a request.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) xid: i32,
    pub(super) zxid: i64,
    pub(super) code: i32,
}

/// The length of a head.
const HEAD: usize = 16;

impl Head {
    /// Splits the head off a frame.
    pub(super) fn take(frame: &mut Bytes) -> Result<Self, ZkError> {
        let mut reading = Decoder::new(frame);
        let head = Self { xid: reading.int()?, zxid: reading.long()?, code: reading.int()? };
        frame.advance(HEAD);
        Ok(head)
    }
}

impl ServerConnection {
    pub(super) fn new(stream: Stream, max_answer: usize) -> Self {
        Self {
            stream,
            max_answer,
            input: BytesMut::new(),
            output: Vec::new(),
            written: 0,
            calls: VecDeque::new(),
            unnumbered: Unnumbered::default(),
            is_connected: false,
            is_closing: false,
            is_leaving: false,
            timer: Box::pin(sleep_until(Instant::now())),
        }
    }

    /// Sends the message that requests the session: the only message without a number.
    pub(super) fn greet(&mut self, greeting: &[u8]) {
        let length = i32::try_from(greeting.len()).unwrap_or(i32::MAX);
        self.output.extend_from_slice(&length.to_be_bytes());
        self.output.extend_from_slice(greeting);
    }

    /// Sends a message that has no number of its own.
    pub(super) fn push(&mut self, xid: i32, message: Message) {
        message.append(xid, &mut self.output);
    }

    /// Sends a ping, which the server must answer.
    pub(super) fn ping(&mut self) {
        self.push(xid::PING, Message::new(op::PING));
        self.unnumbered.pings += 1;
    }

    /// Sends a request.
    pub(super) fn call(&mut self, xid: i32, message: Message, call: Call) {
        message.append(xid, &mut self.output);
        self.calls.push_back((xid, call));
    }

    /// The request that an answer is for: servers answer in the order of the requests.
    pub(super) fn answered(&mut self, xid: i32) -> Result<Call, ZkError> {
        match self.calls.pop_front() {
            Some((next, call)) if next == xid => Ok(call),
            Some(other) => {
                self.calls.push_front(other);
                // With zookeeper.enableEagerACLCheck a follower refuses a write before it answers
                // earlier requests.
                Err(ZkError::Malformed(
                    "the answer is not to the next request, as with servers that have enableEagerACLCheck",
                ))
            }
            None => Err(ZkError::Malformed("an answer without a request")),
        }
    }

    /// Returns `true` if everything is answered.
    pub(super) fn is_idle(&self) -> bool {
        let Unnumbered { pings, logins, watches } = self.unnumbered;
        self.calls.is_empty() && pings + logins + watches == 0
    }

    /// Reads the bytes that have arrived. Zero bytes are the end of the connection.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.input.capacity() - self.input.len() < READ_BYTES / 4 {
            self.input.reserve(READ_BYTES);
        }
        pin!(self.stream.read_buf(&mut self.input)).poll(cx)
    }

    /// The next message that has arrived as a whole.
    pub(super) fn next_frame(&mut self) -> Result<Option<Bytes>, ZkError> {
        let Some(length) = self.input.first_chunk() else { return Ok(None) };
        let length = usize::try_from(i32::from_be_bytes(*length));
        let length = length.map_err(|_| ZkError::Malformed("a message of an invalid length"))?;
        if length > self.max_answer {
            return Err(ZkError::TooLong);
        }
        if self.input.len() < 4 + length {
            return Ok(None);
        }
        self.input.advance(4);
        Ok(Some(self.input.split_to(length).freeze()))
    }

    /// Writes the output. Returns `true` if anything was written.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut wrote = false;
        while self.written < self.output.len() {
            let rest = &self.output[self.written..];
            match Pin::new(&mut self.stream).poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => return Ok(wrote),
            }
            wrote = true;
        }
        if wrote {
            self.output.clear();
            self.written = 0;
        }
        // Encrypted data may not have reached the socket yet.
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Ready(Err(error)) => Err(error),
            _ => Ok(wrote),
        }
    }

    /// Answers all requests, as the connection ended with this error. If the session continues, no
    /// request gets this error as its definite answer, except the next one if its answer is too
    /// long.
    pub(super) fn fail(self, error: ZkError) {
        let all = if error.ends_session() { error.clone() } else { ZkError::ConnectionLoss };
        let next = if error == ZkError::TooLong { error } else { all.clone() };
        let errors = std::iter::once(next).chain(std::iter::repeat(all));
        for ((_, call), error) in self.calls.into_iter().zip(errors) {
            if let Call::Request(_, reply) = call {
                let _delivered = reply.send(Err(error)).is_ok();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    const MAX_ANSWER: usize = 1 << 20;

    fn connection() -> (ServerConnection, DuplexStream) {
        let (ours, theirs) = duplex(1 << 20);
        (ServerConnection::new(Box::new(ours), MAX_ANSWER), theirs)
    }

    async fn read(connection: &mut ServerConnection) -> usize {
        poll_fn(|cx| connection.poll_read(cx)).await.expect("it is open")
    }

    #[tokio::test]
    async fn a_message_is_read_whole_in_whatever_pieces_it_comes() {
        let (mut connection, mut theirs) = connection();
        let long = vec![7; 3 * READ_BYTES];
        let message = [&49_152_i32.to_be_bytes()[..], &long, &2_i32.to_be_bytes(), b"ab"].concat();
        for piece in message.chunks(5_000) {
            theirs.write_all(piece).await.expect("there is room");
        }
        let mut frames = Vec::new();
        while frames.len() < 2 {
            assert!(read(&mut connection).await > 0);
            while let Some(frame) = connection.next_frame().expect("its length can be") {
                frames.push(frame);
            }
        }
        assert_eq!(frames, [&long[..], b"ab"]);
        drop(theirs);
        assert_eq!(read(&mut connection).await, 0);
    }

    #[tokio::test]
    async fn a_length_that_cannot_be_is_refused_before_anything_is_kept_for_it() {
        let longest = i32::try_from(MAX_ANSWER).expect("not so long");
        for (length, is_refused) in
            [(-1, true), (i32::MIN, true), (i32::MAX, true), (longest + 1, true), (longest, false)]
        {
            let (mut connection, mut theirs) = connection();
            theirs.write_all(&length.to_be_bytes()).await.expect("there is room");
            read(&mut connection).await;
            assert_eq!(connection.next_frame().is_err(), is_refused, "{length}");
            assert!(connection.input.capacity() <= 2 * READ_BYTES);
        }
    }

    #[tokio::test]
    async fn what_ends_a_connection_is_no_answer_but_to_a_request_whose_answer_is_too_long() {
        use ZkError::{ConnectionLoss, Malformed, SessionExpired, Timeout, TooLong};

        for (error, answers) in [
            (Malformed("odd"), [ConnectionLoss, ConnectionLoss]),
            (Timeout, [ConnectionLoss, ConnectionLoss]),
            (TooLong, [TooLong, ConnectionLoss]),
            (SessionExpired, [SessionExpired, SessionExpired]),
        ] {
            let (mut connection, _theirs) = connection();
            let replies = [1, 2].map(|number| {
                let (reply, coming) = tokio::sync::oneshot::channel();
                connection.call(number, Message::new(op::SYNC), Call::Request(None, reply));
                coming
            });
            connection.fail(error);
            for (coming, answer) in replies.into_iter().zip(answers) {
                assert_eq!(coming.await.expect("it is answered").err(), Some(answer));
            }
        }
    }

    #[tokio::test]
    async fn only_the_answer_to_the_next_request_is_taken() {
        let (mut connection, _theirs) = connection();
        for number in [1, 2] {
            connection.call(number, Message::new(op::SYNC), Call::Ignored);
        }
        assert!(connection.answered(2).is_err());
        assert!(connection.answered(1).is_ok() && connection.answered(2).is_ok());
        assert!(connection.answered(3).is_err() && connection.is_idle());
        connection.ping();
        assert!(!connection.is_idle());
    }
}
