//! gRPC on a stream of HTTP/2: messages in, messages and a status out.

use bytes::{Buf as _, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Response};
use tonic::Code;

use super::refusal::Refusal;

/// The messages that a client sends on one stream.
pub(crate) struct Incoming {
    stream: RecvStream,
    held: BytesMut,
}

impl Incoming {
    pub(crate) fn new(stream: RecvStream) -> Self {
        Self { stream, held: BytesMut::new() }
    }

    /// The next message; `None` at the end, or if the client has reset the stream.
    pub(crate) async fn message(&mut self) -> Option<Bytes> {
        loop {
            if let Some(message) = self.whole() {
                return Some(message);
            }
            let piece = self.stream.data().await?.ok()?;
            self.stream.flow_control().release_capacity(piece.len()).ok()?;
            self.held.extend_from_slice(&piece);
        }
    }

    fn whole(&mut self) -> Option<Bytes> {
        let head: [u8; 5] = self.held.get(..5)?.try_into().ok()?;
        assert_eq!(head[0], 0, "nothing is compressed");
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let length = usize::try_from(length).expect("small");
        if self.held.len() < 5 + length {
            return None;
        }
        self.held.advance(5);
        Some(self.held.split_to(length).freeze())
    }
}

/// The messages that the member sends on one stream.
pub(crate) struct Outgoing {
    head: SendResponse<Bytes>,
    stream: Option<SendStream<Bytes>>,
}

impl Outgoing {
    pub(crate) fn new(head: SendResponse<Bytes>) -> Self {
        Self { head, stream: None }
    }

    /// Begins the answer. If the client is gone, nothing happens.
    pub(crate) fn begin(&mut self) {
        if self.stream.is_none() {
            self.stream = self.head.send_response(begun(), false).ok();
        }
    }

    pub(crate) fn message(&mut self, message: &Bytes) {
        self.begin();
        let Some(stream) = &mut self.stream else { return };
        let length = u32::try_from(message.len()).expect("small");
        let framed = [&[0][..], &length.to_be_bytes(), message].concat();
        let _sent = stream.send_data(framed.into(), false).is_ok();
    }

    /// Ends the answer with the status OK.
    pub(crate) fn well(mut self) {
        self.begin();
        let Some(stream) = &mut self.stream else { return };
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        let _sent = stream.send_trailers(trailers).is_ok();
    }

    /// Ends the stream without a status.
    pub(crate) fn end(mut self) {
        self.begin();
        if let Some(stream) = &mut self.stream {
            let _sent = stream.send_data(Bytes::new(), true).is_ok();
        }
    }

    pub(crate) fn refuse(mut self, refusal: &Refusal) {
        let mut status = HeaderMap::new();
        let code = i32::from(refusal.code);
        status.insert("grpc-status", HeaderValue::from(code));
        let message = refusal.message.replace('%', "%25");
        let message = HeaderValue::from_str(&message).expect("plain text");
        status.insert("grpc-message", message);
        let _sent = if let Some(stream) = &mut self.stream {
            stream.send_trailers(status).is_ok()
        } else {
            let mut only = begun();
            only.headers_mut().extend(status);
            self.head.send_response(only, true).is_ok()
        };
    }

    pub(crate) fn reset(mut self, reason: Reason) {
        match &mut self.stream {
            Some(stream) => stream.send_reset(reason),
            None => self.head.send_reset(reason),
        }
    }
}

fn begun() -> Response<()> {
    let mut head = Response::new(());
    let grpc = HeaderValue::from_static("application/grpc");
    head.headers_mut().insert(http::header::CONTENT_TYPE, grpc);
    head
}

/// The answer to a method that the peer does not implement.
pub(crate) fn unknown(path: &str) -> Refusal {
    Refusal::new(Code::Unimplemented, format!("unknown method {path}"))
}
