//! Tasks that have an owner. The one place where anything is spawned.

use std::future::Future;

use tokio::task::JoinHandle;

/// A task that ends when its owner drops it.
#[derive(Debug)]
#[must_use = "a task ends when it is dropped"]
pub struct Task(Option<JoinHandle<()>>);

/// Starts a task on the current runtime.
///
/// # Panics
///
/// Outside a tokio runtime, where nothing could run it.
pub fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Task {
    #[expect(clippy::disallowed_methods, reason = "the task is owned by what this returns")]
    let handle = tokio::spawn(work);
    Task(Some(handle))
}

impl Task {
    /// Whether it came to its end.
    pub fn is_finished(&self) -> bool {
        self.0.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for its end.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves the task running, and still owned.
    pub async fn finished(&mut self) {
        if let Some(handle) = &mut self.0 {
            // A task that panicked has said so; to its owner it has ended.
            let _ended = handle.await.is_ok();
            self.0 = None;
        }
    }

    /// Lets it run without an owner. Only for work that comes to its own end.
    pub fn let_go(mut self) {
        self.0 = None;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(handle) = &self.0 {
            handle.abort();
        }
    }
}
