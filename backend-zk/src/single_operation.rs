//! A transaction of one operation, sent as the plain call. Most transactions are of this kind, so
//! the path is short.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Commit, Lifetime, Op, OpResult, Revision, Txn, View};

use crate::client::{Client, ZkError, ZkStat};
use crate::connection::Connection;
use crate::error::{Sort, Trouble};
use crate::hub::Hub;
use crate::look::Look;
use crate::plan::{create_options, version};
use crate::selection::{LAST, sequence};
use crate::stat::translate;

/// The result of an operation.
pub(crate) enum Got {
    Nothing,
    Stat(ZkStat),
    /// With its path, unless that equals the requested path.
    Made(Option<String>, ZkStat),
}

/// The only operation of a transaction, if it has a plain call and nothing is known that requires a
/// plan.
pub(crate) fn lone<'t>(txn: &'t Txn, vacated: &BTreeSet<usize>) -> Option<&'t Op> {
    match &txn.ops[..] {
        [Op::Check { .. } | Op::Create { lifetime: Lifetime::Container, .. }] => None,
        [op] if vacated.is_empty() => Some(op),
        _ => None,
    }
}

/// The refusal of an operation, and the answer to the look that was sent with it.
pub(crate) type Refusal = (ZkError, Option<View>);

/// Sends one operation, followed by its look if one is needed. A validated operation fits into a
/// request.
///
/// # Errors
///
/// If there is no definite answer. A refusal is a definite answer.
pub(crate) async fn send_lone(
    hub: &Arc<Hub>,
    client: &Arc<Client>,
    op: &Op,
    mut look: Option<Look<'_>>,
) -> Result<Result<Commit, Refusal>> {
    let wire = &*hub.wire;
    let behind = look.take_if(|look| look.is_sent_along() && !look.may_be_known(op));
    let request = async { definite(request(wire, client, op).await) };
    let Some(mut behind) = behind else {
        let answer = wire.answer(request).await;
        let got = match answer.map_err(|trouble| trouble.translate("commit", Sort::Write))? {
            Ok(got) => got,
            Err(said) => return Ok(Err((said, None))),
        };
        if let Some(made) = ran_out(op, &got) {
            return take_back(wire, client, made).await.map(|said| Err((said, None)));
        }
        let mut commit = done(hub, op, got)?;
        if let Some(look) = look {
            commit.look = look.late(&commit).await;
        }
        return Ok(Ok(commit));
    };
    // Boxed: other transactions should not carry this state.
    let both = Box::pin(async {
        let request = async {
            let answer = wire.answer(request).await;
            if let Ok(Ok(Got::Made(Some(path), _))) = &answer {
                behind.note(op, path);
            }
            answer
        };
        // Both requests are sent before either answer is awaited.
        join(request, behind.ask()).await
    });
    let (answer, seen) = both.await;
    let got = match answer.map_err(|trouble| trouble.translate("commit", Sort::Write))? {
        Ok(got) => got,
        Err(said) => return Ok(Err((said, behind.view_of_refusal(seen).await))),
    };
    if let Some(made) = ran_out(op, &got) {
        return take_back(wire, client, made).await.map(|said| Err((said, None)));
    }
    let mut commit = done(hub, op, got)?;
    commit.look = behind.view_after(seen, &commit).await;
    Ok(Ok(commit))
}

/// Sends the plain call of an operation, and waits for the answer.
pub(crate) async fn request(wire: &Connection, client: &Client, op: &Op) -> Result<Got, ZkError> {
    let path = op.path().as_str();
    match op {
        Op::Create { data, lifetime, sequential, .. } => {
            let options = create_options(*lifetime, *sequential, wire.access);
            let (made, stat) = client.create(path, data, &options).await?;
            Ok(Got::Made(sequential.then_some(made), stat))
        }
        Op::Set { data, expect, .. } => {
            Ok(Got::Stat(client.set_data(path, data, version(*expect)).await?))
        }
        Op::Delete { expect, .. } => {
            client.delete(path, version(*expect)).await?;
            Ok(Got::Nothing)
        }
        Op::Check { .. } => Err(ZkError::Unimplemented),
    }
}

/// An error that is not the definite answer to this very request is an error of the connection.
pub(crate) fn definite(answer: Result<Got, ZkError>) -> Result<Result<Got, ZkError>, ZkError> {
    match answer {
        Err(said) if !crate::error::is_definite(&said) => Err(said),
        answer => Ok(answer),
    }
}

fn done(hub: &Hub, op: &Op, got: Got) -> Result<Commit> {
    let mut done = OpResult::new(op.path().clone());
    let revision = take_result(&hub.wire, op, got, &mut done)?;
    remember(hub, op, &done);
    Ok(Commit::new(revision, vec![done], None))
}

/// Fills in the result of an operation, and returns its revision if that is known.
///
/// # Errors
///
/// If the server's counter of sequential names has overflowed.
pub(crate) fn take_result(
    wire: &Connection,
    op: &Op,
    got: Got,
    done: &mut OpResult,
) -> Result<Option<Revision>> {
    let stat = match got {
        Got::Nothing => return Ok(None),
        Got::Stat(stat) => stat,
        Got::Made(path, stat) => {
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
    wire.see(&stat);
    let stat = translate(&stat);
    done.stat = Some(stat);
    Ok(Some(stat.modified))
}

/// Remembers which tickets exist.
pub(crate) fn remember(hub: &Hub, op: &Op, done: &OpResult) {
    match op {
        Op::Create { sequential: true, .. } => hub.wire.know(&done.path),
        Op::Delete { path, .. } => {
            hub.wire.forget(path);
            hub.deleted(path);
        }
        _ => {}
    }
}

/// The created node, if its number is from the reserve or overflowed: see [`LAST`]. It must be
/// deleted again.
///
/// At its end the server's counter stops, and every later child gets the same number, so that they
/// have no order.
pub(crate) fn ran_out<'g>(op: &Op, got: &'g Got) -> Option<&'g str> {
    match got {
        Got::Made(Some(made), _) if op.is_sequential() => {
            sequence(made).is_none_or(|number| number > LAST).then_some(made)
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
pub(crate) async fn take_back(wire: &Connection, client: &Client, made: &str) -> Result<ZkError> {
    match wire.answer(client.delete(made, None)).await {
        Ok(()) | Err(Trouble::Said(ZkError::NoNode)) => Ok(ZkError::NodeExists),
        Err(_) => Err(exhausted()),
    }
}

/// The error for a counter that is at its end, when the node that was created may still exist.
pub(crate) fn exhausted() -> Error {
    Error::new(ErrorKind::Backend, "commit")
        .because("the directory ran out of sequence numbers; use another")
        .with_unknown_effect()
}
