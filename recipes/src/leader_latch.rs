//! [`LeaderLatch`]: a candidate from joining to closing, which always knows whether it leads.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::future::{Either, poll_immediate, select};
use futures_util::stream::unfold;
use synod_core::client::Client;
use synod_core::clock::timeout;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::held::Token;
use synod_core::path::Path;
use synod_core::task::{self, Task};
use tokio::sync::{oneshot, watch};
use tracing::Instrument as _;

use crate::line::hold::{Hold, Leadership};
use crate::line::order::Contender;
use crate::line::ticket::Ticket;
use crate::line::{Form, Line};
use crate::mutant::mistake;

#[cfg_attr(not(doctest), doc = include_str!("../docs/leader_latch.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/elections.md"))]
#[derive(Clone, Debug)]
pub struct LeaderLatch {
    line: Line,
}

/// A candidate of a [`LeaderLatch`], across sessions. Dropping this removes the candidate in the
/// background.
#[must_use = "dropping this removes the candidate from the election"]
pub struct Candidacy {
    state: watch::Receiver<CandidateState>,
    close: oneshot::Sender<()>,
    closed: oneshot::Receiver<Result<()>>,
    task: Task,
}

/// A change of a candidate.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LeadershipChange {
    /// The candidate leads.
    Gained(Leadership),
    /// The candidate no longer leads: the term with this token has ended.
    Lost(Token),
    /// The candidate could not enter the queue, and retries.
    Failed(Error),
}

/// The state of a candidate.
#[derive(Clone, Debug)]
enum CandidateState {
    /// The candidate has entered the queue, and does not know yet whether it leads.
    Joining,
    Waiting,
    Leading(Leadership),
    Failed(Error),
}

/// The task of a candidate: it enters the queue again whenever a term ends.
struct CandidateTask {
    line: Line,
    state: watch::Sender<CandidateState>,
    close: oneshot::Receiver<()>,
}

/// The leadership of one term. Dropping it releases the lead.
struct Tenure(Arc<Hold>);

/// The interval between checks while the leadership is not certain.
const PAUSE: Duration = Duration::from_millis(100);

impl LeaderLatch {
    /// The election at `path`.
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        Self { line: Line::new(client, path.into(), Form::exclusive("leader_latch", "latch-")) }
    }

    /// Sets the label of the candidates of this latch, which the list of candidates shows.
    pub fn label(self, label: impl Into<Bytes>) -> Self {
        Self { line: self.line.labelled(label.into()) }
    }

    /// Becomes a candidate, in a task of its own. If there is no other candidate, it leads when
    /// this returns.
    ///
    /// # Errors
    ///
    /// [`Unreachable`](synod_core::error::ErrorKind) if there was no session within the time limit
    /// of the client, [`SessionLost`](synod_core::error::ErrorKind) once the client is closed, and
    /// any error that the store returns. A client that has joined stays a candidate until it
    /// leaves: a later failure is reported as [`LeadershipChange::Failed`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn join(&self) -> Result<Candidacy> {
        Candidacy::begin(&self.line).await
    }

    /// The first candidate: it leads, or is about to lead.
    ///
    /// # Errors
    ///
    /// The errors common to all calls of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn leader(&self) -> Result<Option<Contender>> {
        Ok(self.candidates().await?.into_iter().next())
    }

    /// All candidates, the leader first, in the order in which they will lead.
    ///
    /// # Errors
    ///
    /// The errors common to all calls of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn candidates(&self) -> Result<Vec<Contender>> {
        self.line.contenders().await
    }
}

impl Candidacy {
    /// Enters the queue. If there is no other candidate, it leads when this returns.
    async fn begin(line: &Line) -> Result<Self> {
        let ticket = line.enqueue().await?;
        let (close, close_rx) = oneshot::channel();
        let (closed_tx, closed) = oneshot::channel();
        let (tx, mut state) = watch::channel(CandidateState::Joining);
        let candidate = CandidateTask::new(line.clone(), tx, close_rx);
        let label = String::from_utf8_lossy(line.label());
        let (recipe, path) = (line.form().recipe, line.dir());
        let span = tracing::info_span!("candidate", recipe, %path, ?label);
        let task = task::spawn(
            async move {
                let _is_received = closed_tx.send(candidate.run(ticket).await).is_ok();
            }
            .instrument(span),
        );
        let candidacy = Self { state: state.clone(), close, closed, task };
        let _is_decided =
            state.wait_for(|state| !matches!(state, CandidateState::Joining)).await.is_ok();
        Ok(candidacy)
    }

    /// Returns `true` if the candidate certainly leads at this moment. Returns `false` as soon as
    /// the session is not certain, before any notification.
    pub fn is_leader(&self) -> bool {
        self.leadership().is_some()
    }

    /// The leadership, if the candidate certainly leads at this moment.
    pub fn leadership(&self) -> Option<Leadership> {
        self.state.borrow().leadership().cloned()
    }

