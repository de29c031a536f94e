//! The store, the state and the tuning of a session: [`CallContext`], which every call and every
//! background job uses.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::sleep;
use futures_util::future::{Either, select};

use crate::error::{Effect, Error, ErrorKind, Result};
use crate::mutant::mistake;
use crate::path::Path;
use crate::random::Random;
use crate::retry::{Delays, Retry};
use crate::session::deadline::Deadline;
use crate::session::session_state::{SessionState, over};
use crate::store::{SessionEnd, Status, Store};

/// The deadline, retry policy and random source of the calls of a session.
#[derive(Clone, Debug)]
pub(crate) struct Tuning {
    pub(crate) timeout: Duration,
    pub(crate) retry: Retry,
    pub(crate) random: Random,
}

/// The context of a call. It does not keep the session open.
#[derive(Clone, Debug)]
pub(super) struct CallContext {
    pub(super) store: Arc<dyn Store>,
    pub(super) state: Arc<SessionState>,
    pub(super) tuning: Arc<Tuning>,
}

/// The reason for which a call ends without a result.
pub(super) enum Stop {
    Lost(SessionEnd),
    Late { suspended: bool },
}

impl Stop {
    pub(super) fn error(&self, doing: &'static str, deadline: Deadline) -> Error {
        match self {
            Self::Lost(why) => over(*why, doing),
            Self::Late { suspended: false } => deadline.error(doing),
            Self::Late { suspended: true } => deadline.error_suspended(doing),
        }
    }
}

impl CallContext {
    pub(super) fn delays(&self) -> Delays {
        let retry = &self.tuning.retry;
        mistake!(GivesUpAtOnce: let retry = &Retry::Never);
        mistake!(PolicyIgnored: let retry = &Retry::forever());
        retry.delays(&self.tuning.random)
    }

    /// Waits until the session is over or the deadline has passed.
    pub(super) async fn stopped(&self, deadline: Deadline) -> Stop {
        mistake!(CallOutlivesSession: {
            deadline.passed().await;
            return Stop::Late { suspended: false };
        });
        match select(pin!(self.state.lost()), pin!(deadline.passed())).await {
            Either::Left((why, _)) => Stop::Lost(why),
            Either::Right(_) => {
                Stop::Late { suspended: matches!(self.state.now(), Status::Suspended { .. }) }
            }
        }
    }

    /// Sends a request until there is an answer, a retry is not permitted, or the deadline has
    /// passed.
    pub(super) async fn request<T, F>(
        &self,
        (doing, path): (&'static str, &Path),
        deadline: Deadline,
        mut call: impl FnMut() -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut delays = self.delays();
        let mut last = None;
        loop {
            if let Some(why) = self.state.loss() {
                return Err(over(why, doing).at(path));
            }
            mistake!(DeadlinePerAttempt: let deadline = Deadline::within(self.tuning.timeout));
            let ended = {
                let attempt = pin!(async {
                    let result = call().await;
                    match delay_after(&result, &mut delays) {
                        Some(delay) => {
                            last = result.err();
                            sleep(delay).await;
                            None
                        }
                        None => Some(result),
                    }
                });
                match select(attempt, pin!(self.stopped(deadline))).await {
                    Either::Left((ended, _)) => Ok(ended),
                    Either::Right((stop, _)) => Err(stop),
                }
            };
            match ended {
                Ok(Some(result)) => return self.judge(result, doing),
                Ok(None) => {}
                Err(stop) => {
                    let error = stop.error(doing, deadline).at(path);
                    return Err(match last {
                        Some(last) => error.caused_by(last),
                        None => error,
                    });
                }
            }
        }
    }

    /// Checks an answer against the state of the session: an answer after the loss of the session
    /// is discarded, and an answer that reports the loss ends the session.
    pub(super) fn judge<T>(&self, result: Result<T>, doing: &'static str) -> Result<T> {
        if let Err(error) = &result
            && error.kind() == ErrorKind::SessionLost
        {
            self.state.end(SessionEnd::Expired);
        }
        let loss = self.state.loss();
        mistake!(LostAnswered: let loss = None);
        match (result, loss) {
            (Ok(_too_late), Some(why)) => Err(over(why, doing)),
            (result, _) => result,
        }
    }

    /// Waits for the delay, or until the session ends.
    pub(super) async fn rest(&self, delay: Duration) {
        if self.state.loss().is_some() {
            return sleep(delay).await;
        }
        let _either = select(pin!(sleep(delay)), pin!(self.state.lost())).await;
    }
}

/// Returns the delay before the next attempt; `None` if there is none.
fn delay_after<T>(result: &Result<T>, delays: &mut Delays) -> Option<Duration> {
    let error = result.as_ref().err()?;
    if error.kind() == ErrorKind::Unreachable { delays.next() } else { None }
}

/// Returns `true` if a write may be sent again: it had no effect, and may succeed later.
pub(super) fn may_repeat(error: &Error) -> bool {
    let did_nothing = error.effect() == Effect::None;
    mistake!(AmbiguousRepeated: let did_nothing = true);
    error.kind() == ErrorKind::Unreachable && did_nothing
}
