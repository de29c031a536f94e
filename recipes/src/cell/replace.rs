//! [`Written`]: one write of a value, sent until it is known whether it was applied.

use bytes::Bytes;
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::store::{Commit, Outcome, Rejected, View};

use crate::cell::mark::{CellValue, DOING, Place};
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

/// Replaces a value by `data`, or fails when a call would have failed. On every result but an applied write the place forgets what is out of date.
pub(super) async fn replace(
    place: &mut Option<Place>,
    cell: &Path,
    from: &CellValue,
    data: Bytes,
) -> Result<Written> {
    let Some(Place { mark, .. }) = place else { return Ok(Written::Lost) };
    let session = mark.session().clone();
    let (txn, number) = mark.txn(cell, &from.stat, &data);
    let mut delays = Retry::until_elapsed(session.time_limit()).delays(session.chance());
    let mut in_doubt = false;
    loop {
        let error = match session.commit(txn.clone()).await {
            Ok(Outcome::Committed(commit)) => {
                learn(place, &commit, data);
                return Ok(Written::Applied);
            }
            Ok(Outcome::Rejected(Rejected { index, look, .. })) if index > 0 => {
                catch_up(place, cell, look);
                return Ok(Written::Lost);
            }
            Ok(Outcome::Rejected(_)) => return by_mark(place, cell, &number, in_doubt).await,
            Err(error) if error.is_ambiguous() && error.kind() == ErrorKind::Unreachable => error,
            Err(error) => return fail(place, error, in_doubt),
        };
        mistake!(LostAnswerIsLostRace: {
            forget(place);
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
    let Some(Place { mark, value }) = place else { return Ok(Written::Lost) };
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
    let in_doubt = in_doubt || error.is_ambiguous();
    match (error.kind(), in_doubt) {
        (ErrorKind::SessionLost, false) => Ok(Written::Lost),
        (ErrorKind::SessionLost, true) => Ok(Written::InDoubt),
        (_, false) => Err(error),
        (_, true) => Err(error.with_unknown_effect()),
    }
}

/// Remembers what was written.
fn learn(place: &mut Option<Place>, commit: &Commit, data: Bytes) {
    let [marked, written] = [0, 1].map(|index| commit.done.get(index).and_then(|done| done.stat));
    if let Some(place) = place {
        place.mark.learn(marked);
        place.value = written.map(|stat| CellValue { data, stat });
    }
}

/// Remembers the value that another client was faster with, as the look of the rejection shows it, with the mark in
/// place. Without one the value is read.
fn catch_up(place: &mut Option<Place>, cell: &Path, look: Option<View>) {
    if let Some(place) = place {
        let nodes = look.into_iter().flat_map(|view| view.nodes);
        place.value = nodes.into_iter().find(|node| node.path == *cell).and_then(CellValue::of);
    }
}

/// Forgets the value, which is out of date or may be.
pub(super) fn forget(place: &mut Option<Place>) {
    if let Some(place) = place {
        place.value = None;
    }
}
