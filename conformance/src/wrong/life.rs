//! Mistakes in the status of a session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use synod_core::store::{SessionEnd, Status, Store, certain_until};
use synod_core::task::{Task, spawn};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::wrong::mistake::Mistake;

/// The status of one session, as the wrong store reports it.
#[derive(Debug)]
pub(super) struct Life {
    mistake: Option<Mistake>,
    ttl: Duration,
    /// The time at which the opening was answered.
    opened: Instant,
    told: watch::Sender<Status>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    heard: Option<Status>,
    /// `true` if the last status before a loss was that the store does not answer.
    suspended: bool,
    /// The time until which the session is assumed to be alive, without proof.
    hope: Option<Instant>,
    /// `true` if the session counts as alive after its loss.
    revived: bool,
    last_call: Instant,
}

impl Life {
    pub(super) fn new(mistake: Option<Mistake>, inner: &Arc<dyn Store>) -> Self {
        let status = *inner.status().borrow();
        let state = State {
            heard: None,
            suspended: false,
            hope: None,
            revived: false,
            last_call: Instant::now(),
        };
        let ttl = inner.session().ttl;
        let life = Self {
            mistake,
            ttl,
            opened: Instant::now(),
            told: watch::Sender::new(status),
            state: Mutex::new(state),
        };
        life.hear(status);
        life
    }

    /// Returns `true` if the status differs from the status of the store inside.
    pub(super) fn is_mistaken(&self) -> bool {
        matches!(
            self.mistake,
            Some(
                Mistake::CloseUntold
                    | Mistake::ExpiryUntold
                    | Mistake::LeaseExtendedByHope
                    | Mistake::LeaseFromOpening
                    | Mistake::LeaseFromReply
                    | Mistake::LostSessionRevived
                    | Mistake::NeverLost
                    | Mistake::NeverSuspended
                    | Mistake::NoHeartbeat
                    | Mistake::NoRateMargin
                    | Mistake::SuspendedForGood
            )
        )
    }

    /// The tasks that keep it up to date.
    pub(super) fn tasks(self: &Arc<Self>, inner: &Arc<dyn Store>) -> Vec<Task> {
        let mut tasks = vec![spawn(self.clone().follow(inner.status()))];
        if self.mistake == Some(Mistake::NoHeartbeat) {
            tasks.push(spawn(self.clone().idle(inner.clone())));
        }
        tasks
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Status> {
        self.told.subscribe()
    }

    /// Immediately forwards the status of the store inside.
    pub(super) fn refresh(&self, inner: &Arc<dyn Store>) {
        self.hear(*inner.status().borrow());
    }

    /// Records a call.
    pub(super) fn touch(&self) {
        self.state().last_call = Instant::now();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hear(&self, status: Status) {
        let mut state = self.state();
        let told = self.judge(&mut state, status);
        state.heard = Some(status);
        drop(state);
        if let Some(next) = told {
            self.told.send_if_modified(|told| std::mem::replace(told, next) != next);
        }
    }

    /// The status to report for a received one; `None` if it is omitted.
    fn judge(&self, state: &mut State, status: Status) -> Option<Status> {
        let is_news = state.heard != Some(status);
        let was_suspended = state.suspended;
        match status {
            Status::Live { until } => {
                state.suspended = was_suspended && self.mistake == Some(Mistake::SuspendedForGood);
                match self.mistake {
                    Some(Mistake::NoRateMargin) => {
                        Some(Status::Live { until: until + self.ttl / 50 })
                    }
                    Some(Mistake::LeaseFromOpening) => {
                        let first = certain_until(self.opened, self.ttl, Duration::ZERO);
                        Some(Status::Live { until: until.max(first) })
                    }
                    Some(Mistake::LeaseFromReply) => is_news.then(|| {
                        let until = certain_until(Instant::now(), self.ttl, Duration::ZERO);
                        Status::Live { until }
                    }),
                    Some(Mistake::SuspendedForGood) if was_suspended => None,
                    _ => Some(status),
                }
            }
            Status::Suspended { until } => {
                state.suspended = true;
                match self.mistake {
                    Some(Mistake::NeverSuspended) => None,
                    Some(Mistake::LeaseExtendedByHope) => {
                        let until = until + self.ttl * 3;
                        state.hope = Some(until);
                        Some(Status::Suspended { until })
                    }
                    _ => Some(status),
                }
            }
            Status::Lost { reason } => self.loss(state, reason),
        }
    }

    fn loss(&self, state: &State, reason: SessionEnd) -> Option<Status> {
        let idle = state.last_call.elapsed() >= self.ttl;
        match (self.mistake, reason) {
            (Some(Mistake::NeverLost), SessionEnd::Expired) if state.suspended => None,
            (Some(Mistake::ExpiryUntold), SessionEnd::Expired) if !state.suspended => None,
            (Some(Mistake::CloseUntold), SessionEnd::Closed) => None,
            (Some(Mistake::LeaseExtendedByHope), SessionEnd::Expired)
                if state.hope.is_some_and(|hope| Instant::now() < hope) =>
            {
                None
            }
            (Some(Mistake::LostSessionRevived), SessionEnd::Expired) if state.revived => {
                Some(Status::Live { until: Instant::now() + self.ttl })
            }
            (Some(Mistake::NoHeartbeat), SessionEnd::Closed) if idle => {
                Some(Status::Lost { reason: SessionEnd::Expired })
            }
            _ => Some(Status::Lost { reason }),
        }
    }

    async fn follow(self: Arc<Self>, mut inner: watch::Receiver<Status>) {
        loop {
            let status = *inner.borrow_and_update();
            self.hear(status);
            if status.is_lost() {
                self.after_loss(status).await;
            }
            if inner.changed().await.is_err() {
                return;
            }
        }
    }

    async fn after_loss(&self, status: Status) {
        let hope = self.state().hope;
        match (self.mistake, hope) {
            (Some(Mistake::LeaseExtendedByHope), Some(hope)) => sleep_until(hope).await,
            (Some(Mistake::LostSessionRevived), _) => {
                sleep(self.ttl / 2).await;
                self.state().revived = true;
            }
            _ => return,
        }
        self.hear(status);
    }

    /// Ends the session after its TTL without a call.
    async fn idle(self: Arc<Self>, inner: Arc<dyn Store>) {
        loop {
            let ends = self.state().last_call + self.ttl;
            if ends <= Instant::now() {
                let _ended = inner.close().await.is_ok();
                return;
            }
            sleep_until(ends).await;
        }
    }
}
