//! [`Asked`]: whether a keeper is asked to end.

use std::pin::pin;

use futures_util::future::{Either, select};
use tokio::sync::oneshot;

/// Whether the keeper is closed or dropped.
#[derive(Debug)]
pub(super) struct Asked {
    close: oneshot::Receiver<()>,
    is_over: bool,
}

impl Asked {
    pub(super) fn new(close: oneshot::Receiver<()>) -> Self {
        Self { close, is_over: false }
    }

    /// Whether it was noticed that the keeper is asked to end.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Waits for something that may be dropped. `None` if the keeper is asked to end.
    pub(super) async fn or<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        if self.is_over {
            return None;
        }
        match select(&mut self.close, pin!(work)).await {
            Either::Left(_asked) => {
                self.is_over = true;
                None
            }
            Either::Right((done, _)) => Some(done),
        }
    }
}
