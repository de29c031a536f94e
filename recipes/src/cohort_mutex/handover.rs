//! [`Handover`]: a slot in which one task of a process leaves a value for the next waiting task.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Mutex, OwnedMutexGuard};

/// A slot for a value, and the queue of tasks that wait for their turn at it.
///
/// A value is left in the slot only while a task waits. That task may be cancelled at any moment,
/// even on another thread, and then no task would ever take the value. So both sides check again
/// after they unlock the slot: [`Handover::pass`] after it unlocks it, and a cancelled task after
/// it leaves the queue. Each of the two unlocks first and then tries to lock, so at least one of
/// them sees the action of the other. If neither gets the lock, a third task has it, and takes the
/// value.
pub(crate) struct Handover<T> {
    slot: Arc<Mutex<Option<T>>>,
    waiting: AtomicUsize,
}

/// The turn at a slot.
pub(crate) type SlotTurn<T> = OwnedMutexGuard<Option<T>>;

/// A waiting task. Dropping this ends the wait.
struct Waits<'a, T>(&'a Handover<T>);

impl<T> Handover<T> {
    /// Waits for a turn, and takes the value that the last task left.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a value that was left for a cancelled task is dropped, unless another task
    /// takes it.
    pub(super) async fn turn(&self) -> (SlotTurn<T>, Option<T>) {
        let waits = Waits::new(self);
        let mut turn = self.slot.clone().lock_owned().await;
        drop(waits);
        let left = turn.take();
        (turn, left)
    }

    /// Takes the turn if no task has it, with the value that the last task left. Never waits.
    pub(super) fn try_turn(&self) -> Option<(SlotTurn<T>, Option<T>)> {
        let mut turn = self.slot.clone().try_lock_owned().ok()?;
        let left = turn.take();
        Some((turn, left))
    }

    /// Returns `true` if a task is waiting.
    pub(super) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Ends the turn and leaves the value for the next task. Returns the value if no task is
    /// waiting.
    pub(super) fn pass(&self, mut turn: SlotTurn<T>, value: T) -> Option<T> {
        *turn = Some(value);
        drop(turn);
        self.take_back()
    }

    /// Takes the value in the slot, if no task has the turn or is about to get it.
    fn take_back(&self) -> Option<T> {
        self.slot.try_lock().ok()?.take()
    }
}

impl<T> Default for Handover<T> {
    fn default() -> Self {
        Self { slot: Arc::default(), waiting: AtomicUsize::new(0) }
    }
}

impl<T> fmt::Debug for Handover<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover").finish_non_exhaustive()
    }
}

impl<'a, T> Waits<'a, T> {
    fn new(handover: &'a Handover<T>) -> Self {
        handover.waiting.fetch_add(1, Ordering::Relaxed);
        Self(handover)
    }
}

impl<T> Drop for Waits<'_, T> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
        // The future that waited for the lock was dropped before: a value that was left for this
        // task is in the slot.
        drop(self.0.take_back());
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::sync::mpsc;

    use futures_util::future::poll_immediate;

    use super::*;

    /// The turn at a free slot.
    async fn turn<T>(handover: &Handover<T>) -> SlotTurn<T> {
        let (turn, left) = handover.turn().await;
        assert!(left.is_none(), "nothing was passed on");
        turn
    }

    #[tokio::test]
    async fn a_value_goes_to_the_task_that_waits() {
        let handover = Handover::default();
        let first = turn(&handover).await;
        let mut next = pin!(handover.turn());
        assert!(poll_immediate(next.as_mut()).await.is_none());
        assert!(handover.is_wanted());

        assert_eq!(handover.pass(first, 7), None);

        let (_turn, left) = next.await;
        assert_eq!(left, Some(7));
        assert!(!handover.is_wanted());
    }

    #[tokio::test]
    async fn a_try_gets_the_turn_only_while_no_task_has_it() {
        let handover = Handover::default();
        let mut first = turn(&handover).await;
        assert!(handover.try_turn().is_none());

        *first = Some(7);
        drop(first);

        let (_turn, left) = handover.try_turn().expect("the turn is over");
        assert_eq!(left, Some(7));
    }

    #[tokio::test]
    async fn a_value_comes_back_when_the_last_waiter_leaves_before_the_slot_is_unlocked() {
        let handover = Handover::default();
        let first = turn(&handover).await;
        let mut next = Box::pin(handover.turn());
        assert!(poll_immediate(next.as_mut()).await.is_none());
        assert!(handover.is_wanted(), "so the value is passed on");

        drop(next);

        assert_eq!(handover.pass(first, 7), Some(7));
        drop(turn(&handover).await);
    }

    #[tokio::test]
    async fn a_value_is_dropped_when_its_task_is_cancelled_before_it_takes_it() {
        let handover = Handover::default();
        let value = Arc::new(());
        let first = turn(&handover).await;
        let mut next = Box::pin(handover.turn());
        assert!(poll_immediate(next.as_mut()).await.is_none());

        assert!(handover.pass(first, value.clone()).is_none());
        assert_eq!(Arc::strong_count(&value), 2);
        drop(next);

        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn no_value_is_kept_when_a_waiter_is_cancelled_on_another_thread() {
        const ROUNDS: usize = 2_000;
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let handover = Arc::new(Handover::default());
        let go = Arc::new(AtomicUsize::new(0));
        let (to_cancel, waiters) =
            mpsc::sync_channel::<Pin<Box<dyn Future<Output = ()> + Send>>>(1);
        let (done, cancelled) = mpsc::sync_channel(1);
        let gone = go.clone();
        let other_thread = std::thread::spawn(move || {
            for (round, waiter) in (1..).zip(waiters) {
                while gone.load(Ordering::Acquire) < round {
                    std::thread::yield_now();
                }
                drop(waiter);
                done.send(()).expect("the other thread waits");
            }
        });
        for round in 1..=ROUNDS {
            let (value, waits) = (Arc::new(()), handover.clone());
            let first = runtime.block_on(turn(&handover));
            let mut waiter: Pin<Box<dyn Future<Output = ()> + Send>> =
                Box::pin(async move { drop(waits.turn().await) });
            assert!(runtime.block_on(poll_immediate(waiter.as_mut())).is_none());
            to_cancel.send(waiter).expect("the other thread takes it");
            go.store(round, Ordering::Release);
            // Each thread should be the faster one in some rounds.
            for _ in 0..round % 64 {
                std::hint::spin_loop();
            }

            drop(handover.pass(first, value.clone()));

            cancelled.recv().expect("the other thread continues");
            assert_eq!(Arc::strong_count(&value), 1, "round {round}: no task has it");
        }
        drop(to_cancel);
        other_thread.join().expect("it does not panic");
    }
}
