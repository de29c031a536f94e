//! Retries: the delays between attempts, and the requests that are safe to repeat.

use std::pin::pin;

use bytes::Bytes;
use futures_util::future::select;
use synod_core::client::{Client, ConnectionState};
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::random::Random;
use synod_core::retry::{Delays, Retry};
use synod_core::session::Session;
use synod_core::store::{Lifetime, Outcome, RejectReason, Txn};

/// The delays between retries without a limit. Each failure makes them longer.
pub(crate) struct RetryDelays {
    retry: Retry,
    random: Random,
    /// `None` before the first delay, and after a success.
    delays: Option<Delays>,
}

impl RetryDelays {
    /// Creates the delays of a policy without a limit.
    pub(crate) fn new(retry: Retry, random: &Random) -> Self {
        Self { retry, random: random.clone(), delays: None }
    }

    pub(crate) fn forever(random: &Random) -> Self {
        Self::new(Retry::forever(), random)
    }

    /// Waits for the next delay.
    pub(crate) async fn wait(&mut self) {
        let delays = self.delays.get_or_insert_with(|| self.retry.delays(&self.random));
        sleep(delays.next().unwrap_or_default()).await;
    }

    /// Makes the next delay a short one again.
    pub(crate) fn reset(&mut self) {
        self.delays = None;
    }
}

/// The delays of a wait that continues through outages.
pub(crate) struct OutageBackoff {
    client: Client,
    delays: RetryDelays,
}

impl OutageBackoff {
    pub(crate) fn new(client: &Client) -> Self {
        Self { client: client.clone(), delays: RetryDelays::forever(client.random()) }
    }

    /// Waits before another attempt, or until the client is closed. Returns the error if no later
    /// attempt can succeed.
    pub(crate) async fn wait(&mut self, error: Error) -> Result<()> {
        let may_succeed = self.client.is_transient(&error);
        self.wait_if(may_succeed, error).await
    }

    /// As [`OutageBackoff::wait`], but also waits after a rejection that may be temporary: the
    /// store has no space, or permissions were withdrawn.
    pub(crate) async fn wait_out(&mut self, error: Error) -> Result<()> {
        let may_end = matches!(error.kind(), ErrorKind::Backend | ErrorKind::Denied);
        let may_succeed = self.client.is_transient(&error) || (may_end && !self.client.is_closed());
        self.wait_if(may_succeed, error).await
    }

    async fn wait_if(&mut self, may_succeed: bool, error: Error) -> Result<()> {
        if !may_succeed {
            return Err(error);
        }
        let mut state = self.client.state();
        let closed = state.wait_for(|state| *state == ConnectionState::Closed);
        let _either = select(pin!(self.delays.wait()), pin!(closed)).await;
        Ok(())
    }

    /// Records that the store answers: the next delay is a short one again.
    pub(crate) fn reset(&mut self) {
        self.delays.reset();
    }
}

/// The backoff of a call that needs an item of a queue.
pub(crate) enum ItemCallBackoff {
    /// The call waits for an item, and continues during outages.
    Waiting(OutageBackoff),
    /// The call does not wait for an item, and fails at the time limit of a call.
    Limited(Client, Delays),
}

impl ItemCallBackoff {
    pub(crate) fn waiting(client: &Client) -> Self {
        Self::Waiting(OutageBackoff::new(client))
    }

    pub(crate) fn limited(client: &Client) -> Self {
        Self::Limited(client.clone(), call_delays(client))
    }

    /// Waits before another attempt. Returns the error if there is no other attempt.
    pub(crate) async fn wait(&mut self, error: Error) -> Result<()> {
        match self {
            Self::Waiting(backoff) => backoff.wait(error).await,
            Self::Limited(client, delays) => {
                let delay = delays.next().filter(|_| client.is_transient(&error));
                let Some(delay) = delay else { return Err(error) };
                sleep(delay).await;
                Ok(())
            }
        }
    }
}

/// The delays between the attempts of a call, up to its time limit.
pub(crate) fn call_delays(client: &Client) -> Delays {
    Retry::until_elapsed(client.timeout()).delays(client.random())
}

/// The delays between attempts to determine an effect, in any session, up to a limit.
pub(crate) struct LimitedBackoff<'a> {
    client: &'a Client,
    delays: Delays,
}

impl<'a> LimitedBackoff<'a> {
    pub(crate) fn new(client: &'a Client, limit: &Retry) -> Self {
        Self { client, delays: limit.delays(client.random()) }
    }

