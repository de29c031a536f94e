//! The background task of a client, which opens its sessions.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::{self, Instant, sleep, timeout};
use futures_util::future::{Either, select};
use tokio::sync::{mpsc, oneshot};

use crate::client::generations::{Generations, closed};
use crate::client::options::ClientOptions;
use crate::client::resumption::Resumption;
use crate::error::{Error, ErrorKind, Result};
use crate::mutant::mistake;
use crate::retry::Delays;
use crate::session::Session;
use crate::session::call_context::Tuning;
use crate::session::deadline::Deadline;
use crate::session::session_state::{SessionState, StatusKind};
use crate::store::{Backend, SessionEnd, SessionHandover, SessionId};

/// A request to close the client. The task also closes it when the last sender is dropped.
pub(super) enum Close {
    /// End the session.
    End,
    /// Hand over the session with this id.
    HandOver(SessionId, oneshot::Sender<Result<SessionHandover>>),
}

pub(super) struct Opener {
    backend: Arc<dyn Backend>,
    options: ClientOptions,
    tuning: Arc<Tuning>,
    /// The session to start with.
    resumption: Option<Resumption>,
}

pub(super) struct ClientTask {
    pub(super) opener: Opener,
    pub(super) generations: Arc<Generations>,
    pub(super) close: mpsc::UnboundedReceiver<Close>,
}

impl Opener {
    pub(super) fn new(backend: Arc<dyn Backend>, options: ClientOptions) -> Self {
        let tuning = Arc::new(Tuning {
            timeout: options.timeout,
            retry: options.retry.clone(),
            random: options.random.clone(),
        });
        let resumption = options
            .resume
            .clone()
            .map(|handover| Resumption { handover, claimant: tuning.random.id() });
        Self { backend, options, tuning, resumption }
    }

    pub(super) fn tuning(&self) -> Arc<Tuning> {
        self.tuning.clone()
    }

    /// Opens the first session, with all attempts within one deadline.
    pub(super) async fn first(&self) -> Result<Session> {
        let limit = self.options.connect_timeout;
        let deadline = Deadline::within(limit);
        let refusal = Deadline::within(self.options.refused_timeout.min(limit));
        let last = Mutex::new(None);
        let last = || last.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = async {
            refusal.passed().await;
            let is_refused = last().as_ref().is_some_and(Error::has_no_server);
            if !is_refused {
                deadline.passed().await;
            }
        };
        let ends = |error: &Error| is_final(error) || self.resumption.is_some() && is_used(error);
        let attempts = self.repeat(self.delays(), true, ends, |error| *last() = Some(error));
        if let Either::Left((result, _)) = select(pin!(attempts), pin!(refused)).await {
            return result;
        }
        let last = last().take();
        Err(match last {
            Some(last) if last.has_no_server() => {
                refusal.error(OPENING).caused_by(last).with_no_server()
            }
            Some(last) => deadline.error(OPENING).caused_by(last),
            None => deadline.error(OPENING),
        })
    }

    /// Opens a session, and retries after each error that is not final, until the retry policy
    /// ends.
    async fn repeat(
        &self,
        mut delays: Delays,
        is_first: bool,
        ends: impl Fn(&Error) -> bool,
        mut note: impl FnMut(Error),
    ) -> Result<Session> {
        let mut failures = OpenFailures::default();
        loop {
            let opened = match &self.resumption {
                Some(resumption) if is_first => self.resume(resumption).await,
                _ => self.once().await,
            };
            let error = match opened {
                Ok(session) => {
                    failures.log_end();
                    return Ok(session);
                }
                Err(error) => error,
            };
            failures.log(&error);
            let ended = ends(&error);
            mistake!(RefusalIsFinal: let ended = is_final(&error));
            if ended {
                return Err(error);
            }
            let Some(delay) = delays.next() else { return Err(error) };
            note(error);
            sleep(delay).await;
        }
    }

