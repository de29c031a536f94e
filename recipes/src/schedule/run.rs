//! [`ScheduledRun`]: an attempt at the run of a date, as its work receives it.

use std::fmt;
use std::pin::pin;
use std::time::SystemTime;

use futures_core::future::BoxFuture;
use futures_util::future::{Either, select};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::held::{Held, Token};
use synod_core::path::Path;
use synod_core::store::{Expect, Stat, Txn};
use tokio::sync::watch;

use crate::line::hold::Leadership;
use crate::schedule::record::RunRecord;
use crate::schedule::timetable::as_date;

/// An attempt at the run of a date of a [`Schedule`](crate::schedule::Schedule).
///
/// It is a guard: see the trait [`Held`]. It is held until the attempt ends, or the lead is lost.
/// Its token increases with each attempt at each date.
#[derive(Clone)]
#[non_exhaustive]
pub struct ScheduledRun {
    /// The date. No later run has an earlier date, unless the clock of a machine was ahead.
    pub due: SystemTime,
    /// The date of the run before, if there was one: the run of a report covers the time between
    /// the two.
    pub previous: Option<SystemTime>,
    /// The number of the attempt at this date, beginning with 1.
    pub attempt: u32,
    guard: RunGuard,
}

/// The nodes that show that a run has begun and not ended.
#[derive(Clone)]
struct RunGuard {
    lead: Leadership,
    node: Path,
    /// The stat of the node since the beginning of the run. The end of the run changes it.
    stat: Stat,
    /// Closed when the attempt ends.
    attempt: watch::Receiver<()>,
}

impl ScheduledRun {
    /// Creates the run that is in the record of the node. It ends with the sender.
    pub(super) fn new(
        run: &RunRecord,
        lead: Leadership,
        (node, stat): (Path, Stat),
    ) -> (Self, watch::Sender<()>) {
        let attempt = watch::Sender::new(());
        let previous = (run.previous > 0).then(|| as_date(run.previous));
        let guard = RunGuard { lead, node, stat, attempt: attempt.subscribe() };
        let (due, number) = (as_date(run.due), run.attempt);
        (Self { due, previous, attempt: number, guard }, attempt)
    }
}

impl Held for ScheduledRun {
    fn token(&self) -> Token {
        Token::new(self.guard.stat.modified)
    }

    fn path(&self) -> &Path {
        &self.guard.node
    }

    fn is_held(&self) -> bool {
        self.guard.attempt.has_changed().is_ok() && self.guard.lead.is_held()
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        let mut attempt = self.guard.attempt.clone();
        Box::pin(async move {
            let ends = async { while attempt.changed().await.is_ok() {} };
            let _either = select(pin!(ends), pin!(self.guard.lead.lost())).await;
        })
    }

    fn txn(&self) -> Txn {
        let RunGuard { lead, node, stat, .. } = &self.guard;
        lead.txn().check(node, Expect::Version(stat.version))
    }

    async fn run<T: Send>(&self, work: impl Future<Output = T> + Send) -> Result<T> {
        match select(pin!(work), pin!(self.lost())).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right(_) => Err(Error::new(ErrorKind::SessionLost, "running a schedule")
                .at(&self.guard.node)
                .because("the run was lost; the work under it was stopped")),
        }
    }
}

impl fmt::Debug for ScheduledRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduledRun")
            .field("due", &self.due)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
