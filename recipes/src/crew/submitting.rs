//! [`submit`]: stores a task.

use std::sync::Arc;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::name::Name;
use synod_core::store::{Lifetime, Outcome, Txn, Why};
use synod_core::task;
use synod_core::value::encode;
use tokio::sync::oneshot;

use crate::cell::repeat::{Race, repeat_race};
use crate::crew::deadlines::date;
use crate::crew::insist::closed;
use crate::crew::layout::CrewPaths;
use crate::crew::new_task::NewTask;
use crate::crew::task_record::TaskState;

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
    let txn = Txn::new().create(task.clone(), data, Lifetime::Persistent).create(
        todo,
        terms,
        Lifetime::Persistent,
    );
    let (tell, stored) = oneshot::channel();
    let own = Arc::new((client.clone(), txn));
    task::spawn(async move {
        let (client, txn) = &*own;
        let _heard = tell.send(repeat_race(client, || store(client, txn)).await).is_ok();
    })
    .let_go();
    stored.await.unwrap_or_else(|_over| Err(closed(&task)))
}

/// Creates both nodes, or finds the first one there.
async fn store(client: &Client, txn: &Txn) -> Result<Race<()>> {
    let no = match client.transaction(txn.clone()).await? {
        Outcome::Committed(_) => return Ok(Race::Won(())),
        Outcome::Rejected(no) => no,
    };
    let refused = Error::new(ErrorKind::Refused, "submitting a task")
        .at(&no.path)
        .because(no.why.to_string());
    match (no.index, no.why) {
        (0, Why::Exists) => Ok(Race::Won(())),
        // What a task of this name left that was removed: the next worker that gets it removes it.
        (1, Why::Exists) => Ok(Race::Lost(refused)),
        _ => Err(refused),
    }
}
