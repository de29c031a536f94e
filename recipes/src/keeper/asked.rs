//! [`Asked`]: whether a keeper is asked to end.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::clock::sleep;
use tokio::sync::oneshot;

use crate::mutant::mistake;

/// Whether the keeper is closed or dropped.
#[derive(Debug)]
pub(crate) struct Asked {
    close: oneshot::Receiver<()>,
    is_over: bool,
}

impl Asked {
    pub(crate) fn new(close: oneshot::Receiver<()>) -> Self {
        Self { close, is_over: false }
    }

    /// Whether it was noticed that the keeper is asked to end.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Waits for something that may be dropped. `None` if the keeper is asked to end.
    pub(crate) async fn or<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
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

    /// Waits for a random part of a short time: many keepers may have lost their nodes at once.
    pub(crate) async fn pause(&mut self, client: &Client) {
        const MOST: u64 = 200;
        let delay = Duration::from_millis(client.chance().below(MOST));
        mistake!(MadeAgainAtOnce: let delay = Duration::ZERO);
        self.or(sleep(delay)).await;
    }
}
