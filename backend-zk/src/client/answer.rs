//! [`Answer`]: the answer to a request that was sent.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::client::watcher::Registered;
use crate::client::zk_error::ZkError;

/// The reply of a server.
#[derive(Debug)]
pub(super) struct Reply {
    /// Zero if the server did what was requested.
    pub(super) code: i32,
    pub(super) body: Bytes,
    /// The requested watch, if it was set.
    pub(super) watch: Option<Registered>,
}

/// The receiver of the reply to a request.
pub(super) type ReplySender = oneshot::Sender<Result<Reply, ZkError>>;

/// A function that decodes the body of a reply.
type Decode<T> = fn(Reply) -> Result<T, ZkError>;

/// Waits for the answer. The request has been sent already, and dropping this does not cancel it.
#[derive(Debug)]
#[must_use = "the answer says whether it was done"]
pub(crate) struct Answer<T> {
    coming: WatchFired,
    decode: Decode<T>,
}

#[derive(Debug)]
enum WatchFired {
    Reply(oneshot::Receiver<Result<Reply, ZkError>>),
    /// Nothing was sent.
    Unsent(ZkError),
}

impl Reply {
    /// The body, if the server did what was requested.
    pub(super) fn done(self) -> Result<Bytes, ZkError> {
        match ZkError::of(self.code) {
            None => Ok(self.body),
            Some(refused) => Err(refused),
        }
    }
}

impl<T> Answer<T> {
    pub(super) fn new(reply: oneshot::Receiver<Result<Reply, ZkError>>, decode: Decode<T>) -> Self {
        Self { coming: WatchFired::Reply(reply), decode }
    }

    pub(super) fn unsent(why: ZkError, decode: Decode<T>) -> Self {
        Self { coming: WatchFired::Unsent(why), decode }
    }
}

impl<T> Future for Answer<T> {
    type Output = Result<T, ZkError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = match &mut self.coming {
            // Without its task the session cannot be closed at a server.
            WatchFired::Reply(reply) => {
                ready!(Pin::new(reply).poll(cx)).unwrap_or(Err(ZkError::Abandoned))
            }
            WatchFired::Unsent(why) => Err(why.clone()),
        };
        Poll::Ready(reply.and_then(self.decode))
    }
}

/// Waits for the request that was sent before, then for this one.
pub(crate) async fn behind<T>(
    ahead: Option<impl Future<Output = Result<(), ZkError>>>,
    request: impl Future<Output = Result<T, ZkError>>,
) -> Result<T, ZkError> {
    if let Some(ahead) = ahead {
        ahead.await?;
    }
    request.await
}
