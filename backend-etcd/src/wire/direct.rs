//! [`Direct`]: callers write their requests to the connection themselves, and are woken by it.
//!
//! The client library has a task that takes requests, one that sends them, one for each request
//! that waits for its answer, and one that reads and writes. Here only the last task remains.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderValue, Request, Response, Uri, header, request};
use http_body::{Body, Frame};
use hyper_util::rt::TokioIo;
use synod_core::task::{Task, spawn};
use tonic::body::Body as Message;
use tonic::{ConnectError, Status};
use tower::BoxError;

use super::connect::Connect;
use super::write_batching::WriteBatching;

/// The maximum number of unread bytes, on one stream and on all of them.
const WINDOWS: (u32, u32) = (2 << 20, 5 << 20);

/// Requests to one member, over one connection. The first request opens it, and the first request
/// after it broke opens it again.
#[derive(Clone)]
pub(crate) struct Direct(Arc<Road>);

struct Road {
    to: Uri,
    way: Arc<dyn Connect>,
    requests: Mutex<Option<SendRequest<Bytes>>>,
    /// Held while connecting: other callers wait for it.
    connecting: tokio::sync::Mutex<()>,
}

impl Direct {
    pub(crate) fn new(to: Uri, way: Arc<dyn Connect>) -> Self {
        let (requests, connecting) = (Mutex::default(), tokio::sync::Mutex::default());
        Self(Arc::new(Road { to, way, requests, connecting }))
    }

    /// Opens the connection, unless there is one that accepts requests.
    pub(crate) async fn open(&self) -> Result<(), Status> {
        let opened = self.0.connection().await.map_err(ConnectError);
        opened.map(drop).map_err(|error| Status::from_error(Box::new(error)))
    }

    /// Sends a request, and waits until its answer begins.
    pub(super) async fn send(
        self,
        request: Request<Message>,
    ) -> Result<Response<Message>, BoxError> {
        let (head, body) = request.into_parts();
        let head = self.0.addressed(head)?;
        let mut requests = self.0.connection().await.map_err(ConnectError)?;
        // A request that is refused here was not sent.
        let sent = requests.send_request(Request::from_parts(head, ()), false);
        let (answer, stream) = sent.map_err(|error| ConnectError(error.into()))?;
        let mut sending = Sending { body, stream, held: None };
        // The whole body is usually there already, except on a long-lived stream.
        let pump = match poll_fn(|cx| Poll::Ready(sending.poll(cx))).await {
            Poll::Ready(done) => done.map(|()| None)?,
            Poll::Pending => Some(spawn(async move {
                let _done = poll_fn(|cx| sending.poll(cx)).await.is_ok();
            })),
        };
        let answer = answer.await?;
        Ok(answer.map(|stream| Message::new(Answer { stream, is_read: false, _pump: pump })))
    }
}

impl Road {
    /// The head of a request, with its destination.
    fn addressed(&self, mut head: request::Parts) -> Result<request::Parts, http::Error> {
        let mut to = self.to.clone().into_parts();
        to.path_and_query = head.uri.into_parts().path_and_query;
        head.uri = Uri::from_parts(to)?;
        let agent = HeaderValue::from_static(concat!("synod/", env!("CARGO_PKG_VERSION")));
        head.headers.insert(header::USER_AGENT, agent);
        Ok(head)
    }

    /// A connection that accepts requests.
    async fn connection(&self) -> Result<SendRequest<Bytes>, BoxError> {
        if let Some(requests) = self.working().await {
            return Ok(requests);
        }
        let _alone = self.connecting.lock().await;
        if let Some(requests) = self.working().await {
            return Ok(requests);
        }
        let io = self.way.connect(self.to.clone()).await?;
        let mut settings = h2::client::Builder::new();
        settings.initial_window_size(WINDOWS.0).initial_connection_window_size(WINDOWS.1);
        // The limit until the server sends its own, in its first frame.
        settings.enable_push(false).initial_max_send_streams(0);
        let (requests, mut connection) =
            settings.handshake(TokioIo::new(WriteBatching::new(io))).await?;
        // A load balancer without a server accepts a connection and closes it. A request that is
        // sent before the first frame of the server has arrived may be lost, but would count as
        // sent.
        poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
            Poll::Ready(ended) => Poll::Ready(ended.map_err(BoxError::from).and(Err(closed()))),
            Poll::Pending if requests.current_max_send_streams() > 0 => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        })
        .await?;
        let driving = async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection broke");
            }
        };
        // It ends when all request handles are dropped and no answer is outstanding.
        spawn(driving).let_go();
        *self.held() = Some(requests.clone());
        Ok(requests)
    }

    /// The current connection, unless it broke.
    async fn working(&self) -> Option<SendRequest<Bytes>> {
        let mut requests = self.held().clone()?;
        poll_fn(|cx| requests.poll_ready(cx)).await.ok()?;
        Some(requests)
    }

    fn held(&self) -> MutexGuard<'_, Option<SendRequest<Bytes>>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error for a peer that closes a connection before its first frame.
fn closed() -> BoxError {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed").into()
}

/// A message being sent: the last piece is marked as the last.
struct Sending {
    body: Message,
    stream: SendStream<Bytes>,
    held: Option<Bytes>,
}

impl Sending {
    /// Sends the available pieces, until all are sent.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        loop {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let piece = frame.into_data().unwrap_or_default();
                    if let Some(before) = self.held.replace(piece) {
                        self.send(before, false);
                    }
                }
                Poll::Ready(Some(Err(status))) => {
                    self.stream.send_reset(Reason::CANCEL);
                    return Poll::Ready(Err(status));
                }
                Poll::Ready(None) => {
                    let last = self.held.take().unwrap_or_default();
                    self.send(last, true);
                    return Poll::Ready(Ok(()));
                }
                Poll::Pending => {
                    if let Some(piece) = self.held.take() {
                        self.send(piece, false);
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    fn send(&mut self, piece: Bytes, last: bool) {
        // If the peer accepts no more data, its answer has the reason.
        let _taken = self.stream.send_data(piece, last).is_ok();
    }
}

/// The body of an answer.
struct Answer {
    stream: RecvStream,
    is_read: bool,
    /// The rest of the request that is still being sent, as long as the answer is wanted.
    _pump: Option<Task>,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.is_read {
            if let Some(piece) = ready!(self.stream.poll_data(cx)).transpose()? {
                self.stream.flow_control().release_capacity(piece.len())?;
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            self.is_read = true;
        }
        let trailers = ready!(self.stream.poll_trailers(cx))?;
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }
}
