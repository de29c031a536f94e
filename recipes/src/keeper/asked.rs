//! [`Asked`]: whether a keeper is asked to end.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::clock::{self, Instant, sleep};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::mutant::mistake;

/// The time for which a keeper remembers that another client wrote to its node.
const CONTENDED: Duration = Duration::from_secs(1);

/// Whether the keeper is closed or dropped.
#[derive(Debug)]
pub(crate) struct Asked {
    close: oneshot::Receiver<()>,
    is_over: bool,
    /// When another client wrote to the node last.
    contended: Option<Instant>,
}

impl Asked {
    pub(crate) fn new(close: oneshot::Receiver<()>) -> Self {
        Self { close, is_over: false, contended: None }
    }

    /// Looks whether the keeper is asked to end: between steps that wait for nothing that may be dropped.
    pub(crate) fn look(&mut self) -> bool {
        self.is_over |= !matches!(self.close.try_recv(), Err(TryRecvError::Empty));
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

    /// Pauses before the node is written again because another client has written to it, unless that is the first time for a while:
    /// two programs that both insist on their data do not write as fast as the store answers.
    pub(crate) async fn contend(&mut self, client: &Client) {
        let last = self.contended.replace(clock::now());
        if last.is_some_and(|last| clock::elapsed(last) < CONTENDED) {
            self.pause(client).await;
        }
    }

    /// Waits for a random part of a short time: many keepers may have lost their nodes at once.
    pub(crate) async fn pause(&mut self, client: &Client) {
        const MOST: u64 = 200;
        let delay = Duration::from_millis(client.random().below(MOST));
        mistake!(MadeAgainAtOnce: let delay = Duration::ZERO);
        self.or(sleep(delay)).await;
    }
}
