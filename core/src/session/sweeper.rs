//! The one task of a session: drives to its end what callers dropped, then closes.

use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::timeout;
use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, watch};

use crate::error::{ErrorKind, Result};
use crate::mutant::mistake;
use crate::session::session_state::SessionState;
use crate::store::{SessionEnd, Status, Store};

/// Work that no caller waits for. It comes to its own end.
///
/// A job holds no sender of jobs: the sweeper ends when the last sender is gone.
pub(super) type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(super) struct Sweeper {
    pub(super) store: Arc<dyn Store>,
    pub(super) state: Arc<SessionState>,
    pub(super) jobs: mpsc::UnboundedReceiver<Job>,
    /// How long the jobs may still take once the session is to end.
    pub(super) grace: Duration,
}

enum Next {
    Job(Job),
    Finished,
    /// The session is over, or its last clone is dropped.
    Over,
}

impl Sweeper {
    /// Works until the session is over or its last clone is dropped.
    pub(super) async fn run(mut self) {
        let mut running = FuturesUnordered::new();
        let status = self.store.status();
        {
            let mut told = pin!(relay(status, &self.state));
            loop {
                match next(&mut self.jobs, &mut running, told.as_mut()).await {
                    Next::Job(job) => running.push(job),
                    Next::Finished => {}
                    Next::Over => break,
                }
            }
        }
        self.end(running).await;
    }

    async fn end(mut self, mut running: FuturesUnordered<Job>) {
        self.state.end(SessionEnd::Closed);
        self.jobs.close();
        while let Ok(job) = self.jobs.try_recv() {
            running.push(job);
        }
        let all = async { while running.next().await.is_some() {} };
        if timeout(self.grace, all).await.is_err() {
            tracing::warn!(
                session = %self.store.session().id,
                "closing a session with writes that did not end"
            );
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
                tracing::warn!(%session, %error, "could not close; the time to live will");
            }
            _late => tracing::warn!(%session, "could not close; the time to live will"),
        }
        // That the store takes the session for lost does not prove that the server knows.
        false
    }
}

/// True if the answer to a close says that the session is over. That there is no such session is the purpose of a close.
pub(super) fn is_over(closed: &Result<()>) -> bool {
    closed.as_ref().map_or_else(
        |error| error.kind() == ErrorKind::SessionLost && !error.has_unknown_effect(),
        |()| true,
    )
}

/// Carries over what the store says until the session is over.
async fn relay(mut store: watch::Receiver<Status>, state: &SessionState) {
    let relayed = async {
        while !state.now().is_lost() {
            if store.changed().await.is_err() {
                // A store that is no more will never say so.
                return state.end(SessionEnd::Expired);
            }
        }
    };
    // Also over when this side ended it.
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
