//! Tasks that have an owner. All tasks are spawned here.

use std::future::{Future, poll_fn};
use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::runtime::{self, RuntimeTask, Work};

/// A task that ends when its owner drops it.
#[derive(Debug)]
#[must_use = "a task ends when it is dropped"]
pub struct Task(Option<Running>);

#[derive(Debug)]
enum Running {
    Tokio(JoinHandle<()>),
    Simulated(Arc<dyn RuntimeTask>),
}

/// Starts a task on tokio's runtime, or on the simulated runtime of this thread.
///
/// # Panics
///
/// Outside a tokio runtime.
pub fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Task {
    start(Box::pin(work))
}

/// Takes work of one type, so that tokio's code for a task is compiled only once.
fn start(work: Work) -> Task {
    if let Some(runtime) = runtime::here() {
        return Task(Some(Running::Simulated(runtime.spawn(work))));
    }
    #[expect(clippy::disallowed_methods, reason = "the task is owned by what this returns")]
    let handle = tokio::spawn(work);
    Task(Some(Running::Tokio(handle)))
}

impl Task {
    /// Returns `true` if the task has ended.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            None => true,
            Some(Running::Tokio(handle)) => handle.is_finished(),
            Some(Running::Simulated(task)) => task.is_finished(),
        }
    }

    /// Waits until the task has ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves the task running, and still owned.
    pub async fn finished(&mut self) {
        match &mut self.0 {
            None => return,
            Some(Running::Tokio(handle)) => {
                // A panic was reported already; for its owner the task has ended.
                let _ended = handle.await.is_ok();
            }
            Some(Running::Simulated(task)) => poll_fn(|cx| task.poll_finished(cx)).await,
        }
        self.0 = None;
    }

    /// Detaches the task. Only for work that ends by itself.
    pub fn let_go(mut self) {
        self.0 = None;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        match &self.0 {
            None => {}
            Some(Running::Tokio(handle)) => handle.abort(),
            Some(Running::Simulated(task)) => task.abort(),
        }
    }
}
