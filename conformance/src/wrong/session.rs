//! Mistakes in calls, in the ends of sessions, and in the nodes that they own.

use std::sync::atomic::Ordering;
use std::time::Duration;

use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, Op, Outcome, Query, Txn};
use synod_core::task::spawn;
use tokio::time::sleep;

use crate::wrong::expiry;
use crate::wrong::mistake::Mistake;
use crate::wrong::shared::pause;
use crate::wrong::store::WrongStore;

/// Makes one call, with the mistakes about concurrent calls of one session.
pub(super) async fn call<T>(
    store: &WrongStore,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    store.life.touch();
    match store.mistake() {
        Some(Mistake::DroppedCallJams) => {
            while store.busy.swap(true, Ordering::Relaxed) {
                pause().await;
            }
            tokio::task::yield_now().await;
            let answer = work.await;
            store.busy.store(false, Ordering::Relaxed);
            answer
        }
        Some(Mistake::OneCallAtATime) => {
            let turn = store.turn.fetch_add(1, Ordering::Relaxed) + 1;
            tokio::task::yield_now().await;
            if store.turn.load(Ordering::Relaxed) != turn {
                std::future::pending::<()>().await;
            }
            work.await
        }
        Some(Mistake::SlowWatcherBlocks) => {
            while is_flooded(store) {
                pause().await;
            }
            work.await
        }
        Some(Mistake::LaterErrorWithoutPath) => {
            work.await.map_err(|error| error.map_path(|_path| None))
        }
        _ => work.await,
    }
}

fn is_flooded(store: &WrongStore) -> bool {
    const ROOM: usize = 256;
    let mut books = store.shared.books();
    books.feeds.retain(|(feed, _)| !feed.is_over());
    books.feeds.iter().any(|(_, waiting)| waiting.load(Ordering::Relaxed) >= ROOM)
}

pub(super) async fn close(store: &WrongStore) -> Result<()> {
    match store.mistake() {
        Some(Mistake::LossTakenForEnd) if store.inner.status().borrow().is_lost() => Ok(()),
        Some(Mistake::CloseTwiceFails) if store.closed.swap(true, Ordering::Relaxed) => {
            Err(Error::new(ErrorKind::SessionLost, "close").because("it was closed before"))
        }
        Some(Mistake::CloseKeepsEphemerals) => {
            let inner = store.inner.clone();
            let later = spawn(async move {
                pause().await;
                let _closed = inner.close().await.is_ok();
            });
            store.shared.books().tasks.push(later);
            Ok(())
        }
        Some(Mistake::CloseUntoldToWatchers) => {
            let hidden = store.shared.hidden().await?;
            let now = || hidden.read(Query::node(Path::root()));
            let before = now().await?.revision;
            let closed = store.inner.close().await;
            let after = now().await?.revision;
            store.shared.books().closings.push(before..=after);
            closed
        }
        _ => store.inner.close().await,
    }
}

pub(super) async fn commit(store: &WrongStore, mut txn: Txn) -> Result<Outcome> {
    let Some(mistake) = store.mistake() else { return store.honest_commit(txn).await };
    let ephemeral = txn.ops.iter().any(|op| lifetime(op) == Some(Lifetime::Session));
    txn.ops.iter_mut().for_each(|op| exchange(mistake, op));
    match mistake {
        Mistake::ExpiryKeepsOneEphemeral if ephemeral => {
            const ODD: u64 = 2;
            if store.ephemerals.fetch_add(1, Ordering::Relaxed) == ODD {
                return store.shared.hidden().await?.commit(txn).await;
            }
            store.honest_commit(txn).await
        }
        Mistake::ExpiryOneByOne | Mistake::ExpiryDeletesByPath if ephemeral => {
            let outcome = store.honest_commit(txn).await?;
            expiry::note(&store.shared, store.inner.session().id, &outcome);
            Ok(outcome)
        }
        Mistake::WriteDetachesEphemeral => detached(store, txn).await,
        Mistake::TtlNotRefreshedByWrite | Mistake::TtlUntoldToWatchers => mortal(store, txn).await,
        _ => store.honest_commit(txn).await,
    }
}

fn lifetime(op: &Op) -> Option<Lifetime> {
    match op {
        Op::Create { lifetime, .. } => Some(*lifetime),
        _ => None,
    }
}

/// Replaces the lifetime of a created node.
fn exchange(mistake: Mistake, op: &mut Op) {
    let Op::Create { lifetime, sequential, .. } = op else { return };
    *lifetime = match (mistake, *lifetime) {
        (Mistake::ExpiryTakesPersistent, Lifetime::Persistent) if *sequential => Lifetime::Session,
        (Mistake::ExpiryOneByOne, Lifetime::Session)
        | (Mistake::TtlIgnored | Mistake::TtlNeverExpires, Lifetime::Ttl(_)) => {
            Lifetime::Persistent
        }
        (Mistake::TtlTooEarly, Lifetime::Ttl(ttl)) => Lifetime::Ttl(ttl / 2),
        (Mistake::TtlInWholeSeconds, Lifetime::Ttl(ttl)) if ttl.as_secs() > 0 => {
            Lifetime::Ttl(Duration::from_secs(ttl.as_secs()))
        }
        (Mistake::TtlDiesWithSession, Lifetime::Ttl(_)) => Lifetime::Session,
        (_, lifetime) => lifetime,
    };
}

/// Writes an ephemeral node as a persistent one.
async fn detached(store: &WrongStore, txn: Txn) -> Result<Outcome> {
    if let [Op::Set { path, data, expect }] = txn.ops.as_slice() {
        let view = store.honest_read(Query::node(path)).await?;
        let owner = view.node().and_then(|node| node.stat).and_then(|stat| stat.owner);
        if owner.is_some() {
            let gone = store.honest_commit(Txn::new().delete(path, *expect)).await?;
            if gone.rejected().is_some() {
                return Ok(gone);
            }
            let again = Txn::new().create(path, data.clone(), Lifetime::Persistent);
            return store.honest_commit(again).await;
        }
    }
    store.honest_commit(txn).await
}

/// Records the nodes with a TTL.
async fn mortal(store: &WrongStore, txn: Txn) -> Result<Outcome> {
    let ttls: Vec<Option<Duration>> = txn
        .ops
        .iter()
        .map(|op| match lifetime(op) {
            Some(Lifetime::Ttl(ttl)) => Some(ttl),
            _ => None,
        })
        .collect();
    let outcome = store.honest_commit(txn).await?;
    let Outcome::Committed(commit) = &outcome else { return Ok(outcome) };
    for (done, ttl) in commit.results.iter().zip(ttls) {
        let Some(ttl) = ttl else { continue };
        let path = done.path.clone();
        store.shared.books().mortal.insert(path.clone());
        if store.makes(Mistake::TtlNotRefreshedByWrite) {
            let hidden = store.shared.hidden().await?;
            let end = spawn(async move {
                sleep(ttl).await;
                let _gone = hidden.commit(Txn::new().delete(path, Expect::Any)).await.is_ok();
            });
            store.shared.books().tasks.push(end);
        }
    }
    Ok(outcome)
}
