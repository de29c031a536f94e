//! [`Sent`]: a request that has been sent, and whose answer is awaited elsewhere.
//!
//! The crate sends a request when the call is made, in the order of the calls. The hub makes its
//! calls for watches under its lock, so that the server receives them in the order in which the hub
//! changed. Only the call is made there: the answer may arrive at once, and handling it needs the
//! lock again.

use std::future::{Future, poll_fn};
use std::mem::replace;
use std::task::{Context, Poll, Waker};

use crate::client::ZkError;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

/// The answer of the crate's client.
type Answer<T> = Result<T, ZkError>;

/// A request that has been sent.
#[must_use = "the answer may own a watch"]
pub(crate) struct Sent<T>(BoxFuture<'static, Answer<T>>);

impl<T: Send + 'static> Sent<T> {
    /// Makes the call, and nothing else. The answer is not looked at before [`Self::answer`] is
    /// polled, however early it arrives. The client is kept until then: the crate's requests borrow
    /// it.
    pub(crate) fn new<C: Send + Sync + 'static>(
        client: C,
        request: impl for<'c> FnOnce(&'c C) -> BoxFuture<'c, Answer<T>> + Send + 'static,
    ) -> Self {
        let mut sent = async move {
            let answer = request(&client);
            pause().await;
            answer.await
        }
        .boxed();
        let paused = sent.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        debug_assert!(paused.is_pending(), "it pauses before it polls what is not ours");
        Self(sent)
    }

    /// Waits for the answer.
    pub(crate) fn answer(self) -> impl Future<Output = Answer<T>> + Send {
        self.0
    }
}

/// Is pending once, so that the next poll continues.
fn pause() -> impl Future<Output = ()> {
    let mut paused = false;
    poll_fn(move |_| if replace(&mut paused, true) { Poll::Ready(()) } else { Poll::Pending })
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::watch::{Receiver, channel};

    use super::*;

    /// Counts calls made and answers polled.
    #[derive(Default)]
    struct Counts {
        made: AtomicU32,
        polled: AtomicU32,
    }

    fn ready(counts: &Arc<Counts>) -> BoxFuture<'_, Answer<u32>> {
        counts.made.fetch_add(1, Ordering::Relaxed);
        let counts = counts.clone();
        poll_fn(move |_| {
            counts.polled.fetch_add(1, Ordering::Relaxed);
            Poll::Ready(Ok(7))
        })
        .boxed()
    }

    fn later(answers: &Receiver<u32>) -> BoxFuture<'_, Answer<u32>> {
        let mut answers = answers.clone();
        async move {
            answers.changed().await.expect("it is sent");
            Ok(*answers.borrow())
        }
        .boxed()
    }

    fn seen(counts: &Counts) -> (u32, u32) {
        (counts.made.load(Ordering::Relaxed), counts.polled.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn an_answer_that_is_there_at_once_is_not_looked_at_before_it_is_waited_for() {
        let counts = Arc::new(Counts::default());
        let sent = Sent::new(counts.clone(), ready);
        assert_eq!(seen(&counts), (1, 0));

        assert_eq!(sent.answer().await, Ok(7));
        assert_eq!(seen(&counts), (1, 1));
    }

    #[tokio::test]
    async fn an_answer_that_comes_later_is_waited_for() {
        let (sender, receiver) = channel(0);
        let mut answer = std::pin::pin!(Sent::new(receiver, later).answer());
        assert!(answer.as_mut().now_or_never().is_none());

        sender.send(7).expect("it is waited for");
        assert_eq!(answer.await, Ok(7));
    }
}
