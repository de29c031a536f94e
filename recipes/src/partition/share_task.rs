//! [`ShareTask`]: takes part in a partition, session after session, until its share is over.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::retry::{Delays, Retry};
use synod_core::session::Session;
use tokio::sync::oneshot;

use crate::partition::session_share::{PartitionTerms, SessionShare};
use crate::partition::share_page::SharePage;

/// Takes part in a partition.
pub(super) struct ShareTask {
    client: Client,
    terms: Arc<PartitionTerms>,
    page: Arc<SharePage>,
    joined: Option<oneshot::Sender<Result<()>>>,
    delays: Option<Delays>,
}

impl ShareTask {
    pub(super) fn new(
        client: &Client,
        terms: Arc<PartitionTerms>,
        page: Arc<SharePage>,
        joined: oneshot::Sender<Result<()>>,
    ) -> Self {
        Self { client: client.clone(), terms, page, joined: Some(joined), delays: None }
    }

    /// Takes part until the share is over, and then leaves.
    pub(super) async fn run(mut self) -> Result<()> {
        let mut result = Ok(());
        while !self.client.is_closed() {
            let session = self.client.session();
            let session = match select(pin!(session), pin!(self.page.over())).await {
                Either::Left((session, _)) => session,
                // It is over between two sessions: nothing of it is in the store, or goes with the last one.
                Either::Right(_) => break,
            };
            match session {
                Ok(session) => {
                    result = self.in_session(&session).await;
                    self.page.lost();
                    if self.page.is_over() {
                        break;
                    }
                    self.pause().await;
                }
                Err(error) if self.fails(&error) => break,
                Err(_outage) => self.delay().await,
            }
        }
        self.page.stop();
        self.page.lost();
        result
    }

    /// Takes part in a session until it is lost, or the share is over.
    async fn in_session(&mut self, session: &Session) -> Result<()> {
        let mut share = SessionShare::new(session, &self.terms, &self.page);
        while !session.is_lost() {
            // On the heap, so that the task stays small.
            let error = match Box::pin(self.turn(&mut share)).await {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    self.delays = None;
                    continue;
                }
                Err(error) => error,
            };
            tracing::debug!(%error, "a member of a partition could not go on");
            if self.fails(&error) {
                break;
            }
            share.doubts();
            let delay = Box::pin(self.delay());
            let _first = select(pin!(session.lost()), delay).await;
        }
        if self.page.is_over() && session.is_lost() && !self.client.is_closed() {
            // What it had goes with the session.
            return session.close().await;
        }
        Ok(())
    }

    async fn turn(&mut self, share: &mut SessionShare) -> Result<bool> {
        if let Some(joined) = self.joined.take() {
            if self.page.is_over() {
                return Ok(true);
            }
            if let Err(error) = share.join().await {
                self.joined = Some(joined);
                return Err(error);
            }
            let _heard = joined.send(Ok(())).is_ok();
        }
        share.step().await
    }

    /// Whether this error ends the share: one that a start does not get over.
    fn fails(&mut self, error: &Error) -> bool {
        if error.kind().is_outage() || error.kind() == ErrorKind::SessionLost {
            return false;
        }
        let Some(joined) = self.joined.take() else { return false };
        let _heard = joined.send(Err(error.clone())).is_ok();
        self.page.stop();
        true
    }

    /// Waits before the next try.
    async fn delay(&mut self) {
        let random = self.client.random();
        let delays = self.delays.get_or_insert_with(|| Retry::forever().delays(random));
        sleep(delays.next().unwrap_or_default()).await;
    }

    /// Waits for a random part of a short time: many members may have lost their sessions at once.
    async fn pause(&self) {
        const MOST: u64 = 200;
        sleep(Duration::from_millis(self.client.random().below(MOST))).await;
    }
}
