//! [`MarkedEnd`]: a body that marks its last piece as the last.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use tonic::Status;

/// A body that looks ahead: with the last piece, it reports the end of the stream.
pub(super) struct MarkedEnd<B> {
    body: B,
    next: Next,
}

enum Next {
    Unknown,
    Frame(Frame<Bytes>),
    Failed(Status),
    End,
}

impl<B> MarkedEnd<B> {
    pub(super) fn new(body: B) -> Self {
        Self { body, next: Next::Unknown }
    }
}

impl<B: Body<Data = Bytes, Error = Status> + Unpin> MarkedEnd<B> {
    fn look(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        Pin::new(&mut self.body).poll_frame(cx).map(|frame| match frame {
            Some(Ok(frame)) => Next::Frame(frame),
            Some(Err(status)) => Next::Failed(status),
            None => Next::End,
        })
    }
}

impl<B: Body<Data = Bytes, Error = Status> + Unpin> Body for MarkedEnd<B> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let next = match std::mem::replace(&mut self.next, Next::Unknown) {
            Next::Unknown => ready!(self.look(cx)),
            known => known,
        };
        Poll::Ready(match next {
            Next::Frame(frame) => {
                if let Poll::Ready(next) = self.look(cx) {
                    self.next = next;
                }
                Some(Ok(frame))
            }
            Next::Failed(status) => Some(Err(status)),
            Next::End | Next::Unknown => {
                self.next = Next::End;
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.next, Next::End)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::Waker;

    use super::*;

    /// Pieces of a message; a pause is `None`.
    struct Pieces(VecDeque<Option<Result<&'static [u8], Status>>>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            match self.0.pop_front() {
                None => Poll::Ready(None),
                Some(None) => Poll::Pending,
                Some(Some(piece)) => {
                    Poll::Ready(Some(piece.map(|piece| Frame::data(Bytes::from_static(piece)))))
                }
            }
        }
    }

    /// A description of each piece, and whether the end is known with it.
    fn pieces_read(
        pieces: impl IntoIterator<Item = Option<Result<&'static [u8], Status>>>,
    ) -> Vec<String> {
        let mut body = MarkedEnd::new(Pieces(pieces.into_iter().collect()));
        let mut cx = Context::from_waker(Waker::noop());
        let mut told = Vec::new();
        while told.len() < 5 {
            let frame = match Pin::new(&mut body).poll_frame(&mut cx) {
                Poll::Pending => "pending".to_owned(),
                Poll::Ready(None) => "none".to_owned(),
                Poll::Ready(Some(Err(status))) => status.message().to_owned(),
                Poll::Ready(Some(Ok(frame))) => format!("{:?}", frame.into_data().expect("data")),
            };
            let last = if body.is_end_stream() { ", the end" } else { "" };
            told.push(format!("{frame}{last}"));
            if frame == "none" {
                break;
            }
        }
        told
    }

    #[test]
    fn the_last_piece_is_delivered_with_the_end() {
        assert_eq!(pieces_read([Some(Ok(&b"all"[..]))]), ["b\"all\", the end", "none, the end"]);
        assert_eq!(pieces_read([]), ["none, the end"]);
        let two = [Some(Ok(&b"a"[..])), Some(Ok(b"b"))];
        assert_eq!(pieces_read(two), ["b\"a\"", "b\"b\", the end", "none, the end"]);
        let later = [Some(Ok(&b"a"[..])), None, None, Some(Ok(b"b"))];
        let expected = ["b\"a\"", "pending", "b\"b\", the end", "none, the end"];
        assert_eq!(pieces_read(later), expected);
        let failed = [Some(Ok(&b"a"[..])), Some(Err(Status::internal("no")))];
        assert_eq!(pieces_read(failed), ["b\"a\"", "no", "none, the end"]);
    }
}
