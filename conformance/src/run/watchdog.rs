//! Abandons work that uses a processor for ever without waiting.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use futures_util::task::AtomicWaker;

/// The work did not end.
#[derive(Debug)]
pub(super) struct Hung;

/// Runs `work` for at most `limit` of real time, which passes even if virtual time does not.
pub(super) async fn guard<T>(limit: Duration, work: impl Future<Output = T>) -> Result<T, Hung> {
    let bell = Arc::new((AtomicBool::new(false), AtomicWaker::new()));
    let (alive, gone) = mpsc::channel::<()>();
    let ringing = bell.clone();
    // The thread ends with `alive`, or by itself after `limit`.
    let _watching = thread::spawn(move || {
        if gone.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
            ringing.0.store(true, Ordering::SeqCst);
            ringing.1.wake();
        }
    });

    let mut work = pin!(work);
    let done = poll_fn(|cx| {
        bell.1.register(cx.waker());
        if bell.0.load(Ordering::SeqCst) {
            return Poll::Ready(Err(Hung));
        }
        work.as_mut().poll(cx).map(Ok)
    });
    let done = done.await;
    drop(alive);
    done
}
