//! [`insist`]: repeats a request until it is answered.

use bytes::Bytes;
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::session::Session;
use synod_core::store::{Lifetime, Outcome, RejectReason, Txn};

use crate::keeper::failures;

/// Repeats a request of a session until it is answered, the store refuses, or the session is lost. A request of unknown effect
/// is repeated, too: the requests must be such that one is applied at most.
pub(super) async fn insist<T, F>(session: &Session, mut ask: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut delays = Retry::forever().delays(session.random());
    loop {
        match ask().await {
            Err(error) if error.kind() == ErrorKind::Unreachable => {
                sleep(delays.next().unwrap_or_default()).await;
            }
            answer => return answer,
        }
    }
}

/// [`insist`] for a transaction that is not repeated once it may have been applied: `None` then.
pub(super) async fn commit_once(session: &Session, txn: &Txn) -> Result<Option<Outcome>> {
    let commit = async || match session.commit(txn.clone()).await {
        Err(error) if error.kind() == ErrorKind::Unreachable && error.has_unknown_effect() => {
            Ok(None)
        }
        outcome => outcome.map(Some),
    };
    insist(session, commit).await
}

/// True if an error concerns what was to be stored or read alone: a later try fails, too, and the other tasks of a crew may not.
pub(super) fn concerns_a_task(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::Invalid | ErrorKind::Corrupt)
}

/// Commits a transaction with the create of a node at its end, or without if there is a node.
pub(super) async fn commit_with(
    session: &Session,
    txn: Txn,
    path: &Path,
    data: Bytes,
) -> Result<Outcome> {
    let whole = txn.clone().create(path.clone(), data, Lifetime::Persistent);
    let outcome = insist(session, || session.commit(whole.clone())).await?;
    let is_there = |outcome: &Outcome| {
        outcome.rejected().is_some_and(|no| no.reason == RejectReason::Exists && no.path == *path)
    };
    if is_there(&outcome) {
        return insist(session, || session.commit(txn.clone())).await;
    }
    Ok(outcome)
}

/// The error once the client is closed.
pub(super) fn closed(path: &Path) -> Error {
    failures::closed("working in a crew", path)
}

/// The error of a change for which other clients were faster until its time was over.
pub(super) fn overtaken(doing: &'static str, path: &Path) -> Error {
    Error::new(ErrorKind::Unreachable, doing)
        .at(path)
        .because("it changed again and again; try again")
}
