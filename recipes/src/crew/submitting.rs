//! [`submit`]: stores a task.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::name::Name;
use synod_core::store::{Expect, Lifetime, Outcome, RejectReason, Txn};
use synod_core::task;
use synod_core::value::encode;
use tokio::sync::oneshot;

use crate::cell::repeat::{Race, repeat_race};
use crate::crew::attempts_record::MAX_RECORD;
use crate::crew::deadlines::date;
use crate::crew::finished::ended_at;
use crate::crew::insist::closed;
use crate::crew::layout::CrewPaths;
use crate::crew::new_task::NewTask;
use crate::crew::task_record::TaskState;
use crate::crew::task_terms::{assigned_at, paused_at};

/// Stores a task, unless there is one of its name.
///
/// A transaction that only creates is taken back when its caller is dropped, and a master may have assigned the task by
/// then. So it is sent by a task of its own, which ends by itself within the time limit of the client.
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
    let (tell, stored) = oneshot::channel();
    let own = Arc::new((client.clone(), txn, longest));
    task::spawn(async move {
        let (client, txn, longest) = &*own;
        let stored = repeat_race(client, async || {
            // What the store could not take later in the life of the task, it does not take now.
            longest.validate(&client.session().await?.info().limits)?;
            store(client, txn).await
        });
        let _heard = tell.send(stored.await).is_ok();
    })
    .let_go();
    stored.await.unwrap_or_else(|_over| Err(closed(&task)))
}

/// A transaction that is no smaller than any that concerns this task until its end: with all nodes of the task, each with the most
/// data that it ever has, and with those of its worker and its master. It is never sent.
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

/// Creates both nodes, or finds the first one there.
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
        // What a task of this name left that was removed: the next worker that gets it removes it.
        (1, RejectReason::Exists) => Ok(Race::Lost(refused)),
        _ => Err(refused),
    }
}
