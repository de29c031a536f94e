//! The thread that writes: it takes the turn, and applies all jobs that wait in one transaction.

use rusqlite::{Connection, TransactionBehavior};

use crate::changes::{self, KEPT};
use crate::checkpoint;
use crate::database::set_synced;
use crate::fault::Fault;
use crate::filter::Wakes;
use crate::job::{Job, JobEnd};
use crate::meta::Meta;
use crate::shared::Shared;
use crate::writing::Writing;

/// The number of jobs in one transaction.
const BATCH: usize = 64;

/// The number of revisions after which every seat is woken, whatever it watches: a part of those
/// that are kept.
const EVERY: u64 = KEPT / 4;

/// The result of the transaction of a batch.
enum BatchEnd {
    Committed,
    Failed(Fault),
    Unknown(Fault),
}

/// Writes until the queue is closed.
pub(crate) fn run(shared: &Shared, mut db: Connection) {
    let mut batches: u32 = 0;
    loop {
        let batch = shared.writes.take(BATCH);
        if batch.is_empty() {
            return;
        }
        write(shared, &mut db, batch);
        batches = batches.wrapping_add(1);
        if batches.is_multiple_of(checkpoint::BATCHES) {
            shared.checkpoints.push(());
            checkpoint::limit(shared, &db);
        }
    }
}

fn write(shared: &Shared, db: &mut Connection, mut batch: Vec<Box<dyn Job>>) {
    let turn = match shared.place.take_turn() {
        Ok(turn) => turn,
        Err(error) => return finish(batch, JobEnd::Failed(&error.into())),
    };
    if shared.place.check().is_err() {
        drop(turn);
        shared.lose_all();
        return finish(batch, JobEnd::Failed(&Fault::Gone));
    }
    // In the turn: until then a caller may give up, and knows that nothing was written.
    batch.retain_mut(|job| job.start());
    let ends = transact_all(shared, db, batch);
    drop(turn);
    for (jobs, end) in ends {
        match end {
            BatchEnd::Committed => finish(jobs, JobEnd::Committed),
            BatchEnd::Failed(fault) => finish(jobs, JobEnd::Failed(&fault)),
            BatchEnd::Unknown(fault) => finish(jobs, JobEnd::Unknown(&fault)),
        }
    }
}

/// Applies all jobs in one transaction; each in its own if that fails, so that only those fail that
/// must.
fn transact_all(
    shared: &Shared,
    db: &mut Connection,
    mut batch: Vec<Box<dyn Job>>,
) -> Vec<(Vec<Box<dyn Job>>, BatchEnd)> {
    if batch.is_empty() {
        return Vec::new();
    }
    match transact(shared, db, &mut batch) {
        BatchEnd::Failed(_) if batch.len() > 1 => {
            let mut ends = Vec::new();
            for job in batch {
                let mut alone = vec![job];
                let end = transact(shared, db, &mut alone);
                ends.push((alone, end));
            }
            ends
        }
        end => vec![(batch, end)],
    }
}

fn transact(shared: &Shared, db: &mut Connection, batch: &mut [Box<dyn Job>]) -> BatchEnd {
    let before = match prepare(db, batch) {
        Ok(prepared) => prepared,
        Err(fault) => return BatchEnd::Failed(fault),
    };
    let tx = match db.transaction_with_behavior(TransactionBehavior::Immediate) {
        Ok(tx) => tx,
        Err(error) => return BatchEnd::Failed(error.into()),
    };
    let mut writing = Writing::new(&tx, before, &shared.machine);
    if writing.meta.is_short() {
        writing.meta.reserve();
    }
    if let Err(fault) = apply(&mut writing, batch) {
        let after = writing.after;
        // Locks that the jobs took are released after nothing was written.
        let _rolled_back = tx.rollback().is_ok();
        drop(after);
        return BatchEnd::Failed(fault);
    }
    let Writing { meta, after, wakes, .. } = writing;
    // Without a change there is nothing to write to the disk.
    let ended = if meta == before { tx.rollback() } else { tx.commit() };
    if let Err(error) = ended {
        return BatchEnd::Unknown(error.into());
    }
    for work in after {
        work(&shared.place);
    }
    // Now and then all seats: the changes that nobody has read are soon forgotten.
    let is_for_all = meta.seats != before.seats || meta.revision / EVERY != before.revision / EVERY;
    wake(shared, meta, if is_for_all { Wakes::every_seat() } else { wakes });
    BatchEnd::Committed
}

/// Reads the revision, and decides whether the transaction is synced. Both hold until it begins,
/// as this process has the turn.
fn prepare(db: &Connection, batch: &[Box<dyn Job>]) -> Result<Meta, Fault> {
    let meta = Meta::read(db)?;
    let mut is_synced = meta.is_short();
    for job in batch {
        is_synced = is_synced || job.is_durable(db)?;
    }
    set_synced(db, is_synced)?;
    Ok(meta)
}

fn apply(writing: &mut Writing<'_>, batch: &mut [Box<dyn Job>]) -> Result<(), Fault> {
    for job in batch {
        job.run(writing)?;
    }
    changes::trim(writing.db, &mut writing.meta, KEPT)?;
    writing.meta.write(writing.db)
}

/// Wakes the observers that the changes may concern. A byte that is written after the commit is
/// not lost: an observer reads the changes after it took the byte.
fn wake(shared: &Shared, meta: Meta, wakes: Wakes) {
    let seats = shared.place.seats();
    if let Err(error) = shared.peers.refresh(seats, shared.seat.id(), meta.seats) {
        tracing::warn!("the other processes of the store cannot be listed: {error}");
    }
    let probes = wakes.into_probes();
    shared.peers.wake(&probes);
    if probes.names(shared.seat.id()) || shared.watches.may_be_concerned(&probes) {
        shared.seat.wake();
    }
}

fn finish(batch: Vec<Box<dyn Job>>, end: JobEnd<'_>) {
    for job in batch {
        job.finish(end);
    }
}
