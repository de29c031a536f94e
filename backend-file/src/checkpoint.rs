//! Checkpoints: the copying of `store.db-wal`, to which each commit is appended, into `store.db`.
//!
//! A thread does it, beside the writers and without the turn. Once all commits are copied and no
//! reader needs them any more, the next writer begins the file again. While others write there is
//! always a last commit that is not copied yet, so a long file is copied to its end in the turn.

use rusqlite::Connection;

use crate::fault::Fault;
use crate::shared::Shared;

/// The number of batches of this process after which the thread looks at the file.
pub(crate) const BATCHES: u32 = 64;

/// The number of pages to copy below which a checkpoint, with its two syncs, is not worth while.
const FEW: u64 = 1_000;

/// The number of pages in the file from which it is copied in the turn: 64 MiB.
const MANY: u64 = 16_384;

/// The number of pages in the file from which a writer copies it: 96 MiB.
const MAX: u64 = 24_576;

/// The pages of the file.
#[derive(Clone, Copy, Debug)]
struct Pages {
    all: u64,
    copied: u64,
}

/// Copies until the handle is stopped.
pub(crate) fn run(shared: &Shared, db: &Connection) {
    loop {
        if let Err(fault) = copy(shared, db) {
            tracing::warn!("no checkpoint: {}", fault.to_error("the checkpoint"));
        }
        // One request is as good as many.
        if shared.checkpoints.take(usize::MAX).is_empty() {
            return;
        }
    }
}

fn copy(shared: &Shared, db: &Connection) -> Result<(), Fault> {
    if checkpoint(db, "NOOP")?.left() < FEW {
        return Ok(());
    }
    let pages = checkpoint(db, "PASSIVE")?;
    if pages.all >= MANY && pages.left() > 0 {
        let _turn = shared.place.take_turn()?;
        checkpoint(db, "PASSIVE")?;
    }
    Ok(())
}

/// Copies a file that the thread did not keep short, in the turn: the thread may be slower than the
/// writers. Call it outside the turn, while this process writes nothing.
pub(crate) fn limit(shared: &Shared, db: &Connection) {
    let copied = checkpoint(db, "NOOP").and_then(|pages| {
        if pages.left() < MAX {
            return Ok(());
        }
        let _turn = shared.place.take_turn()?;
        checkpoint(db, "PASSIVE").map(drop)
    });
    if let Err(fault) = copied {
        tracing::warn!("no checkpoint: {}", fault.to_error("the checkpoint"));
    }
}

/// Copies a long file before a store is opened, for programs that run too shortly for the thread.
/// Call it in the turn.
pub(crate) fn copy_if_long(db: &Connection) -> Result<(), Fault> {
    if checkpoint(db, "NOOP")?.left() >= MANY {
        checkpoint(db, "PASSIVE")?;
    }
    Ok(())
}

/// Runs a checkpoint. One that another process runs is as good: then nothing is done.
fn checkpoint(db: &Connection, mode: &str) -> Result<Pages, Fault> {
    let sql = format!("PRAGMA wal_checkpoint({mode})");
    // Before the first commit there is no file, and the numbers are -1.
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    Ok(db.query_row(&sql, [], |row| {
        Ok(Pages { all: count(row.get(1)?), copied: count(row.get(2)?) })
    })?)
}

impl Pages {
    fn left(self) -> u64 {
        self.all.saturating_sub(self.copied)
    }
}
