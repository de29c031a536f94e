//! The background task of a session: completes dropped calls, then closes the session.

use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::timeout;
use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, watch};

use crate::error::{Error, ErrorKind, Result};
use crate::mutant::mistake;
use crate::session::session_state::{SessionState, over};
use crate::store::{SessionEnd, Status, Store};

/// Work that no caller waits for, and that ends by itself.
///
/// A job holds no sender of jobs: the task ends when the last sender is dropped.
pub(super) type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The call that hands a session over, in errors.
pub(super) const HANDING_OVER: &str = "handing a session over";

pub(super) struct SessionTask {
    pub(super) store: Arc<dyn Store>,
    pub(super) state: Arc<SessionState>,
    pub(super) jobs: mpsc::UnboundedReceiver<Job>,
    /// The time that the jobs may still take once the session is to end.
    pub(super) grace: Duration,
}

enum Next {
    Job(Job),
    Finished,
    /// The session is over, or its last clone is dropped.
    Over,
}

impl SessionTask {
    /// Runs the jobs until the session is over or its last clone is dropped.
    pub(super) async fn run(mut self) {
        let mut running = FuturesUnordered::new();
        let status = self.store.status();
        {
            let mut status_task = pin!(until_end(status, &self.state));
            loop {
                match next(&mut self.jobs, &mut running, status_task.as_mut()).await {
                    Next::Job(job) => running.push(job),
                    Next::Finished => {}
                    Next::Over => break,
                }
            }
        }
        self.end(running).await;
    }

    async fn end(mut self, mut running: FuturesUnordered<Job>) {
        let handing_over = self.state.take_hand_over();
        // No job is taken from now on. So a guard that is dropped because the session is lost does
        // not remove its node, which belongs to the next client.
        self.jobs.close();
        let is_ended = self.state.loss().is_some();
        self.state.end(match handing_over {
            Some(_) => SessionEnd::HandedOver,
            None => SessionEnd::Closed,
        });
        while let Ok(job) = self.jobs.try_recv() {
            running.push(job);
        }
        let all = async { while running.next().await.is_some() {} };
        let is_complete = timeout(self.grace, all).await.is_ok();
        if !is_complete {
            tracing::warn!(
                session = %self.store.session().id,
                "closing a session with unfinished writes"
            );
        }
        if let Some(reply) = handing_over {
            let handed = match self.store.session().handover() {
                _ if is_ended => Err(over(SessionEnd::Expired, HANDING_OVER)),
                _ if !is_complete => Err(Error::new(ErrorKind::Unreachable, HANDING_OVER)
                    .because("the removal of a node was not answered in time; the session ends")),
                Some(release) => release.hand_over().await,
                None => Err(Error::new(ErrorKind::Unsupported, HANDING_OVER)),
            };
            let is_handed_over = handed.is_ok();
            let _is_awaited = reply.send(handed).is_ok();
            if is_handed_over {
                return self.state.set_closed(true);
            }
        }
        let cleanly = self.close().await;
        self.state.set_closed(cleanly);
    }

    async fn close(&self) -> bool {
        mistake!(ClosesByForgetting: return true);
        let (session, ttl) = (self.store.session().id, self.store.session().ttl);
        let closed = timeout(ttl, self.store.close()).await;
        if closed.as_ref().is_ok_and(is_over) {
            return true;
        }
        match closed {
            Ok(Err(error)) => {
                tracing::warn!(%session, %error, "could not close the session; it will expire after its TTL");
            }
            _late => {
                tracing::warn!(%session, "could not close the session; it will expire after its TTL");
            }
        }
        // The store's status `Lost` does not prove that the server ended the session.
        false
    }
}

/// Returns `true` if the answer to a close proves that the session is over, or if the answer is
/// that there is no such session.
pub(super) fn is_over(closed: &Result<()>) -> bool {
    closed.as_ref().map_or_else(
        |error| error.kind() == ErrorKind::SessionLost && !error.has_unknown_effect(),
        |()| true,
    )
}

/// Waits until the session is over, or is to be handed over.
async fn until_end(store: watch::Receiver<Status>, state: &SessionState) {
    let _either = select(pin!(relay(store, state)), pin!(state.hand_over_requested())).await;
}

/// Copies the status of the store until the session is over.
async fn relay(mut store: watch::Receiver<Status>, state: &SessionState) {
    let relayed = async {
        while !state.now().is_lost() {
            if store.changed().await.is_err() {
                // A store that was dropped will not report the end.
                return state.end(SessionEnd::Expired);
            }
        }
    };
    // Ends even if this side ended the session.
    let _either = select(pin!(relayed), pin!(state.lost())).await;
}

async fn next(
    jobs: &mut mpsc::UnboundedReceiver<Job>,
    running: &mut FuturesUnordered<Job>,
    over: Pin<&mut impl Future<Output = ()>>,
) -> Next {
    let work = async {
        match select(pin!(jobs.recv()), pin!(finish_one(running))).await {
            Either::Left((Some(job), _)) => Next::Job(job),
            Either::Left((None, _)) => Next::Over,
            Either::Right(_) => Next::Finished,
        }
    };
    match select(pin!(work), over).await {
        Either::Left((next, _)) => next,
        Either::Right(_) => Next::Over,
    }
}

async fn finish_one(running: &mut FuturesUnordered<Job>) {
    if running.next().await.is_none() {
        pending::<()>().await;
    }
}
