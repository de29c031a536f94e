//! [`ShareTask`]: the task that takes part in a partition, session after session, until its share
//! is over.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::session::Session;
use tokio::sync::oneshot;

use crate::partition::session_share::{PartitionTerms, SessionShare};
use crate::partition::share_state::ShareShared;
use crate::support::retry::RetryDelays;

/// Takes part in a partition.
pub(super) struct ShareTask {
    client: Client,
    terms: Arc<PartitionTerms>,
    shared: Arc<ShareShared>,
    joined: Option<oneshot::Sender<Result<()>>>,
    delays: RetryDelays,
}

impl ShareTask {
    pub(super) fn new(
        client: &Client,
        terms: Arc<PartitionTerms>,
        shared: Arc<ShareShared>,
        joined: oneshot::Sender<Result<()>>,
    ) -> Self {
        let delays = RetryDelays::forever(client.random());
        Self { client: client.clone(), terms, shared, joined: Some(joined), delays }
    }

    /// Takes part until the share is over, and then leaves.
    pub(super) async fn run(mut self) -> Result<()> {
        let mut result = Ok(());
        while !self.client.is_closed() {
            let session = self.client.session();
            let session = match select(pin!(session), pin!(self.shared.over())).await {
                Either::Left((session, _)) => session,
                // The share ended between two sessions: it has no nodes in the store, or they are
                // removed with the last session.
                Either::Right(_) => break,
            };
            match session {
                Ok(session) => {
                    result = self.in_session(&session).await;
                    self.shared.record_session_lost();
                    if self.shared.is_over() {
                        break;
                    }
                    self.pause().await;
                }
                Err(error) if self.end_by(&error) => break,
                Err(_outage) => self.delay().await,
            }
        }
        self.shared.stop();
        self.shared.record_session_lost();
        result
    }

    /// Takes part in a session until it is lost, or the share is over.
    async fn in_session(&mut self, session: &Session) -> Result<()> {
        let mut share = SessionShare::new(session, &self.terms, &self.shared);
        while !session.is_lost() {
            // Boxed, so that the task stays small.
            let error = match Box::pin(self.turn(&mut share)).await {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    self.delays.reset();
                    continue;
                }
                Err(error) => error,
            };
            tracing::debug!(%error, "a member of a partition could not proceed");
            if self.end_by(&error) {
                break;
            }
            share.set_stale();
            let delay = Box::pin(self.delay());
            let _first = select(pin!(session.lost()), delay).await;
        }
        if self.shared.is_over() && session.is_lost() && !self.client.is_closed() {
            // The claims are removed with the session.
            return session.close().await;
        }
        Ok(())
    }

    async fn turn(&mut self, share: &mut SessionShare) -> Result<bool> {
        if let Some(joined) = self.joined.take() {
            if self.shared.is_over() {
                return Ok(true);
            }
            if let Err(error) = share.join().await {
                self.joined = Some(joined);
                return Err(error);
            }
            let _is_received = joined.send(Ok(())).is_ok();
        }
        share.step().await
    }

    /// Ends the share if it has not joined yet and the error is permanent. Returns `true` if it
    /// ended the share.
    fn end_by(&mut self, error: &Error) -> bool {
        if error.kind().is_outage() || error.kind() == ErrorKind::SessionLost {
            return false;
        }
        let Some(joined) = self.joined.take() else { return false };
        let _is_received = joined.send(Err(error.clone())).is_ok();
        self.shared.stop();
        true
    }

    /// Waits before the next attempt.
    async fn delay(&mut self) {
        self.delays.wait().await;
    }

    /// Waits for a random part of a short time: many members may have lost their sessions at the
    /// same time.
    async fn pause(&self) {
        const MAX_MILLIS: u64 = 200;
        sleep(Duration::from_millis(self.client.random().below(MAX_MILLIS))).await;
    }
}