    /// Waits until the candidate leads.
    ///
    /// # Errors
    ///
    /// The error of an attempt to enter the queue that failed during the wait. The candidate
    /// retries; the caller may call this again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    pub async fn leading(&self) -> Result<Leadership> {
        let mut state = self.state.clone();
        loop {
            let in_doubt = match &*state.borrow_and_update() {
                CandidateState::Leading(lead) if lead.is_held() => return Ok(lead.clone()),
                CandidateState::Leading(_) => true,
                _ => false,
            };
            let limit = if in_doubt { PAUSE } else { Duration::MAX };
            match timeout(limit, state.changed()).await {
                Err(_elapsed) => continue,
                Ok(Err(_over)) => return Err(over()),
                Ok(Ok(())) => {}
            }
            if let CandidateState::Failed(error) = &*state.borrow() {
                return Err(error.clone());
            }
        }
    }

    /// The changes from now on, beginning with [`LeadershipChange::Gained`] if it leads. Each
    /// reported term is gained once and lost once, in order; a slow reader may miss whole terms.
    /// The stream ends with the candidacy.
    pub fn changes(&self) -> impl Stream<Item = LeadershipChange> + Send + use<> {
        let mut state = self.state.clone();
        state.mark_changed();
        unfold((state, None), |(mut state, mut reported)| async move {
            loop {
                let over = state.changed().await.is_err();
                let now =
                    if over { CandidateState::Waiting } else { state.borrow_and_update().clone() };
                let (change, again) = next(&mut reported, now);
                if again {
                    state.mark_changed();
                }
                match change {
                    Some(change) => return Some((change, (state, reported))),
                    None if over => return None,
                    None => {}
                }
            }
        })
    }

    /// Leaves. When this returns without an error, the candidate has left the queue, and the next
    /// one may lead.
    ///
    /// # Errors
    ///
    /// As [`MutexGuard::release`](crate::lock::MutexGuard::release), if the candidate led.
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background.
    pub async fn close(self) -> Result<()> {
        mistake!(CloseForgetsDraw: return { std::mem::forget(self); Ok(()) });
        let Self { close, closed, task, .. } = self;
        let _is_received = close.send(()).is_ok();
        let result = closed.await.unwrap_or(Ok(()));
        drop(task);
        result
    }
}

impl CandidateState {
    fn leadership(&self) -> Option<&Leadership> {
        match self {
            Self::Leading(lead) => lead.is_held().then_some(lead),
            _ => None,
        }
    }
}

/// The next change to report, after the last term that was reported; and whether there is another
/// one to report.
fn next(reported: &mut Option<Token>, now: CandidateState) -> (Option<LeadershipChange>, bool) {
    let leads = now.leadership().map(Leadership::token);
    match (*reported, now) {
        (Some(last), now) if leads != Some(last) => {
            *reported = None;
            mistake!(LossUntoldToLatch: return next(reported, now));
            (
                Some(LeadershipChange::Lost(last)),
                leads.is_some() || matches!(now, CandidateState::Failed(_)),
            )
        }
        (None, CandidateState::Leading(lead)) if leads.is_some() => {
            *reported = leads;
            (Some(LeadershipChange::Gained(lead)), false)
        }
        (_, CandidateState::Failed(error)) => (Some(LeadershipChange::Failed(error)), false),
        _ => (None, false),
    }
}

fn over() -> Error {
    Error::new(ErrorKind::SessionLost, "waiting for the lead").because("the candidacy has ended")
}

impl fmt::Debug for Candidacy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidacy").field("state", &*self.state.borrow()).finish_non_exhaustive()
    }
}

impl CandidateTask {
    fn new(line: Line, state: watch::Sender<CandidateState>, close: oneshot::Receiver<()>) -> Self {
        Self { line, state, close }
    }

    /// Stays a candidate until it is closed.
    async fn run(mut self, first: Ticket) -> Result<()> {
        let mut delays = self.line.delays();
        let mut ticket = Some(first);
        loop {
            match self.term(ticket.take()).await {
                Ok(Some(left)) => return left,
                Ok(None) => {
                    delays.reset();
                    self.state.send_replace(CandidateState::Waiting);
                }
                Err(error) if self.line.client().is_closed() => return Err(error),
                Err(error) => {
                    if error.kind().is_outage() {
                        // The session logs the outage itself.
                        tracing::debug!(%error, "could not become a candidate; retrying");
                    } else {
                        tracing::warn!(%error, "could not become a candidate; retrying");
                    }
                    self.state.send_replace(CandidateState::Failed(error));
                    if let Either::Right(_) = select(pin!(delays.wait()), &mut self.close).await {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// One term, from entering the queue to the loss of the lead. `Some` if the candidate is
    /// closed.
    async fn term(&mut self, ticket: Option<Ticket>) -> Result<Option<Result<()>>> {
        let mut ticket = match ticket {
            Some(ticket) => ticket,
            None => match select(pin!(self.line.enqueue()), &mut self.close).await {
                Either::Left((ticket, _)) => ticket?,
                Either::Right(_) => return Ok(Some(Ok(()))),
            },
        };
        let granted = {
            let mut granted = pin!(ticket.granted());
            if let Some(immediately) = poll_immediate(granted.as_mut()).await {
                Some(immediately)
            } else {
                self.state.send_replace(CandidateState::Waiting);
                match select(granted, &mut self.close).await {
                    Either::Left((granted, _)) => Some(granted),
                    Either::Right(_) => None,
                }
            }
        };
        let Some(granted) = granted else {
            ticket.leave().await;
            return Ok(Some(Ok(())));
        };
        granted?;
        let tenure = Tenure(Arc::new(ticket.hold(())));
        self.state.send_replace(CandidateState::Leading(Leadership(tenure.0.clone())));
        let (ticket, token) = (tenure.0.node.path(), tenure.0.token());
        tracing::info!(%ticket, %token, "leading");
        if let Either::Right(_) = select(pin!(tenure.0.lost()), &mut self.close).await {
            return Ok(Some(tenure.0.give_back().await));
        }
        tracing::info!(%ticket, %token, "the lead is lost");
        Ok(None)
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        self.0.give_up();
    }
}
