//! Work in a separate task, which is not dropped with the call that waits for it.

use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::task;
use tokio::sync::oneshot;

use crate::mutant::mistake;

/// Runs `work` to its end in a separate task. `None` if the runtime ended the task.
pub(crate) async fn run_detached<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let (reply, result) = oneshot::channel();
    task::spawn(async move {
        let _caller_waits = reply.send(work.await).is_ok();
    })
    .let_go();
    result.await.ok()
}

/// An item on its way from a detached task to its caller.
pub(crate) struct Handed<T> {
    item: T,
    /// Confirms that the caller has the item.
    received: oneshot::Sender<()>,
}

impl<T> Handed<T> {
    /// Returns the item. The task does not undo its work after this.
    pub(crate) fn received(self) -> T {
        let _waiting = self.received.send(()).is_ok();
        self.item
    }
}

/// Runs `work` in a separate task, and hands its item to the caller.
///
/// If the caller is gone before it has [received](Handed::received) the item, `undo` is called with
/// the second part of the result of `work`. An unknown effect of `work` is logged.
pub(crate) async fn hand_over<T: Send + 'static, U: Send + 'static, F>(
    doing: &'static str,
    work: impl Future<Output = Result<Option<(T, U)>>> + Send + 'static,
    undo: impl FnOnce(U) -> F + Send + 'static,
) -> Result<Option<Handed<T>>>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (reply, result) = oneshot::channel();
    let work = async move {
        let (item, undone) = match work.await {
            Ok(Some(got)) => got,
            none => {
                if let Err(Err(error)) = reply.send(none.map(|_none| None))
                    && error.has_unknown_effect()
                {
                    tracing::warn!(%error, "a call that was dropped may have taken something");
                }
                return;
            }
        };
        let (received, is_received) = oneshot::channel();
        // If the caller is gone, the item and `received` are dropped here or in the channel.
        let _caller_waits = reply.send(Ok(Some(Handed { item, received }))).is_ok();
        mistake!(DroppedTakeLost: return);
        if is_received.await.is_err() {
            undo(undone).await;
        }
    };
    task::spawn(work).let_go();
    result.await.unwrap_or_else(|_gone| Err(stopped(doing)))
}

/// The error of a call whose task was aborted.
pub(crate) fn stopped(doing: &'static str) -> Error {
    Error::new(ErrorKind::SessionLost, doing).because("the runtime ends").with_unknown_effect()
}

/// The error of a call whose task has ended with the client.
pub(crate) fn closed(doing: &'static str, path: &Path) -> Error {
    Error::new(ErrorKind::SessionLost, doing).at(path).because("the client is closed")
}

/// The error of a call that reached its time limit before its task had an answer. The task
/// continues.
pub(crate) fn late(doing: &'static str, path: &Path) -> Error {
    Error::new(ErrorKind::Unreachable, doing)
        .at(path)
        .because("the store did not answer in time")
        .with_unknown_effect()
}
