//! Mistakes in sequential creates.

use std::ops::ControlFlow;
use std::time::Duration;

use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::random::mix;
use synod_core::store::{Node, Op, Outcome, Query, RejectReason, Sequence, Txn, View, Window};
use tokio::time::sleep;

use crate::wrong::mistake::Mistake;
use crate::wrong::shared::pause;
use crate::wrong::store::WrongStore;

/// Returns `true` if this store numbers the tickets instead of the store inside.
fn numbers_itself(store: &WrongStore) -> bool {
    matches!(
        store.mistake(),
        Some(
            Mistake::SequenceTwice
                | Mistake::SequenceByCount
                | Mistake::SequenceAfterHighest
                | Mistake::SequenceBeforeCommit
        )
    )
}

pub(super) async fn read(store: &WrongStore, query: &Query) -> Result<Option<View>> {
    if !store.makes(Mistake::SequenceFromName) && !numbers_itself(store) {
        return Ok(None);
    }
    renumbered(store, query).await.map(Some)
}

/// Reads nodes, and replaces the sequences of the store inside.
async fn renumbered(store: &WrongStore, query: &Query) -> Result<View> {
    let by_name = store.makes(Mistake::SequenceFromName);
    let mut all = query.clone();
    all.window = None;
    let mut view = store.honest_read(all).await?;
    for node in &mut view.nodes {
        node.sequence = if by_name {
            digits(node)
        } else {
            store.shared.books().tickets.get(&node.path).copied()
        };
    }
    if let Some(window) = query.window {
        through(window, &mut view.nodes);
    }
    Ok(view)
}

fn digits(node: &Node) -> Option<Sequence> {
    let name = node.path.name();
    let digits = &name[name.trim_end_matches(|c: char| c.is_ascii_digit()).len()..];
    (!digits.is_empty()).then(|| Sequence::new(digits.parse().unwrap_or(u64::MAX)))
}

fn through(window: Window, nodes: &mut Vec<Node>) {
    nodes.retain(|node| node.sequence.is_some());
    nodes.sort_by_key(|node| node.sequence);
    match window {
        Window::Oldest { count } => nodes.truncate(count),
        Window::Newest { count, before } => {
            nodes.retain(|node| before.is_none() || node.sequence < before);
            nodes.drain(..nodes.len().saturating_sub(count));
        }
    }
}

pub(super) async fn commit(store: &WrongStore, txn: Txn) -> Result<ControlFlow<Outcome, Txn>> {
    let draws = txn.ops.iter().any(Op::is_sequential);
    if draws && numbers_itself(store) {
        return numbered(store, txn).await.map(ControlFlow::Break);
    }
    if draws && store.makes(Mistake::SequenceWraps) {
        let outcome = match store.honest_commit(txn.clone()).await? {
            Outcome::Rejected(no) if no.reason == RejectReason::SequenceExhausted => {
                numbered(store, txn).await?
            }
            outcome => outcome,
        };
        return Ok(ControlFlow::Break(outcome));
    }
    if draws && txn.ops.len() == 1 && store.makes(Mistake::SequentialTwice) {
        let _unanswered = store.honest_commit(txn.clone()).await?;
    }
    Ok(ControlFlow::Continue(txn))
}

async fn numbered(store: &WrongStore, mut txn: Txn) -> Result<Outcome> {
    let given = txn.ops.clone();
    let look = txn.look.take();
    let mut sequences = vec![None; given.len()];
    let at_once =
        !matches!(store.mistake(), Some(Mistake::SequenceTwice | Mistake::SequenceBeforeCommit));
    let _alone = if at_once { Some(store.shared.drawing.lock().await) } else { None };
    for (op, place) in txn.ops.iter_mut().zip(&mut sequences) {
        let Op::Create { path, sequential: sequential @ true, .. } = op else { continue };
        let dir = path.parent().unwrap_or_else(Path::root);
        let number = next(store, &dir).await?;
        *path = dir.join(&format!("{}{number:010}", path.name()))?;
        *sequential = false;
        *place = Some(Sequence::new(number));
    }
    match store.honest_commit(txn).await? {
        Outcome::Rejected(mut rejected) => {
            rejected.path = given[rejected.index].path().clone();
            Ok(Outcome::Rejected(rejected))
        }
        Outcome::Committed(mut commit) => {
            for (done, sequence) in commit.results.iter_mut().zip(sequences) {
                done.sequence = sequence;
                let ticket = sequence.map(|sequence| (done.path.clone(), sequence));
                store.shared.books().tickets.extend(ticket);
            }
            if let Some(query) = look {
                commit.look = Some(shown(store, &query).await?);
            }
            Ok(Outcome::Committed(commit))
        }
    }
}

/// Returns the view that this store shows, even if it does not number the tickets.
async fn shown(store: &WrongStore, query: &Query) -> Result<View> {
    match read(store, query).await? {
        Some(view) => Ok(view),
        None => store.honest_read(query.clone()).await,
    }
}

/// The number that the mistake uses as the next one in this directory.
async fn next(store: &WrongStore, dir: &Path) -> Result<u64> {
    if matches!(store.mistake(), Some(Mistake::SequenceBeforeCommit | Mistake::SequenceWraps)) {
        let number = {
            let mut books = store.shared.books();
            let counter = books.counters.entry(dir.clone()).or_default();
            *counter += 1;
            *counter
        };
        // Calls take different times.
        sleep(Duration::from_micros(mix(number) % 3_000)).await;
        return Ok(number);
    }
    let view = shown(store, &Query::children(dir).names_only()).await?;
    if store.makes(Mistake::SequenceByCount) {
        return Ok(view.nodes.len() as u64);
    }
    if store.makes(Mistake::SequenceTwice) {
        pause().await;
    }
    let highest = view.nodes.iter().filter_map(|node| node.sequence).max();
    Ok(highest.map_or(0, |highest| highest.get() + 1))
}
