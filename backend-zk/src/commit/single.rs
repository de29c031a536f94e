//! A transaction of one operation, sent as the plain call. Most transactions are of this kind, so
//! the path is short.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Commit, Lifetime, Op, OpResult, Revision, Txn, View};

use crate::client::{Client, ZkError, ZkStat};
use crate::commit::follow_up::FollowUp;
use crate::commit::plan::{create_options, version};
use crate::connection::Connection;
use crate::containers::translate;
use crate::error::{Sort, Trouble};
use crate::listing_cache::ListingCache;
use crate::selection::{LAST, sequence};

/// The result of an operation.
pub(crate) enum StepResult {
    Nothing,
    Stat(ZkStat),
    /// With its path, unless that equals the requested path.
    Created(Option<String>, ZkStat),
}

/// The only operation of a transaction, if it has a plain call and no known fact requires a plan.
pub(crate) fn single_op<'t>(txn: &'t Txn, vacated: &BTreeSet<usize>) -> Option<&'t Op> {
    match &txn.ops[..] {
        [Op::Check { .. } | Op::Create { lifetime: Lifetime::Container, .. }] => None,
        [op] if vacated.is_empty() => Some(op),
        _ => None,
    }
}

/// The refusal of an operation, and the view of the follow-up read that was sent with it.
pub(crate) type Refusal = (ZkError, Option<View>);

/// Sends one operation, followed by its read if one is needed. A validated operation always fits
/// into one request.
///
/// # Errors
///
/// If there is no definite answer. A refusal is a definite answer.
pub(crate) async fn send_single(
    connection: &Connection,
    listings: &ListingCache,
    client: &Arc<Client>,
    op: &Op,
    mut follow_up: Option<FollowUp<'_>>,
) -> Result<Result<Commit, Refusal>> {
    let sent_along = follow_up
        .take_if(|follow_up| follow_up.decide_to_send_along() && !follow_up.decide_to_omit(op));
    let request = async { definite(request(connection, client, op).await) };
    let Some(mut sent_along) = sent_along else {
        let answer = connection.answer(request).await;
        let result = match answer.map_err(|trouble| trouble.translate("commit", Sort::Write))? {
            Ok(result) => result,
            Err(error) => return Ok(Err((error, None))),
        };
        if let Some(created) = reserve_node(op, &result) {
            return undo_create(connection, client, created).await.map(|error| Err((error, None)));
        }
        let mut commit = commit_of(connection, listings, op, result)?;
        if let Some(follow_up) = follow_up {
            commit.look = follow_up.late(&commit).await;
        }
        return Ok(Ok(commit));
    };
    // Boxed: other transactions should not carry this state.
    let both = Box::pin(async {
        let request = async {
            let answer = connection.answer(request).await;
            if let Ok(Ok(StepResult::Created(Some(path), _))) = &answer {
                sent_along.record_own(op, path);
            }
            answer
        };
        // Both requests are sent before either answer is awaited.
        join(request, sent_along.request()).await
    });
    let (answer, response) = both.await;
    let result = match answer.map_err(|trouble| trouble.translate("commit", Sort::Write))? {
        Ok(result) => result,
        Err(error) => return Ok(Err((error, sent_along.view_of_refusal(response).await))),
    };
    if let Some(created) = reserve_node(op, &result) {
        return undo_create(connection, client, created).await.map(|error| Err((error, None)));
    }
    let mut commit = commit_of(connection, listings, op, result)?;
    commit.look = sent_along.view_after(response, &commit).await;
    Ok(Ok(commit))
}

