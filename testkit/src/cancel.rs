//! Drops a future at each of its awaits: for tests of the effects of a dropped call.
//!
//! A test that drops a call once, at a time of its choosing, misses most of the points at which an
//! application will drop it. These functions try all of them. Run them on a
//! [`Hesitant`](crate::hesitant) store, on which every call can be dropped before and after it is
//! applied.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// Drops a future at its first await, a second one at its second, and so on, until one completes.
/// Returns the number of dropped futures.
///
/// An await counts each time that it is pending, so a future with spurious wakes counts more. Check
/// that the count is not smaller than the number of awaits: a test that drops nothing is useless.
///
/// # Examples
///
/// ```
/// use synod_testkit::cancel::cancel_at_every_await;
/// # use tokio::task::yield_now;
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
///
/// let drops = cancel_at_every_await(|| async {
///     yield_now().await;
///     yield_now().await;
/// })
/// .await;
/// assert_eq!(drops, 2);
/// # });
/// ```
///
/// # Cancel safety
///
/// Cancel safe: a dropped call drops its current future.
pub async fn cancel_at_every_await<F: Future>(mut make: impl FnMut() -> F) -> usize {
    let mut drops = 0;
    while stop_at(drops + 1, make()).await.is_none() {
        drops += 1;
    }
    drops
}

/// Runs a future, and drops it at the `k`-th time that it is pending. `None` if it was dropped.
///
/// # Cancel safety
///
/// Cancel safe: a dropped call drops the future.
pub async fn stop_at<F: Future>(k: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut waits = 0;
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => {
            waits += 1;
            if waits >= k { Poll::Ready(None) } else { Poll::Pending }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn every_await_is_the_last_of_one_future() {
        let got = RefCell::new(Vec::new());

        let drops = cancel_at_every_await(|| async {
            got.borrow_mut().push(0);
            for step in 1..=3 {
                yield_now().await;
                *got.borrow_mut().last_mut().expect("pushed") = step;
            }
        })
        .await;

        assert_eq!((drops, got.into_inner()), (3, vec![0, 1, 2, 3]));
    }

    #[tokio::test]
    async fn what_never_waits_is_never_dropped() {
        assert_eq!(cancel_at_every_await(|| std::future::ready(())).await, 0);
        assert_eq!(stop_at(1, std::future::ready(7)).await, Some(7));
    }

    #[tokio::test]
    async fn a_stopped_future_is_dropped_at_once() {
        let held = std::rc::Rc::new(());
        let inside = held.clone();
        let stopped = stop_at(1, async move {
            yield_now().await;
            drop(inside);
        })
        .await;
        assert_eq!((stopped, std::rc::Rc::strong_count(&held)), (None, 1));
    }
}
