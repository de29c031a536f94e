//! [`hand_over`]: what a caller gets that may be dropped at any moment.

use synod_core::error::{Error, ErrorKind, Result};
use synod_core::task;
use tokio::sync::oneshot;

use crate::mutant::mistake;

/// What is on its way to a caller.
pub(crate) struct Handed<T> {
    item: T,
    /// Says that the caller has it.
    received: oneshot::Sender<()>,
}

impl<T> Handed<T> {
    /// From here on the caller has it.
    pub(crate) fn received(self) -> T {
        let _waiting = self.received.send(()).is_ok();
        self.item
    }
}

/// Does `work` in a task of its own, which is not dropped with the caller. If the caller is gone when it has something, that is
/// undone: by `undo`, with the second part of what `work` has returned. An effect that stays unknown is logged then.
pub(crate) async fn hand_over<T: Send + 'static, U: Send + 'static, F>(
    doing: &'static str,
    work: impl Future<Output = Result<Option<(T, U)>>> + Send + 'static,
    undo: impl FnOnce(U) -> F + Send + 'static,
) -> Result<Option<Handed<T>>>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (tell, told) = oneshot::channel();
    let work = async move {
        let (item, undone) = match work.await {
            Ok(Some(got)) => got,
            none => {
                if let Err(Err(error)) = tell.send(none.map(|_none| None))
                    && error.has_unknown_effect()
                {
                    tracing::warn!(%error, "a call that was dropped may have taken something");
                }
                return;
            }
        };
        let (received, is_received) = oneshot::channel();
        // Without its caller it is dropped here or in the channel, and the sender with it.
        let _heard = tell.send(Ok(Some(Handed { item, received }))).is_ok();
        mistake!(DroppedTakeLost: return);
        if is_received.await.is_err() {
            undo(undone).await;
        }
    };
    task::spawn(work).let_go();
    told.await.unwrap_or_else(|_gone| Err(stopped(doing)))
}

/// The error of a call whose task was ended from outside.
pub(crate) fn stopped(doing: &'static str) -> Error {
    Error::new(ErrorKind::SessionLost, doing).because("the runtime ends").with_unknown_effect()
}
