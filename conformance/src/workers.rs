//! Runs work on a runtime with several worker threads, observed from outside of it: a lock that is
//! taken twice blocks the thread and the timers of the runtime, so that nothing inside it can
//! report the hang.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;

use crate::panics::{Said, listen};

/// Runs `work` on a new runtime with this many worker threads, and returns its result.
///
/// `work` itself runs on a thread of its own, in addition to the workers; the tasks that it starts
/// run on the workers. For tests of a backend under real parallelism, such as
/// [`Suite::on_workers`](crate::run::Suite::on_workers) for the whole suite.
///
/// # Errors
///
/// The message of the first panic, in `work` or in any task of the runtime. If `work` does not end
/// within `limit` of real time, the error says so, and its threads are leaked.
pub fn on_workers<T, F>(
    workers: usize,
    limit: Duration,
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<T, String>
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    match observed(workers, limit, work) {
        (_, said) if !said.is_empty() => Err(said.join("; ")),
        (Ended::With(value), _) => Ok(value),
        (Ended::ByPanic, _) => Err("it panicked without a message".to_owned()),
        (Ended::Not, _) => {
            Err(format!("no end within {limit:?}: it waits for ever, or a thread is blocked"))
        }
    }
}

/// The end of the work.
pub(crate) enum Ended<T> {
    With(T),
    ByPanic,
    /// The time passed first.
    Not,
}

/// [`on_workers`], with the end of the work and the messages of all panics apart.
pub(crate) fn observed<T, F>(
    workers: usize,
    limit: Duration,
    work: impl FnOnce() -> F + Send + 'static,
) -> (Ended<T>, Vec<String>)
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let said = Said::default();
    let (sender, ended) = mpsc::channel();
    let on_thread = said.clone();
    // Its thread is not joined: where a lock is taken twice it never ends.
    let _left = thread::spawn(move || {
        let _none = listen(&on_thread);
        let on_case = on_thread.clone();
        let on_worker = move || drop(listen(&on_thread));
        let runtime = Builder::new_multi_thread()
            .worker_threads(workers)
            .enable_all()
            .on_thread_start(on_worker)
            .build()
            .expect("the operating system lets a runtime start");
        let returned = catch_unwind(AssertUnwindSafe(|| runtime.block_on(work())));
        // Without the messages of tasks that fail because the runtime ends.
        let heard = on_case.take();
        runtime.shutdown_background();
        let _received = sender.send((returned.ok(), heard)).is_ok();
    });
    match ended.recv_timeout(limit) {
        Ok((Some(value), heard)) => (Ended::With(value), heard),
        Ok((None, heard)) => (Ended::ByPanic, heard),
        Err(mpsc::RecvTimeoutError::Disconnected) => (Ended::ByPanic, said.take()),
        Err(mpsc::RecvTimeoutError::Timeout) => (Ended::Not, said.take()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use synod_core::task::spawn;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn the_result_of_the_work_is_returned() {
        let counted = on_workers(2, LONG, || async {
            let (sender, receiver) = tokio::sync::oneshot::channel();
            spawn(async move { sender.send(7).unwrap() }).let_go();
            receiver.await.unwrap()
        });
        assert_eq!(counted, Ok(7));
    }

    #[test]
    fn a_panic_of_a_task_on_a_worker_is_the_error() {
        let failed = on_workers(2, LONG, || async {
            spawn(async { panic!("of a worker") }).finished().await;
        });
        assert!(failed.unwrap_err().starts_with("of a worker (workers.rs:"));
    }

    #[test]
    fn a_panic_of_the_work_is_the_error() {
        let failed = on_workers(2, LONG, || async { panic!("of the work") });
        assert!(matches!(failed, Err::<(), _>(why) if why.contains("of the work")));
    }

    #[test]
    fn work_that_blocks_its_own_thread_is_given_up() {
        let lock = Arc::new(Mutex::new(()));
        let held = lock.clone();
        let _held = held.lock().unwrap();
        let failed = on_workers(2, Duration::from_millis(50), move || async move {
            let _never = lock.lock().is_ok();
        });
        assert!(failed.unwrap_err().contains("no end within 50ms"));
    }
}
