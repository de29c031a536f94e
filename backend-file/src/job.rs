//! [`Job`]: one write that waits for the turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rusqlite::Connection;
use synod_core::error::{Error, Result};
use synod_core::store::Txn;
use tokio::sync::oneshot;

use crate::fault::Fault;
use crate::writing::{Writing, outlives_sessions};

/// A write that waits for the turn.
pub(crate) trait Job: Send {
    /// Returns `false` if its caller has given up: then it never runs.
    fn start(&mut self) -> bool;

    /// Returns `true` if the commit must be on the disk before it is answered.
    fn is_durable(&self, db: &Connection) -> Result<bool, Fault>;

    /// Writes. Runs again if the transaction was rolled back for another job.
    fn run(&mut self, writing: &mut Writing<'_>) -> Result<(), Fault>;

    /// Passes the result to the caller.
    fn finish(self: Box<Self>, end: JobEnd<'_>);
}

/// The end of the transaction of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) enum JobEnd<'a> {
    Committed,
    /// Nothing was written.
    Failed(&'a Fault),
    /// The commit failed, and may be found on the disk later.
    Unknown(&'a Fault),
}

/// A job that answers.
pub(crate) struct Call<T, F> {
    doing: &'static str,
    txn: Option<Arc<Txn>>,
    run: F,
    result: Option<T>,
    claim: Claim,
    answer: Option<oneshot::Sender<Result<T>>>,
}

/// The state of a job: it waits, has started, or was given up. Clones are the same claim.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claim(Arc<AtomicU8>);

const WAITING: u8 = 0;
const STARTED: u8 = 1;
const GIVEN_UP: u8 = 2;

impl Claim {
    fn start(&self) -> bool {
        self.change(STARTED)
    }

    /// Gives a job up. Returns `false` if it has started.
    pub(crate) fn give_up(&self) -> bool {
        self.change(GIVEN_UP)
    }

    fn change(&self, to: u8) -> bool {
        let changed = self.0.compare_exchange(WAITING, to, Ordering::AcqRel, Ordering::Acquire);
        changed.map_or_else(|now| now == to, |_waiting| true)
    }
}

impl<T, F> Call<T, F>
where
    T: Send + 'static,
    F: FnMut(&mut Writing<'_>) -> Result<T, Fault> + Send + 'static,
{
    /// Creates a job, its claim, and the receiver of its answer.
    pub(crate) fn new(doing: &'static str, run: F) -> (Self, Claim, oneshot::Receiver<Result<T>>) {
        let (answer, answered) = oneshot::channel();
        let claim = Claim::default();
        let (result, held) = (None, claim.clone());
        let call = Self { doing, txn: None, run, result, claim, answer: Some(answer) };
        (call, held, answered)
    }

    /// Adds the transaction that decides whether the commit must be on the disk.
    pub(crate) fn durable_as(mut self, txn: Arc<Txn>) -> Self {
        self.txn = Some(txn);
        self
    }
}

impl<T, F> Job for Call<T, F>
where
    T: Send + 'static,
    F: FnMut(&mut Writing<'_>) -> Result<T, Fault> + Send + 'static,
{
    fn start(&mut self) -> bool {
        self.claim.start()
    }

    fn is_durable(&self, db: &Connection) -> Result<bool, Fault> {
        self.txn.as_ref().map_or(Ok(false), |txn| outlives_sessions(db, txn))
    }

    fn run(&mut self, writing: &mut Writing<'_>) -> Result<(), Fault> {
        self.result = None;
        self.result = Some((self.run)(writing)?);
        Ok(())
    }

    fn finish(mut self: Box<Self>, end: JobEnd<'_>) {
        let Some(answer) = self.answer.take() else { return };
        let result = match (end, self.result.take()) {
            (JobEnd::Committed, Some(result)) => Ok(result),
            (JobEnd::Committed, None) => {
                Err(Error::new(synod_core::error::ErrorKind::Backend, self.doing))
            }
            (JobEnd::Failed(fault), _) => Err(fault.to_error(self.doing)),
            (JobEnd::Unknown(fault), _) => Err(fault.to_error(self.doing).with_unknown_effect()),
        };
        // A caller that was dropped has no interest in it.
        let _received = answer.send(result).is_ok();
    }
}
