//! A limit of real time for a test, with a report of the last step that it waited for: [`limited`].

use std::cell::RefCell;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

thread_local! {
    /// The test that runs on this thread, if it has a limit.
    static RUNNING: RefCell<Option<Arc<Running>>> = const { RefCell::new(None) };
}

/// The state of a test, shared with other threads.
#[derive(Default)]
struct Running(Mutex<State>);

#[derive(Default)]
struct State {
    step: Option<String>,
    on_limit: Vec<Cleanup>,
    is_over_limit: bool,
}

type Cleanup = Box<dyn FnOnce() + Send>;

impl Running {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs `test` on a separate thread and returns its result.
///
/// A panic of the test continues on the calling thread.
///
/// # Errors
///
/// If the test does not end within `limit` of real time: the last step that it recorded with
/// [`waits_for`]. Its thread is abandoned, and the cleanup that it registered with [`at_limit`] is
/// run.
pub fn limited<T: Send + 'static>(
    limit: Duration,
    test: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let running = Arc::new(Running::default());
    let inside = running.clone();
    let (ended, end) = mpsc::channel();
    let thread = thread::spawn(move || {
        RUNNING.set(Some(inside));
        let result = panic::catch_unwind(AssertUnwindSafe(test));
        RUNNING.set(None);
        // After the limit nobody receives the result.
        let _received = ended.send(result).is_ok();
    });
    match end.recv_timeout(limit) {
        Ok(result) => {
            let _finished = thread.join().is_ok();
            Ok(result.unwrap_or_else(|panicked| panic::resume_unwind(panicked)))
        }
        Err(_) => Err(running.give_up(limit)),
    }
}

impl Running {
    fn give_up(&self, limit: Duration) -> String {
        let mut state = self.state();
        state.is_over_limit = true;
        let on_limit = std::mem::take(&mut state.on_limit);
        let step = state.step.clone().unwrap_or_else(|| "its end".to_owned());
        drop(state);
        for cleanup in on_limit {
            cleanup();
        }
        format!("still waiting for {step} after {limit:?}")
    }
}

/// Records the step that the test on this thread waits for from now on. Without a limit it has no
/// effect.
pub fn waits_for(step: impl fmt::Display) {
    RUNNING.with_borrow(|running| {
        if let Some(running) = running {
            running.state().step = Some(step.to_string());
        }
    });
}

/// Returns the step that the test on this thread waits for, as last recorded.
pub fn last_step() -> Option<String> {
    RUNNING.with_borrow(|running| running.as_ref().and_then(|running| running.state().step.clone()))
}

/// Runs `cleanup` if the test on this thread reaches its limit: an abandoned thread drops nothing,
/// so the cleanup must end the processes that the test started.
pub fn at_limit(cleanup: impl FnOnce() + Send + 'static) {
    RUNNING.with_borrow(|running| {
        let Some(running) = running else { return };
        let mut state = running.state();
        if state.is_over_limit {
            drop(state);
            cleanup();
        } else {
            state.on_limit.push(Box::new(cleanup));
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_test_that_hangs_ends_with_what_it_waited_for() {
        static CLEANED: AtomicBool = AtomicBool::new(false);
        let (_never, hangs) = mpsc::channel::<()>();
        let ended = limited(SHORT, move || {
            at_limit(|| CLEANED.store(true, Ordering::SeqCst));
            waits_for("the first");
            waits_for(format_args!("line {} of the child", 2));
            hangs.recv().is_ok()
        });

        let why = ended.expect_err("nothing is ever sent");
        assert_eq!(why, "still waiting for line 2 of the child after 50ms");
        assert!(CLEANED.load(Ordering::SeqCst));
    }

    #[test]
    fn a_test_that_ends_returns_its_result_and_cleans_nothing_up() {
        static CLEANED: AtomicBool = AtomicBool::new(false);
        let ended = limited(LONG, || {
            at_limit(|| CLEANED.store(true, Ordering::SeqCst));
            waits_for("nothing");
            last_step()
        });

        assert_eq!(ended, Ok(Some("nothing".to_owned())));
        assert!(!CLEANED.load(Ordering::SeqCst));
        assert_eq!(last_step(), None, "this thread has no limit");
    }

    #[test]
    fn a_panic_is_passed_on() {
        let outcome = panic::catch_unwind(|| {
            limited(LONG, || {
                // Without the panic hook, to keep its text out of the output of the tests.
                panic::resume_unwind(Box::new("as it was"));
            })
        });
        let payload = outcome.expect_err("the test panicked");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"as it was"));
    }
}