    async fn once(&self) -> Result<Session> {
        let limit = self.options.connect_timeout;
        match timeout(limit, self.backend.open(&self.options.session)).await {
            Ok(opened) => Ok(Session::start(opened?, self.tuning.clone())),
            Err(_late) => Err(Deadline::within(limit).error(OPENING)),
        }
    }

    /// Claims a session that was handed over, and continues it. Only the client that has the claim
    /// connects to the session: another connection would disturb the first one.
    async fn resume(&self, resumption: &Resumption) -> Result<Session> {
        let limit = self.options.connect_timeout;
        let mut options = self.options.session.clone();
        options.resume = Some(resumption.handover.clone());
        let resuming = async {
            let own = self.backend.open(&self.options.session).await?;
            let claimed = resumption.claim(&*own, self.delays()).await;
            let _closed = own.close().await.is_ok();
            let claim = claimed?;
            let store = self.backend.open(&options).await?;
            if store.session().id == resumption.handover.session() {
                return Ok(Session::start(store, self.tuning.clone()).resumed(claim));
            }
            let _closed = store.close().await.is_ok();
            Err(Error::new(ErrorKind::Unsupported, OPENING)
                .because("this store cannot continue a session"))
        };
        let opened = timeout(limit, resuming).await;
        opened.unwrap_or_else(|_late| Err(Deadline::within(limit).error(OPENING)))
    }

    fn delays(&self) -> Delays {
        self.options.session_policy().delays(&self.tuning.random)
    }
}

const OPENING: &str = "opening a session";

/// Returns `true` if the error ends the attempts to open the first session: invalid options are
/// reported immediately.
fn is_final(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Denied | ErrorKind::Invalid | ErrorKind::Unsupported)
}

/// Returns `true` if the session that the client resumes is over, or another client has it.
fn is_used(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::SessionLost | ErrorKind::Refused)
}

/// Returns `true` if the error ends the attempts to open the first session of a lazy client: its
/// options cannot become valid. Rejected credentials may be set up later.
fn is_final_lazily(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unsupported)
}

/// Returns `true` if the error ends the attempts to open a later session. The store accepted a
/// session with these options before, so a rejection may come from a single server, or from
/// credentials that are being changed: the retry policy decides.
fn is_final_later(_error: &Error) -> bool {
    false
}

/// The failed attempts to open one session. An outage logs a few lines, not one for each attempt.
#[derive(Default)]
struct OpenFailures {
    count: u64,
    logged: Option<(ErrorKind, Instant)>,
}

impl OpenFailures {
    /// The time after which a failure of the same kind is logged at `WARN` again.
    const QUIET: Duration = Duration::from_secs(60);

    fn log(&mut self, error: &Error) {
        self.count += 1;
        let attempts = self.count;
        let is_repeated = self
            .logged
            .is_some_and(|(kind, at)| kind == error.kind() && clock::elapsed(at) < Self::QUIET);
        if is_repeated {
            return tracing::debug!(%error, attempts, "could not open a session");
        }
        self.logged = Some((error.kind(), clock::now()));
        tracing::warn!(%error, attempts, "could not open a session");
    }

    fn log_end(&self) {
        if self.count > 0 {
            tracing::info!(failed_attempts = self.count, "opened a session");
        }
    }
}

