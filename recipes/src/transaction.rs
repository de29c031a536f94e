//! [`Transaction`]: a function that reads and writes any number of nodes, and is run again until nothing interferes.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::clock::{self, sleep};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::retry::{Delays, Retry};
use synod_core::session::Session;
use tracing::Instrument;

use crate::stamped::mark::Marks;
use crate::stamped::sent::is_only_lost;
use crate::transaction::attempt::Run;
use crate::transaction::commit::{Committer, Fate};
use crate::transaction::footprint::{DOING, Footprint};

mod attempt;
mod commit;
mod footprint;
mod isolation;

#[cfg(feature = "metrics")]
mod meter;
#[cfg(not(feature = "metrics"))]
mod unmetered;
#[cfg(not(feature = "metrics"))]
use unmetered as meter;

pub use attempt::Attempt;
pub use isolation::Isolation;

#[cfg_attr(not(doctest), doc = include_str!("../docs/transaction.md"))]
#[derive(Clone)]
pub struct Transaction {
    client: Client,
    marks: Arc<Marks>,
    isolation: Isolation,
    prefetch: Arc<BTreeSet<Path>>,
    retry: Retry,
}

/// How one run ended.
enum Ran<T, E> {
    Returned(T, Footprint),
    Failed(E),
    /// What it relied on has changed.
    GivenUp(Option<Footprint>),
}

impl Transaction {
    /// Transactions of this client. Its marks are in the directory at `marks`.
    pub fn new(client: &Client, marks: impl Into<Path>) -> Self {
        Self {
            client: client.clone(),
            marks: Arc::new(Marks::new(marks.into(), "transaction-", DOING)),
            isolation: Isolation::default(),
            prefetch: Arc::default(),
            retry: Retry::optimistic(),
        }
    }

    /// How transactions may interfere: [`SerializableSnapshot`](Isolation::SerializableSnapshot), if nothing else is said.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Nodes that the function is going to read or to write: the first read reads all of them, in one request.
    pub fn prefetch(mut self, paths: impl IntoIterator<Item = Path>) -> Self {
        self.prefetch = Arc::new(paths.into_iter().collect());
        self
    }

    /// How often the function is run again while other clients are faster, and the delays in between:
    /// [`Retry::optimistic`], if nothing else is said. Every second run is at once.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Runs the function until what it did is committed, and returns its last result.
    ///
    /// # Errors
    ///
    /// What the function returns. [`ErrorKind::Refused`] if the store never takes the writes, such as one below an ephemeral
    /// node, or if other clients were faster as often as the [retries](Transaction::retry) allow;
    /// [`ErrorKind::TooLarge`] if it reads or writes more than the store takes in one transaction, before anything is sent;
    /// and as every verb of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has committed its writes or has not. A request that was sent is driven to its end.
    pub async fn run<T, E, F>(&self, mut function: impl FnMut(Attempt) -> F) -> Result<T, E>
    where
        E: From<Error>,
        F: Future<Output = Result<T, E>>,
    {
        let span = tracing::debug_span!(
            "transaction",
            recipe = "transaction",
            path = %self.marks.dir(),
            isolation = ?self.isolation,
            took = tracing::field::Empty,
            tries = tracing::field::Empty,
        );
        let (since, mut tries) = (clock::now(), 0);
        let ended = self.repeat(&mut function, &mut tries).instrument(span.clone()).await;
        let took = clock::elapsed(since);
        meter::ended(took, tries);
        span.record("took", tracing::field::debug(took)).record("tries", tries);
        ended
    }

    async fn repeat<T, E, F>(
        &self,
        function: &mut impl FnMut(Attempt) -> F,
        tries: &mut u32,
    ) -> Result<T, E>
    where
        E: From<Error>,
        F: Future<Output = Result<T, E>>,
    {
        let (mut known, mut delays): (Option<(Session, Footprint)>, _) = (None, None);
        loop {
            *tries += 1;
            let session = self.client.session().await?;
            let footprint = known.take().filter(|(of, _)| of.info().id == session.info().id);
            let footprint = footprint
                .map_or_else(|| Footprint::new(self.isolation), |(_, footprint)| footprint);
            let next = match self.run_once(&session, footprint, function).await {
                Ran::Failed(error) => return Err(error),
                Ran::GivenUp(next) => next,
                Ran::Returned(value, footprint) => {
                    match Box::pin(self.commit(&session, footprint)).await? {
                        Fate::Committed => return Ok(value),
                        Fate::Lost(next) => next,
                    }
                }
            };
            known = next.map(|footprint| (session, footprint));
            self.pause(*tries, &mut delays).await?;
        }
    }

    async fn run_once<T, E, F>(
        &self,
        session: &Session,
        footprint: Footprint,
        function: &mut impl FnMut(Attempt) -> F,
    ) -> Ran<T, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        let one_moment = self.isolation.is_of_one_moment();
        let run = Arc::new(Run::new(session, footprint, one_moment, &self.prefetch));
        let result = {
            let running = pin!(function(Attempt::new(run.clone())));
            match select(pin!(run.given_up()), running).await {
                Either::Left(_) => None,
                Either::Right((result, _)) => Some(result),
            }
        };
        match (result, run.end()) {
            (Some(Ok(value)), (Some(footprint), true)) => Ran::Returned(value, footprint),
            (Some(Err(error)), (_, true)) => Ran::Failed(error),
            (_, (footprint, _)) => Ran::GivenUp(footprint),
        }
    }

    async fn commit(&self, session: &Session, footprint: Footprint) -> Result<Fate> {
        let (client, marks) = (&self.client, &*self.marks);
        let one_moment = self.isolation.is_of_one_moment();
        match (Committer { client, marks, session, one_moment }).commit(footprint).await {
            // Nothing was applied, and the client goes on in its next session.
            Err(error) if is_only_lost(&error) => Ok(Fate::Lost(None)),
            fate => fate,
        }
    }

    /// Waits before another run, unless it was a first one that was lost, a third, and so on. A run after a delay starts from
    /// what may be out of date. If it is lost, its rejection shows what there is, and the next run is at once: no other one
    /// has a chance while other clients write.
    async fn pause(&self, tries: u32, delays: &mut Option<Delays>) -> Result<()> {
        let delays = delays.get_or_insert_with(|| self.retry.delays(self.client.random()));
        let delay = delays.next().ok_or_else(exhausted)?;
        if tries.is_multiple_of(2) {
            sleep(delay).await;
        }
        Ok(())
    }
}

fn exhausted() -> Error {
    Error::new(ErrorKind::Refused, DOING)
        .because("other clients changed what it relies on, as often as it was to be tried")
}

/// Shows no data.
impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("marks", self.marks.dir())
            .field("isolation", &self.isolation)
            .finish_non_exhaustive()
    }
}
