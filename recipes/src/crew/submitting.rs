//! [`NewTask`]: a task as it is submitted. [`submit`]: stores it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::name::Name;
use synod_core::store::{Expect, Lifetime, Outcome, RejectReason, Txn};
use synod_core::value::encode;

use crate::crew::attempt_record::MAX_RECORD;
use crate::crew::failures::closed;
use crate::crew::finished::ended_at;
use crate::crew::layout::CrewPaths;
use crate::crew::task_record::TaskState;
use crate::crew::task_terms::{TaskBackoff, TaskTerms, assigned_at, paused_at};
use crate::support::detached::run_detached;
use crate::support::retry::{Race, repeat_race};
use crate::support::time::date;

/// A task to be submitted: its data, and the terms of its assignment. Data alone can be passed as a
/// task, too.
#[derive(Clone, PartialEq, Eq)]
pub struct NewTask {
    pub(super) data: Bytes,
    pub(super) terms: TaskTerms,
    /// The time from the submission to the deadline.
    pub(super) time: Option<Duration>,
}

impl NewTask {
    /// Creates a task with this data: for any worker, with priority zero, and without a retry.
    pub fn new(data: impl Into<Bytes>) -> Self {
        Self { data: data.into(), terms: TaskTerms::default(), time: None }
    }

    /// Sets the priority. A lower number is assigned earlier, as in a
    /// [`Queue`](crate::queue::Queue); among equal ones, the task that has waited longest.
    pub fn priority(mut self, priority: i32) -> Self {
        self.terms.priority = priority;
        self
    }

    /// Sets the deadline. The task ends as [expired](crate::crew::TaskEnd::Expired) if it is not
    /// finished within `time` after its submission, by the wall clocks of the submitter and of the
    /// master. After that no result is accepted.
    pub fn deadline(mut self, time: Duration) -> Self {
        self.time = Some(time);
        self
    }

    /// Sets the maximum number of retries after failed attempts. The default is zero. An attempt
    /// whose worker was lost does not count: its task is always assigned again, without a pause.
    pub fn retries(mut self, retries: u32) -> Self {
        self.terms.retries = retries;
        self
    }

    /// Sets the pause after a failed attempt: `first` after the first one, doubled after each
    /// further one, up to `longest`. The default is from one second to five minutes. During the
    /// pause the task waits, and other tasks are assigned. The master measures the pause from the
    /// time at which it sees the failure. A later master computes the rest of the pause from the
    /// date that the worker wrote.
    ///
    /// With [`Duration::ZERO`] a failed task is assigned again without a pause.
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.terms.backoff = TaskBackoff::new(first, longest);
        self
    }

    /// Sets the time limit of each attempt. When it passes, the worker drops the future of the
    /// task, and the attempt has failed. The task is then retried, as after other
    /// [failures](NewTask::retries). By default an attempt has no limit.
    ///
    /// The worker measures the time of the work with its own monotonic clock, from the first poll
    /// of the future. A [deadline](NewTask::deadline) limits the whole task, with all its attempts
    /// and pauses.
    pub fn attempt_timeout(mut self, limit: Duration) -> Self {
        self.terms.set_attempt_timeout(limit);
        self
    }

    /// Requires a worker with [this property](crate::crew::CrewWorker::property).
    pub fn needs(mut self, property: impl Into<String>, value: impl Into<String>) -> Self {
        self.terms.needs.insert(property.into(), value.into());
        self
    }

    /// Prefers a worker with [this property](crate::crew::CrewWorker::property). This has an effect
    /// if the policy of the master is [this property](crate::crew::CrewPolicy::Property) or a
    /// function.
    pub fn prefers(mut self, property: impl Into<String>, value: impl Into<String>) -> Self {
        self.terms.prefers.insert(property.into(), value.into());
        self
    }
}

impl<T: Into<Bytes>> From<T> for NewTask {
    fn from(data: T) -> Self {
        Self::new(data)
    }
}

/// Omits the data, which is the application's.
impl fmt::Debug for NewTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewTask")
            .field("terms", &self.terms)
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}

/// Stores a task, unless a task with its name exists.
///
/// A transaction that only creates nodes is undone when its caller is dropped, but a master may
/// already have assigned the task. So a background task sends it, and ends within the time limit of
/// the client.
pub(super) async fn submit(
    client: &Client,
    paths: CrewPaths,
    name: Name,
    new: NewTask,
) -> Result<()> {
    let task = paths.task(name.as_str())?;
    let data = TaskState::Open { failed: 0 }.with(&task, &new.data)?;
    let todo = paths.todo(name.as_str())?;
    let terms: Bytes = encode(&todo, &new.terms.submitted(date(), new.time))?;
    let longest = longest(&paths, &name, &new.data, &terms)?;
    let txn = Txn::new().create(task.clone(), data, Lifetime::Persistent).create(
        todo,
        terms,
        Lifetime::Persistent,
    );
    let own = Arc::new((client.clone(), txn, longest));
    let stored = run_detached(async move {
        let (client, txn, longest) = &*own;
        let stored = repeat_race(client, async || {
            // A task that the store would reject later is rejected now.
            longest.validate(&client.session().await?.info().limits)?;
            store(client, txn).await
        });
        stored.await
    });
    stored.await.unwrap_or_else(|| Err(closed(&task)))
}

/// Builds a transaction that is at least as large as any that concerns this task until its end:
/// with all nodes of the task at their maximum sizes, and with the nodes of its worker and its
/// master. It is never sent.
fn longest(paths: &CrewPaths, name: &Name, data: &[u8], terms: &Bytes) -> Result<Txn> {
    let (name, ticket) = (name.as_str(), paths.longest_ticket()?);
    let (task, record) = (paths.task(name)?, [0; MAX_RECORD].to_vec());
    let data = TaskState::Open { failed: u32::MAX }.with(&task, data)?;
    let (assigned, paused) =
        (assigned_at(terms, Duration::MAX), paused_at(terms, Duration::MAX, Duration::MAX));
    let longer = if assigned.len() > paused.len() { assigned } else { paused };
    Ok(Txn::new()
        .check(paths.master().join(ticket.name())?, Expect::Any)
        .check(ticket, Expect::Any)
        .check(paths.switch().clone(), Expect::Any)
        .delete(paths.longest_assigned(name)?, Expect::Any)
        .set(task, data, Expect::Any)
        .set(paths.attempts(name)?, record, Expect::Any)
        .set(paths.todo(name)?, longer, Expect::Any)
        .create(paths.done(name)?, ended_at(Duration::MAX), Lifetime::Persistent))
}

/// Creates both nodes, unless the first one exists.
async fn store(client: &Client, txn: &Txn) -> Result<Race<()>> {
    let no = match client.commit(txn.clone()).await? {
        Outcome::Committed(_) => return Ok(Race::Won(())),
        Outcome::Rejected(no) => no,
    };
    let refused = Error::new(ErrorKind::Refused, "submitting a task")
        .at(&no.path)
        .because(no.reason.to_string());
    match (no.index, no.reason) {
        (0, RejectReason::Exists) => Ok(Race::Won(())),
        // A node that a removed task of this name has left: the next worker that receives it
        // removes it.
        (1, RejectReason::Exists) => Ok(Race::Lost(refused)),
        _ => Err(refused),
    }
}
