//! [`Candidacy`]: who stands for election until he leaves, as his application sees it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use futures_util::stream::unfold;
use tokio::sync::{oneshot, watch};
use tracing::Instrument as _;

use crate::clock::timeout;
use crate::error::{Error, ErrorKind, Result};
use crate::line::Line;
use crate::line::hold::Hold;
use crate::line::stand::Stand;
use crate::line::token::Token;
use crate::mutant::{self, Mutant};
use crate::task::{self, Task};

/// The lead, as long as it is held: for looking at, for guarded transactions, for its token. It goes with the
/// candidacy, whoever still looks at it.
pub type Leadership = Arc<Hold>;

/// Somebody who stands in a [`LeaderLatch`](crate::recipe::leader_latch::LeaderLatch), across sessions. Dropping
/// this gives it up in the background.
#[must_use = "who is dropped does not stand any more"]
pub struct Candidacy {
    state: watch::Receiver<State>,
    close: oneshot::Sender<()>,
    closed: oneshot::Receiver<Result<()>>,
    task: Task,
}

/// What happens to a candidate.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Change {
    /// He leads.
    Gained(Leadership),
    /// He does not lead any more: the term with this token is over.
    Lost(Token),
    /// He could not stand, and tries again.
    Failed(Error),
}

/// How a candidate stands.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// He is on his way.
    Joining,
    Waiting,
    Leading(Leadership),
    Failed(Error),
}

/// How long whoever waits for the lead rests when nobody can be certain of it.
const REST: Duration = Duration::from_millis(100);

impl Candidacy {
    /// Stands in this line from now on. If nobody else does, he leads when this returns.
    pub(crate) async fn begin(line: &Line) -> Result<Self> {
        let ticket = line.enqueue().await?;
        let (close, asked) = oneshot::channel();
        let (tell, closed) = oneshot::channel();
        let (tx, mut state) = watch::channel(State::Joining);
        let stand = Stand::new(line.clone(), tx, asked);
        let label = String::from_utf8_lossy(line.label());
        let span = tracing::info_span!("standing", recipe = line.form().recipe, path = %line.dir(), ?label);
        let task = task::spawn(
            async move {
                let _heard = tell.send(stand.run(ticket).await).is_ok();
            }
            .instrument(span),
        );
        let candidacy = Self { state: state.clone(), close, closed, task };
        let _known = state.wait_for(|state| !matches!(state, State::Joining)).await.is_ok();
        Ok(candidacy)
    }

    /// Whether he certainly leads at this moment. False as soon as nobody can know, before anybody is told.
    pub fn is_leader(&self) -> bool {
        self.leadership().is_some()
    }

    /// The lead, if he certainly has it at this moment.
    pub fn leadership(&self) -> Option<Leadership> {
        self.state.borrow().leadership().cloned()
    }

    /// Waits until he leads.
    ///
    /// # Errors
    ///
    /// Why he could not stand, if that happens meanwhile. He tries again; so may the caller.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    pub async fn leading(&self) -> Result<Leadership> {
        let mut state = self.state.clone();
        loop {
            let in_doubt = match &*state.borrow_and_update() {
                State::Leading(lead) if lead.is_held() => return Ok(lead.clone()),
                State::Leading(_) => true,
                _ => false,
            };
            let limit = if in_doubt { REST } else { Duration::MAX };
            match timeout(limit, state.changed()).await {
                Err(_rested) => continue,
                Ok(Err(_over)) => return Err(over()),
                Ok(Ok(())) => {}
            }
            if let State::Failed(error) = &*state.borrow() {
                return Err(error.clone());
            }
        }
    }

    /// What happens to him from now on, beginning with [`Change::Gained`] if he leads. Each term that is told
    /// is gained and lost, once and in order; who looks rarely misses whole terms. It ends with the candidacy.
    pub fn changes(&self) -> impl Stream<Item = Change> + Send + use<> {
        let mut state = self.state.clone();
        state.mark_changed();
        unfold((state, None), |(mut state, mut told)| async move {
            loop {
                let over = state.changed().await.is_err();
                let now = if over { State::Waiting } else { state.borrow_and_update().clone() };
                let (change, again) = next(&mut told, now);
                if again {
                    state.mark_changed();
                }
                match change {
                    Some(change) => return Some((change, (state, told))),
                    None if over => return None,
                    None => {}
                }
            }
        })
    }

    /// Leaves: when this returned without an error he does not stand any more, and the next one may lead.
    ///
    /// # Errors
    ///
    /// As [`Hold::release`], if he led.
    ///
    /// # Cancel safety
    ///
    /// A dropped call goes on in the background.
    pub async fn close(self) -> Result<()> {
        if mutant::is(Mutant::CloseForgetsDraw) {
            std::mem::forget(self);
            return Ok(());
        }
        let Self { close, closed, task, .. } = self;
        let _asked = close.send(()).is_ok();
        let result = closed.await.unwrap_or(Ok(()));
        drop(task);
        result
    }
}

impl State {
    fn leadership(&self) -> Option<&Leadership> {
        match self {
            Self::Leading(lead) => {
                (lead.is_held() || mutant::is(Mutant::LeadByCallback)).then_some(lead)
            }
            _ => None,
        }
    }
}

/// What to tell next of how it stands, after what was told last; and whether there is more to tell.
fn next(told: &mut Option<Token>, now: State) -> (Option<Change>, bool) {
    let leads = now.leadership().map(|lead| lead.token());
    match (*told, now) {
        (Some(last), now) if leads != Some(last) => {
            *told = None;
            if mutant::is(Mutant::LossUntoldToLatch) {
                return next(told, now);
            }
            (Some(Change::Lost(last)), leads.is_some() || matches!(now, State::Failed(_)))
        }
        (None, State::Leading(lead)) if leads.is_some() => {
            *told = leads;
            (Some(Change::Gained(lead)), false)
        }
        (_, State::Failed(error)) => (Some(Change::Failed(error)), false),
        _ => (None, false),
    }
}

fn over() -> Error {
    Error::new(ErrorKind::SessionLost, "waiting for the lead").because("the candidacy is over")
}

impl fmt::Debug for Candidacy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidacy").field("state", &*self.state.borrow()).finish_non_exhaustive()
    }
}
