//! [`Transaction`]: a function that reads and writes any number of nodes, and is run again until
//! nothing interferes.
//!
//! Decisions that are easy to undo by mistake:
//!
//! - **A read reads the known nodes again, together with the new one.** The view is a consistent
//!   snapshot. If the nodes that the run has read are unchanged in it, all of them belong to that
//!   snapshot; otherwise the run is aborted. So no store needs to read old revisions, and the last
//!   read commits a run without writes.
//! - **A run is aborted by dropping it**, at the read that finds the change. So the function cannot
//!   catch the abort as an error, or mistake another error for it.
//! - **The write ids are in a separate directory**, not below a node, because a transaction may
//!   delete any of its nodes.
//! - **A node that is not known to exist is written with `set`.** If that is rejected because the
//!   node is missing, the same run is sent again with `create`.

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

use crate::support::exactly_once::settling::is_only_lost;
use crate::support::exactly_once::write_id::WriteIds;
use crate::support::metrics::record_change;
use crate::transaction::attempt::Run;
use crate::transaction::commit::{Committer, Fate};
use crate::transaction::footprint::{DOING, Footprint};

mod attempt;
mod commit;
mod footprint;
mod isolation;

pub use attempt::Attempt;
pub use isolation::Isolation;

#[cfg_attr(not(doctest), doc = include_str!("../docs/transaction.md"))]
#[derive(Clone)]
pub struct Transaction {
    client: Client,
    write_ids: Arc<WriteIds>,
    isolation: Isolation,
    prefetch: Arc<BTreeSet<Path>>,
    retry: Retry,
}

/// The label of the metrics and of the span.
const RECIPE: &str = "transaction";

/// The end of one run.
enum Ran<T, E> {
    Returned(T, Footprint),
    Failed(E),
    /// The nodes that the run relied on have changed. With the footprint of the next run.
    Aborted(Option<Footprint>),
}

impl Transaction {
    /// Creates transactions of this client, with the directory `marks` for the write ids of their
    /// commits.
    pub fn new(client: &Client, marks: impl Into<Path>) -> Self {
        Self {
            client: client.clone(),
            write_ids: Arc::new(WriteIds::new(marks.into(), "transaction-", DOING)),
            isolation: Isolation::default(),
            prefetch: Arc::default(),
            retry: Retry::optimistic(),
        }
    }

    /// Sets the isolation level. The default is
    /// [`SerializableSnapshot`](Isolation::SerializableSnapshot).
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Names nodes that the function will read or write: the first read reads all of them, in one
    /// request.
    pub fn prefetch(mut self, paths: impl IntoIterator<Item = Path>) -> Self {
        self.prefetch = Arc::new(paths.into_iter().collect());
        self
    }

    /// Sets the number of runs after lost races, and the delays between them. The default is
    /// [`Retry::optimistic`]. Every second run follows without a delay.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Runs the function until its writes are committed, and returns its last result.
    ///
    /// # Errors
    ///
    /// The error that the function returns. [`ErrorKind::Refused`] if the store never accepts the
    /// writes, such as a create below an ephemeral node, or if the [retries](Transaction::retry)
    /// are used up by lost races; [`ErrorKind::TooLarge`], before anything is sent, if the function
    /// reads or writes more than the store accepts in one transaction; and the errors that are
    /// common to all calls: see [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not have committed its writes. A request that was sent is
    /// completed in the background.
    pub async fn run<T, E, F>(&self, mut function: impl FnMut(Attempt) -> F) -> Result<T, E>
    where
        E: From<Error>,
        F: Future<Output = Result<T, E>>,
    {
        let span = tracing::debug_span!(
            "transaction",
            recipe = RECIPE,
            path = %self.write_ids.dir(),
            isolation = ?self.isolation,
            took = tracing::field::Empty,
            tries = tracing::field::Empty,
        );
        let (since, mut tries) = (clock::now(), 0);
        let ended = self.repeat(&mut function, &mut tries).instrument(span.clone()).await;
        let took = clock::elapsed(since);
        record_change(RECIPE, took, tries);
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
                Ran::Aborted(next) => next,
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
        let has_snapshot = self.isolation.has_snapshot();
        let run = Arc::new(Run::new(session, footprint, has_snapshot, &self.prefetch));
        let result = {
            let running = pin!(function(Attempt::new(run.clone())));
            match select(pin!(run.aborted()), running).await {
                Either::Left(_) => None,
                Either::Right((result, _)) => Some(result),
            }
        };
        match (result, run.end()) {
            (Some(Ok(value)), (Some(footprint), true)) => Ran::Returned(value, footprint),
            (Some(Err(error)), (_, true)) => Ran::Failed(error),
            (_, (footprint, _)) => Ran::Aborted(footprint),
        }
    }

    async fn commit(&self, session: &Session, footprint: Footprint) -> Result<Fate> {
        let (client, write_ids) = (&self.client, &*self.write_ids);
        let has_snapshot = self.isolation.has_snapshot();
        match (Committer { client, write_ids, session, has_snapshot }).commit(footprint).await {
            // Nothing was applied: the client continues in its next session.
            Err(error) if is_only_lost(&error) => Ok(Fate::Lost(None)),
            fate => fate,
        }
    }

    /// Waits before every second run.
    ///
    /// A run after a delay starts from nodes that may be out of date. If it is lost, its rejection
    /// shows the nodes, and the next run follows without a delay: only such a run can succeed while
    /// other clients write.
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
        .because("other clients changed what it relies on in each of the allowed attempts")
}

/// Shows no data.
impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("marks", self.write_ids.dir())
            .field("isolation", &self.isolation)
            .finish_non_exhaustive()
    }
}