/// Sends the plain call of an operation, and waits for the answer.
pub(crate) async fn request(
    connection: &Connection,
    client: &Client,
    op: &Op,
) -> Result<StepResult, ZkError> {
    let path = op.path().as_str();
    match op {
        Op::Create { data, lifetime, sequential, .. } => {
            let options = create_options(op.path(), *lifetime, *sequential, &connection.access);
            let (created, stat) = client.create(path, data, &options).await?;
            Ok(StepResult::Created(sequential.then_some(created), stat))
        }
        Op::Set { data, expect, .. } => {
            Ok(StepResult::Stat(client.set_data(path, data, version(*expect)).await?))
        }
        Op::Delete { expect, .. } => {
            client.delete(path, version(*expect)).await?;
            Ok(StepResult::Nothing)
        }
        Op::Check { .. } => Err(ZkError::Unimplemented),
    }
}

/// Separates refusals from errors of the connection: an error that is not the definite answer to
/// this very request.
pub(crate) fn definite(
    answer: Result<StepResult, ZkError>,
) -> Result<Result<StepResult, ZkError>, ZkError> {
    match answer {
        Err(error) if !crate::error::is_definite(&error) => Err(error),
        answer => Ok(answer),
    }
}

fn commit_of(
    connection: &Connection,
    listings: &ListingCache,
    op: &Op,
    result: StepResult,
) -> Result<Commit> {
    let mut done = OpResult::new(op.path().clone());
    let revision = fill_in(connection, op, result, &mut done)?;
    record_tickets(connection, listings, op, &done);
    Ok(Commit::new(revision, vec![done], None))
}

/// Fills in the result of an operation, and returns its revision if that is known.
///
/// # Errors
///
/// If the server's counter of sequential names has overflowed.
pub(crate) fn fill_in(
    connection: &Connection,
    op: &Op,
    result: StepResult,
    done: &mut OpResult,
) -> Result<Option<Revision>> {
    let stat = match result {
        StepResult::Nothing => return Ok(None),
        StepResult::Stat(stat) => stat,
        StepResult::Created(path, stat) => {
            if let (true, Some(path)) = (op.is_sequential(), path) {
                done.path = Path::new(&path)?;
                done.sequence = Some(sequence(&path).ok_or_else(exhausted)?);
            }
            stat
        }
    };
    // Some servers do not return it for creates in a transaction of several (ZOOKEEPER-4026).
    if stat.is_unknown() {
        return Ok(None);
    }
    connection.see(&stat);
    let stat = translate(&stat);
    done.stat = Some(stat);
    Ok(Some(stat.modified))
}

/// Records the tickets that were created and deleted.
pub(crate) fn record_tickets(
    connection: &Connection,
    listings: &ListingCache,
    op: &Op,
    done: &OpResult,
) {
    match op {
        Op::Create { sequential: true, .. } => connection.add_ticket(&done.path),
        Op::Delete { path, .. } => {
            connection.remove_ticket(path);
            listings.deleted(path);
        }
        _ => {}
    }
}

/// The created node, if its number is from the reserve or overflowed: see [`LAST`]. It must be
/// deleted again.
///
/// The server's counter stops at its end: every later child gets the same number, so there is no
/// order.
pub(crate) fn reserve_node<'g>(op: &Op, result: &'g StepResult) -> Option<&'g str> {
    match result {
        StepResult::Created(Some(created), _) if op.is_sequential() => {
            sequence(created).is_none_or(|number| number > LAST).then_some(created)
        }
        _ => None,
    }
}

/// Deletes a node that was just created without a valid number, and returns the error that the
/// server would give.
///
/// # Errors
///
/// If it is unknown whether the node was deleted.
pub(crate) async fn undo_create(
    connection: &Connection,
    client: &Client,
    created: &str,
) -> Result<ZkError> {
    match connection.answer(client.delete(created, None)).await {
        Ok(()) | Err(Trouble::Zk(ZkError::NoNode)) => Ok(ZkError::NodeExists),
        Err(_) => Err(exhausted()),
    }
}

/// The error for an exhausted counter while the created node may still exist.
pub(crate) fn exhausted() -> Error {
    Error::new(ErrorKind::Backend, "commit")
        .because("the directory ran out of sequence numbers; use another")
        .with_unknown_effect()
}
