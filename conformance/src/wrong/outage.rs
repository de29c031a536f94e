//! Mistakes about answers that do not arrive.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::{Expect, Op, Outcome, Store, Txn};
use synod_core::task::spawn;
use tokio::time::sleep;

use crate::wrong::mistake::Mistake;
use crate::wrong::shared::{Shared, pause};

/// Commits in the store inside.
pub(super) async fn commit(shared: &Shared, inner: &Arc<dyn Store>, txn: Txn) -> Result<Outcome> {
    let sequential = txn.ops.iter().any(Op::is_sequential);
    match shared.mistake {
        Some(Mistake::AppliesTwice) => {
            let set = matches!(txn.ops.as_slice(), [Op::Set { expect: Expect::Any, .. }]);
            let outcome = inner.commit(txn.clone()).await?;
            if set {
                let _again = inner.commit(txn).await?;
            }
            Ok(outcome)
        }
        Some(Mistake::RetriesBlindly) => match inner.commit(txn.clone()).await {
            Err(error) if error.has_unknown_effect() => shared.hidden().await?.commit(txn).await,
            outcome => outcome,
        },
        Some(Mistake::LostReplyIsNone) => inner.commit(txn).await.map_err(|error| {
            if error.has_unknown_effect() { Error::new(error.kind(), "commit") } else { error }
        }),
        Some(Mistake::LateAfterRead) if sequential => given_up(shared, inner, txn).await,
        Some(Mistake::LateWriteAfterSessionEnd) => {
            let outcome = inner.commit(txn.clone()).await;
            if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::SessionLost) {
                let hidden = shared.hidden().await?;
                let late = spawn(async move {
                    pause().await;
                    let _either_way = hidden.commit(txn).await.is_ok();
                });
                shared.books().tasks.push(late);
            }
            outcome
        }
        _ => inner.commit(txn).await,
    }
}

/// Waits for an eighth of the session's time, and sends the request again after another quarter.
async fn given_up(shared: &Shared, inner: &Arc<dyn Store>, txn: Txn) -> Result<Outcome> {
    let ttl = inner.session().ttl;
    let first = inner.commit(txn.clone());
    if let Either::Left((outcome, _)) = select(first, pin!(sleep(ttl / 8))).await {
        return outcome;
    }
    let inner = inner.clone();
    let again = spawn(async move {
        sleep(ttl / 4).await;
        let _either_way = inner.commit(txn).await.is_ok();
    });
    shared.books().tasks.push(again);
    let error = Error::new(ErrorKind::Unreachable, "commit").because("no answer yet");
    Err(error.with_unknown_effect())
}

/// Waits for the answer of a call.
pub(super) async fn wait<T>(
    shared: &Shared,
    inner: &Arc<dyn Store>,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let was_lost = inner.status().borrow().is_lost();
    let answer = work.await;
    if let Err(error) = &answer
        && shared.makes(Mistake::CallsHangWhenCut)
        && !was_lost
        && matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::SessionLost)
    {
        return pending().await;
    }
    answer
}