    /// Waits before another attempt. At the limit, and if no later attempt can succeed, returns the
    /// error with an unknown effect.
    pub(crate) async fn wait(&mut self, error: Error) -> Result<()> {
        let delay = self.delays.next().filter(|_| self.client.is_transient(&error));
        let Some(delay) = delay else { return Err(error.with_unknown_effect()) };
        sleep(delay).await;
        Ok(())
    }
}

/// The result of one attempt at a change that may lose a race against other clients.
pub(crate) enum Race<T> {
    Won(T),
    /// Another client was faster. The error is returned if there is no time for another attempt.
    Lost(Error),
}

/// The error of a change that lost races against other clients until its time limit.
pub(crate) fn overtaken(doing: &'static str, path: &Path) -> Error {
    Error::new(ErrorKind::Unreachable, doing)
        .at(path)
        .because("it changed again and again; try again")
}

/// Repeats a request whose answer was lost, also in later sessions, until the time limit of a call.
///
/// The request must be idempotent: the state that it establishes is the same however often it is
/// applied.
pub(crate) async fn repeat<T, F>(client: &Client, mut request: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    repeat_in_doubt(client, |_| request()).await
}

/// Repeats an idempotent request as [`repeat`] does. The request gets `true` if an earlier one may
/// have been applied: its result then does not show whether an earlier one was applied.
pub(crate) async fn repeat_in_doubt<T, F>(
    client: &Client,
    mut request: impl FnMut(bool) -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let attempt = |in_doubt| won(request(in_doubt));
    repeat_while(client, |error| client.is_transient(error), attempt).await
}

/// Repeats an idempotent request as [`repeat`] does, and also after a lost race.
pub(crate) async fn repeat_race<T, F>(client: &Client, mut attempt: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Race<T>>>,
{
    repeat_while(client, |error| client.is_transient(error), |_| attempt()).await
}

/// Repeats an idempotent request as [`repeat`] does, as long as its session lives.
pub(crate) async fn repeat_in_session<T, F>(
    client: &Client,
    mut request: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let unreachable = |error: &Error| error.kind() == ErrorKind::Unreachable;
    repeat_while(client, unreachable, |_| won(request())).await
}

async fn won<T>(request: impl Future<Output = Result<T>>) -> Result<Race<T>> {
    request.await.map(Race::Won)
}

async fn repeat_while<T, F>(
    client: &Client,
    may_succeed: impl Fn(&Error) -> bool,
    mut attempt: impl FnMut(bool) -> F,
) -> Result<T>
where
    F: Future<Output = Result<Race<T>>>,
{
    let mut delays = call_delays(client);
    let mut in_doubt = false;
    loop {
        let (error, is_repeated) = match attempt(in_doubt).await {
            Ok(Race::Won(done)) => return Ok(done),
            Ok(Race::Lost(error)) => (error, true),
            Err(error) => {
                // A later request without an effect does not show that an earlier one had none.
                in_doubt |= error.has_unknown_effect();
                let is_repeated = in_doubt && may_succeed(&error);
                (error, is_repeated)
            }
        };
        let delay = if is_repeated { delays.next() } else { None };
        let Some(delay) = delay else {
            return Err(if in_doubt { error.with_unknown_effect() } else { error });
        };
        sleep(delay).await;
    }
}

/// Repeats a request of a session until it is answered, the store refuses it, or the session is
/// lost.
///
/// A request of unknown effect is repeated, too: of several such requests at most one may be
/// applied.
pub(crate) async fn insist<T, F>(session: &Session, mut request: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut delays = RetryDelays::forever(session.random());
    loop {
        match request().await {
            Err(error) if error.kind() == ErrorKind::Unreachable => delays.wait().await,
            answer => return answer,
        }
    }
}

/// Repeats a transaction as [`insist`] does, until it may have been applied; then returns `None`.
pub(crate) async fn commit_once(session: &Session, txn: &Txn) -> Result<Option<Outcome>> {
    let commit = async || match session.commit(txn.clone()).await {
        Err(error) if error.kind() == ErrorKind::Unreachable && error.has_unknown_effect() => {
            Ok(None)
        }
        outcome => outcome.map(Some),
    };
    insist(session, commit).await
}

/// Commits a transaction together with the create of a node, or alone if the node exists.
pub(crate) async fn commit_with(
    session: &Session,
    txn: Txn,
    path: &Path,
    data: Bytes,
) -> Result<Outcome> {
    let whole = txn.clone().create(path.clone(), data, Lifetime::Persistent);
    let outcome = insist(session, || session.commit(whole.clone())).await?;
    let exists = |outcome: &Outcome| {
        outcome.rejected().is_some_and(|no| no.reason == RejectReason::Exists && no.path == *path)
    };
    if exists(&outcome) {
        return insist(session, || session.commit(txn.clone())).await;
    }
    Ok(outcome)
}