impl ClientTask {
    /// Opens the next session when one is lost, until the client is closed, its last clone is
    /// dropped, or the retry policy ends the attempts.
    ///
    /// `first`: the session with which it starts. `None` for a lazy client.
    pub(super) async fn run(mut self, first: Option<Session>) {
        let first = match first {
            Some(session) => Some(session),
            None => self.open_first().await,
        };
        let Some(mut session) = first else { return };
        let mut delays = self.opener.delays();
        loop {
            let opened_at = clock::now();
            if let Some(request) = self.until_lost(&session).await {
                self.end(session, request).await;
                mistake!(KeeperStays: std::future::pending::<()>().await);
                return;
            }
            self.generations.set_between();
            let (ttl, last) = (session.info().ttl, session.state().clone());
            drop(session);
            // After a session that ended soon after it was opened, a delay limits the rate of new
            // sessions.
            let pause = if clock::elapsed(opened_at) >= ttl { None } else { delays.next() };
            if pause.is_none() {
                delays = self.opener.delays();
            }
            let opened = {
                let open = pin!(async {
                    if let Some(pause) = pause {
                        sleep(pause).await;
                    }
                    let note = |error| self.generations.record_failure(error);
                    self.opener.repeat(self.opener.delays(), false, is_final_later, note).await
                });
                match select(open, pin!(self.close.recv())).await {
                    Either::Left((opened, _)) => Some(opened),
                    Either::Right(_) => None,
                }
            };
            session = match opened {
                None => return self.end_between(&closed(), Some(&last)).await,
                Some(Ok(session)) => session,
                Some(Err(error)) => {
                    tracing::warn!(%error, "stopped opening sessions");
                    return self.end_between(&Arc::new(error), Some(&last)).await;
                }
            };
            self.generations.set_session(session.clone());
        }
    }

    /// Opens the first session of a lazy client. `None` if the client is closed first, or the
    /// policy ends the attempts.
    async fn open_first(&mut self) -> Option<Session> {
        let opened = {
            let note = |error| self.generations.record_failure(error);
            let open = self.opener.repeat(self.opener.delays(), true, is_final_lazily, note);
            match select(pin!(open), pin!(self.close.recv())).await {
                Either::Left((opened, _)) => opened.map_err(Arc::new),
                Either::Right(_) => Err(closed()),
            }
        };
        match opened {
            Ok(session) => {
                self.generations.set_session(session.clone());
                Some(session)
            }
            Err(why) => {
                tracing::debug!(%why, "ended before the first session");
                self.end_between(&why, None).await;
                None
            }
        }
    }

    /// Reports the status of the session until it is lost (`None`), closing is requested (the
    /// request), or the last clone of the client is dropped (`Some(None)`).
    async fn until_lost(&mut self, session: &Session) -> Option<Option<Close>> {
        let mut seen = StatusKind::Live;
        loop {
            let changed = session.state().kind_changed(seen);
            match select(pin!(self.close.recv()), pin!(changed)).await {
                Either::Left((request, _)) => return Some(request),
                Either::Right((StatusKind::Lost, _)) => return None,
                Either::Right((kind, _)) => {
                    seen = kind;
                    self.generations.status_changed(kind);
                }
            }
        }
    }

    /// Ends a client that has no session, without opening another one. The loss of the last session
    /// on this side does not prove that its nodes are gone: only its close does.
    async fn end_between(&self, why: &Arc<Error>, last: Option<&SessionState>) {
        self.generations.set_over(why);
        let cleanly = match last {
            Some(last) => last.closed().await,
            None => true,
        };
        mistake!(LossIsEnd: let cleanly = true);
        self.generations.set_closed(why, cleanly);
    }

    async fn end(self, session: Session, request: Option<Close>) {
        let why = closed();
        if let Some(Close::HandOver(id, reply)) = request {
            return self.hand_over(session, id, reply).await;
        }
        self.generations.set_over(&why);
        if request.is_none() {
            mistake!(LastDropForgotten: std::future::pending::<()>().await);
            // A caller that still holds the session keeps it.
            drop(session);
            return self.generations.set_closed(&why, true);
        }
        let cleanly = session.close().await;
        self.generations.set_closed(&why, cleanly.is_ok());
    }

    async fn hand_over(
        self,
        session: Session,
        id: SessionId,
        reply: oneshot::Sender<Result<SessionHandover>>,
    ) {
        let why = closed();
        let handed = if session.info().id == id {
            // The client is over only after that: its callers may drop guards when they notice.
            session.hand_over().await
        } else {
            Err(SessionEnd::Expired.error("handing a session over"))
        };
        self.generations.set_over(&why);
        let cleanly = match &handed {
            Ok(_) => true,
            Err(_) => session.close().await.is_ok(),
        };
        self.generations.set_closed(&why, cleanly);
        let _is_awaited = reply.send(handed).is_ok();
    }
}
