//! [`ScheduleTerm`]: a leader of a schedule. It writes each run before its work begins, and its end
//! afterwards. Each write requires that this process leads, and that nobody else has written.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, Shared, poll_immediate, select};
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::held::Held as _;
use synod_core::path::Path;
use synod_core::store::{Commit, Expect, Lifetime, Node, Outcome, Query, Stat, Txn};
use synod_core::value::encode;
use tracing::Instrument;

use crate::line::hold::Leadership;
use crate::schedule::record::{RunRecord, ScheduleRecord, ScheduleRules, ScheduleStep};
use crate::schedule::run::ScheduledRun;
use crate::schedule::timetable::{LAST_DATE, millis};
use crate::support::detached::{closed, run_detached};
use crate::support::retry::insist;
use crate::support::time::date;

/// The action that errors name.
pub(super) const DOING: &str = "running a schedule";

/// The longest wait without a check of the wall clock, which may be set.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The pause after another client wrote to the node of the schedule, and while the lead is in
/// doubt.
const PAUSE: Duration = Duration::from_millis(100);

/// The term of a leader.
pub(super) struct ScheduleTerm<'a> {
    pub(super) rules: &'a ScheduleRules,
    pub(super) label: &'a str,
    /// The node of the record.
    pub(super) node: &'a Path,
    pub(super) lead: Leadership,
}

/// A record, and the stat of the node that has it.
struct StoredRecord {
    record: ScheduleRecord,
    stat: Stat,
}

impl ScheduleTerm<'_> {
    /// Leads until no date is left, or until `stop` completes: a run that has begun is finished.
    pub(super) async fn lead<F, E>(
        &self,
        stop: Shared<impl Future<Output = ()>>,
        work: impl Fn(ScheduledRun) -> F,
    ) -> Result<()>
    where
        F: Future<Output = Result<(), E>>,
        E: fmt::Display,
    {
        let mut stored = self.read().await?;
        // Nothing else may have polled `stop` since it completed.
        while poll_immediate(stop.clone()).await.is_none() {
            let record = stored.as_ref().map(|stored| &stored.record);
            stored = match self.rules.next(record, self.label, now()) {
                ScheduleStep::Finish => return Ok(()),
                ScheduleStep::Wait(until) => {
                    if let Either::Left(_) = select(stop.clone(), pin!(wait(until))).await {
                        return Ok(());
                    }
                    continue;
                }
                ScheduleStep::Adopt(record) => self.write(record, stored).await?,
                ScheduleStep::Begin(record) => match self.write(record, stored).await? {
                    Some(begun) => self.run(begun, &work).await?,
                    None => None,
                },
            };
            if stored.is_none() {
                tracing::warn!(node = %self.node, "another client wrote to a schedule");
                sleep(PAUSE).await;
                stored = self.read().await?;
            }
        }
        Ok(())
    }

    /// Runs the work for a date, and writes its end.
    async fn run<F, E>(
        &self,
        begun: StoredRecord,
        work: impl Fn(ScheduledRun) -> F,
    ) -> Result<Option<StoredRecord>>
    where
        F: Future<Output = Result<(), E>>,
        E: fmt::Display,
    {
        let StoredRecord { record, stat } = &begun;
        let Some(run) = &record.run else { return Ok(Some(begun)) };
        let RunRecord { due, attempt, .. } = *run;
        let (run, running) = ScheduledRun::new(run, self.lead.clone(), (self.node.clone(), *stat));
        // The answer may have come late: no work begins while another process may lead. If the lead
        // is lost, this is dropped.
        while !run.is_held() {
            sleep(PAUSE).await;
        }
        let span = tracing::info_span!("scheduled run", node = %self.node, due = ?run.due, attempt);
        let done = work(run).instrument(span).await.map_err(|error| error.to_string());
        drop(running);
        if let Err(error) = &done {
            tracing::warn!(node = %self.node, due, attempt, %error, "a run of a schedule failed");
        }
        self.write(record.clone().ended(done.err(), now()), Some(begun)).await
    }

    async fn read(&self) -> Result<Option<StoredRecord>> {
        let session = self.lead.session();
        let view = insist(session, || session.read(Query::node(self.node))).await?;
        view.into_node().map(|node| self.stored(&node)).transpose()
    }

    fn stored(&self, node: &Node) -> Result<StoredRecord> {
        let record = ScheduleRecord::read(self.node, &node.data)?;
        Ok(StoredRecord { record, stat: node.stat.ok_or_else(|| no_stat(self.node))? })
    }

    /// Replaces the record. `None` if another client has written to the node.
    async fn write(
        &self,
        record: ScheduleRecord,
        last: Option<StoredRecord>,
    ) -> Result<Option<StoredRecord>> {
        let data = encode(self.node, &record)?;
        let outcome = match last {
            Some(last) => {
                let expected = Expect::Version(last.stat.version);
                let txn = self.lead.txn().set(self.node, data.clone(), expected);
                let session = self.lead.session();
                insist(session, || session.commit(txn.clone())).await?
            }
            None => self.create(data.clone()).await?,
        };
        match outcome {
            Outcome::Committed(Commit { results, .. }) => {
                let written = results.last().and_then(|result| result.stat);
                match written {
                    Some(stat) => Ok(Some(StoredRecord { record, stat })),
                    None => self.reread(&data).await,
                }
            }
            Outcome::Rejected(no) if no.path == *self.lead.ticket() => {
                Err(Error::new(ErrorKind::SessionLost, DOING)
                    .at(self.lead.ticket())
                    .because("the lead was lost"))
            }
            // An earlier request, whose answer is lost, may have written the record: only this
            // leader can write it.
            Outcome::Rejected(_) => self.reread(&data).await,
        }
    }

    /// Creates the node. A dropped call would remove it again, although another leader may have
    /// read it.
    async fn create(&self, data: Bytes) -> Result<Outcome> {
        let txn: Txn = self.lead.txn().create(self.node, data, Lifetime::Persistent);
        let session = self.lead.session().clone();
        let created =
            run_detached(async move { insist(&session, || session.commit(txn.clone())).await });
        created.await.unwrap_or_else(|| Err(closed(DOING, self.node)))
    }

    /// Reads the node after a write. `None` if it has other data.
    async fn reread(&self, data: &Bytes) -> Result<Option<StoredRecord>> {
        let session = self.lead.session();
        let view = insist(session, || session.read(Query::node(self.node))).await?;
        let node = view.into_node().filter(|node| node.data == *data);
        node.map(|node| self.stored(&node)).transpose()
    }
}

/// Waits until this date, by the wall clock.
async fn wait(until: u64) {
    loop {
        let left = until.saturating_sub(now());
        if left == 0 {
            return;
        }
        sleep(Duration::from_millis(left).min(MAX_WAIT)).await;
    }
}

/// The date, in milliseconds since the beginning of 1970.
fn now() -> u64 {
    millis(date()).min(LAST_DATE)
}

fn no_stat(path: &Path) -> Error {
    Error::new(ErrorKind::Backend, DOING).at(path).because("the store returned no version")
}
