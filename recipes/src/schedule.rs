//! [`Schedule`]: work at dates, with one run a date on all machines.

use std::fmt;
use std::future::pending;
use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use tokio::sync::watch;

pub use crate::schedule::run::ScheduledRun;
pub use crate::schedule::state::{LastRun, ScheduleState};
pub use crate::schedule::timetable::Timetable;

use crate::layout::schedule::{LEADER, STATE};
use crate::leader_selector::LeaderSelector;
use crate::schedule::record::{MAX_TEXT, ScheduleRecord, ScheduleRules};
use crate::schedule::term::{DOING, ScheduleTerm};
use crate::schedule::timetable::millis;

#[cfg(feature = "cron")]
mod cron;
mod record;
mod run;
mod state;
mod term;
mod timetable;

#[cfg_attr(not(doctest), doc = include_str!("../docs/schedule.md"))]
#[derive(Clone)]
pub struct Schedule {
    client: Client,
    path: Path,
    label: String,
    rules: ScheduleRules,
}

impl Schedule {
    /// The maximum of [`Schedule::catch_up`].
    pub const MAX_CATCH_UP: u32 = 1_000;

    /// The maximum length of a label, in bytes.
    pub const MAX_LABEL: usize = MAX_TEXT;

    /// The schedule at `path`, with these dates. Nothing is sent.
    pub fn new(client: &Client, path: impl Into<Path>, timetable: Timetable) -> Self {
        let rules = ScheduleRules {
            timetable,
            catch_up: NonZeroU32::MIN,
            start_within: None,
            attempts: NonZeroU32::MIN,
            pause: 0,
        };
        Self { client: client.clone(), path: path.into(), label: String::new(), rules }
    }

    /// Sets the label of this process: [`Schedule::state`] shows which process began the last run,
    /// and the list of candidates shows which one leads. At most [`Schedule::MAX_LABEL`] bytes.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Permits this number of attempts at the run of each date, 1 by default. Another attempt
    /// begins after one whose work failed, `pause` later; and at once after one that lost its
    /// machine or its lead. Attempts at a date precede the next date, which may be missed
    /// meanwhile.
    pub fn attempts(mut self, max: NonZeroU32, pause: Duration) -> Self {
        (self.rules.attempts, self.rules.pause) = (max, millis(pause));
        self
    }

    /// Runs up to this number of missed dates, the latest ones, in their order. A date is missed if
    /// the next date is due before its run has begun: all machines were down, or an earlier run
    /// took that long. By default 1: the latest date has a run. At most
    /// [`Schedule::MAX_CATCH_UP`].
    pub fn catch_up(mut self, max: NonZeroU32) -> Self {
        self.rules.catch_up = max;
        self
    }

    /// Begins no attempt later than `limit` after its date, such as a report that is of no use in
    /// the afternoon. Without a limit by default. At least one millisecond.
    pub fn start_within(mut self, limit: Duration) -> Self {
        self.rules.start_within = Some(millis(limit));
        self
    }

    /// Runs `work` for each date while this process leads, and waits for the lead meanwhile. This
    /// continues across sessions, until no date is left. [`Schedule::run_until`] can be stopped
    /// without dropping a run.
    ///
    /// The future of `work` runs within this call, one at a time. It is dropped when the lead is
    /// lost. An error is logged, and kept for [`Schedule::state`]; other attempts follow if
    /// [permitted](Schedule::attempts).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the timetable has no period, the label is too long, or a limit is
    /// out of its range; [`ErrorKind::Corrupt`] if the stored data is not a schedule, the error
    /// with which the store rejects a request for good, and [`ErrorKind::SessionLost`] once the
    /// client is closed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call drops the work and leaves the election. A run that has begun
    /// counts as an attempt.
    pub async fn run<F, E>(&self, work: impl Fn(ScheduledRun) -> F) -> Result<()>
    where
        F: Future<Output = Result<(), E>>,
        E: fmt::Display,
    {
        self.run_until(pending(), work).await
    }

    /// Runs `work` as [`Schedule::run`] does, until `stop` completes. A run that has begun is
    /// finished; then another process leads at once.
    ///
    /// # Errors
    ///
    /// As [`Schedule::run`].
    ///
    /// # Cancel safety
    ///
    /// As [`Schedule::run`].
    pub async fn run_until<F, E>(
        &self,
        stop: impl Future<Output = ()>,
        work: impl Fn(ScheduledRun) -> F,
    ) -> Result<()>
    where
        F: Future<Output = Result<(), E>>,
        E: fmt::Display,
    {
        self.check()?;
        let (node, stop) = (state_node(&self.path)?, stop.shared());
        let election = LeaderSelector::new(&self.client, self.path.join(LEADER)?);
        let election = election.label(self.label.clone());
        // It has a receiver while this client leads.
        let leading = watch::Sender::new(());
        let terms = election.keep_leading(|lead| async {
            let leads = leading.subscribe();
            let (rules, label, node) = (&self.rules, &*self.label, &node);
            let term = ScheduleTerm { rules, label, node, lead };
            // The last term has ended once the receiver is returned.
            match Box::pin(term.lead(stop.clone(), &work)).await {
                Err(error) if self.client.is_transient(&error) => ControlFlow::Continue(()),
                ended => ControlFlow::Break((leads, ended)),
            }
        });
        // A candidate that does not lead waits no longer, and leaves in the background.
        let waits = async {
            stop.clone().await;
            leading.closed().await;
        };
        match select(Box::pin(terms), pin!(waits)).await {
            Either::Left((ended, _)) => ended?.1,
            Either::Right(_) => Ok(()),
        }
    }

    /// Reads the last run and the next date; `None` before a process has led for the first time.
    /// The timetable does not matter.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the stored data is not a schedule, and the errors that are common to
    /// all calls: see [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn state(&self) -> Result<Option<ScheduleState>> {
        Self::state_of(&self.client, &self.path).await
    }

    /// Reads the state of the schedule at `path`, as [`Schedule::state`] does.
    ///
    /// # Errors
    ///
    /// As [`Schedule::state`].
    ///
    /// # Cancel safety
    ///
    /// As [`Schedule::state`].
    pub async fn state_of(client: &Client, path: &Path) -> Result<Option<ScheduleState>> {
        let node = state_node(path)?;
        let Some(found) = client.get(&node).await? else { return Ok(None) };
        Ok(Some(ScheduleState::of(ScheduleRecord::read(&node, &found.data)?)))
    }

    fn check(&self) -> Result<()> {
        let ScheduleRules { timetable, catch_up, start_within, .. } = &self.rules;
        timetable.check()?;
        let (length, max) = (self.label.len(), Self::MAX_LABEL);
        let text = if length > max {
            format!("a label has at most {max} bytes, and this one {length}")
        } else if catch_up.get() > Self::MAX_CATCH_UP {
            format!("at most {} missed dates can be run", Self::MAX_CATCH_UP)
        } else if *start_within == Some(0) {
            "an attempt cannot begin within less than a millisecond".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Invalid, DOING).at(&self.path).because(text))
    }
}

/// The node of the record.
fn state_node(path: &Path) -> Result<Path> {
    Ok(path.join(STATE)?)
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule")
            .field("path", &self.path)
            .field("timetable", &self.rules.timetable)
            .finish_non_exhaustive()
    }
}
