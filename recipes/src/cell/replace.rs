//! [`Written`]: one write of a value, sent until it is known whether it was applied.

use bytes::Bytes;
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::store::{Commit, Outcome, Rejected};

use crate::cell::gate::Nodes;
use crate::cell::mark::{CellValue, DOING};
use crate::cell::place::Place;
use crate::mutant::mistake;

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Applied,
    /// It was not applied, and never will be: the value is another one, or the session is over.
    Lost,
    /// Its session is over, and it may have been applied.
    InDoubt,
}

/// The place of the check of the gate in the transaction.
const GATE: usize = 2;

/// Replaces a value by `data`, or fails when a call would have failed. On every result but an applied write the place forgets
/// what is out of date.
///
/// A write that stands back is lost if a promoted change has closed the gate. One in doubt does not: it is brought to its end,
/// as a request that is late may still be applied.
pub(super) async fn replace(
    place: &mut Option<Place>,
    nodes: &Nodes,
    from: &CellValue,
    data: Bytes,
    stands_back: bool,
) -> Result<Written> {
    let Some(Place { mark, gate, .. }) = place else { return Ok(Written::Lost) };
    let session = mark.session().clone();
    let (unguarded, number) = mark.txn(&nodes.cell, &from.stat, &data);
    let unguarded = unguarded.look_if_rejected(nodes.query());
    let gate = gate.as_ref().filter(|_| stands_back);
    let mut txn = gate.map_or_else(|| unguarded.clone(), |gate| gate.guard(unguarded.clone()));
    let mut delays = Retry::until_elapsed(session.timeout()).delays(session.random());
    let mut in_doubt = false;
    loop {
        let error = match session.commit(txn.clone()).await {
            Ok(Outcome::Committed(commit)) => {
                learn(place, &commit, data);
                return Ok(Written::Applied);
            }
            Ok(Outcome::Rejected(Rejected { index: GATE, .. })) if in_doubt => {
                txn = unguarded.clone();
                continue;
            }
            Ok(Outcome::Rejected(Rejected { index, look, .. })) if index > 0 => {
                // With the mark in place, it shows what another client was faster with.
                if let Some(place) = place {
                    place.see(nodes, look);
                }
                return Ok(Written::Lost);
            }
            Ok(Outcome::Rejected(_)) => {
                return by_mark(place, &nodes.cell, &number, in_doubt).await;
            }
            Err(error) if error.has_unknown_effect() && error.kind() == ErrorKind::Unreachable => {
                error
            }
            Err(error) => return fail(place, error, in_doubt),
        };
        mistake!(LostAnswerIsLostRace: {
            crate::cell::place::forget(place);
            return Ok(Written::Lost);
        });
        let Some(delay) = delays.next() else { return fail(place, error, in_doubt) };
        in_doubt = true;
        sleep(delay).await;
    }
}

/// Finds out by the mark, which another request has replaced, whether that was this write.
async fn by_mark(
    place: &mut Option<Place>,
    cell: &Path,
    number: &Bytes,
    in_doubt: bool,
) -> Result<Written> {
    let Some(Place { mark, value, .. }) = place else { return Ok(Written::Lost) };
    *value = None;
    match mark.read().await {
        Ok(Some(last)) if last == number => Ok(Written::Applied),
        // The request expects a version that the mark will not have again.
        Ok(Some(_)) => Ok(Written::Lost),
        Ok(None) => {
            *place = None;
            if !in_doubt {
                return Ok(Written::Lost);
            }
            Err(Error::new(ErrorKind::Corrupt, DOING)
                .at(cell)
                .because("another client removed the node that says whether it was applied")
                .with_unknown_effect())
        }
        Err(error) => fail(place, error, in_doubt),
    }
}

/// The result of a write that cannot go on. Dropping the place removes the mark, so that a request which is late is
/// rejected.
fn fail(place: &mut Option<Place>, error: Error, in_doubt: bool) -> Result<Written> {
    *place = None;
    mistake!(LossEndsChange: return Err(error.with_unknown_effect()));
    let in_doubt = in_doubt || error.has_unknown_effect();
    match (error.kind(), in_doubt) {
        (ErrorKind::SessionLost, false) => Ok(Written::Lost),
        (ErrorKind::SessionLost, true) => Ok(Written::InDoubt),
        (_, false) => Err(error),
        (_, true) => Err(error.with_unknown_effect()),
    }
}

/// Remembers what was written.
fn learn(place: &mut Option<Place>, commit: &Commit, data: Bytes) {
    let [marked, written] =
        [0, 1].map(|index| commit.results.get(index).and_then(|done| done.stat));
    if let Some(place) = place {
        place.mark.learn(marked);
        place.value = written.map(|stat| CellValue { data, stat });
    }
}
