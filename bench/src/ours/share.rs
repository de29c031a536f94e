//! Recipes that several clients hold at a time: permits, and a lock for readers.

use std::num::NonZeroU32;

use synod::lock::{RwLock, Semaphore};

use super::Ours;
use super::lock::Inside;
use crate::racer::{Failure, drive};
use crate::report::Report;
use crate::task::{PERMITS, Task};

/// One in this many laps writes.
const WRITES: usize = 10;

/// All want one of a few permits, each with a session of its own.
pub(super) async fn semaphore(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let (path, inside) = (ours.dir.join("semaphore")?, Inside::default());
    let (inside, all) = (&inside, u32::try_from(PERMITS).ok().and_then(NonZeroU32::new));
    let all = all.ok_or("no permits")?;
    let lanes = ours.sessions(task.clients).await?.iter().map(|client| {
        let semaphore = Semaphore::new(client, path.clone(), all);
        async move || {
            let permit = semaphore.acquire().await?;
            inside.visit(PERMITS).await?;
            Ok(permit.release().await?)
        }
    });
    drive(task, lanes.collect()).await
}

/// All want one lock, each with a session of its own, and most of them only to read.
pub(super) async fn read_write(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let path = ours.dir.join("read-write")?;
    let (readers, writers) = (Inside::default(), Inside::default());
    let (readers, writers) = (&readers, &writers);
    let lanes = ours.sessions(task.clients).await?.iter().enumerate().map(|(lane, client)| {
        let lock = RwLock::new(client, path.clone());
        // So that not all write at once.
        let mut lap = lane;
        async move || {
            lap += 1;
            if lap % WRITES == 0 {
                let guard = lock.write().await?;
                writers.visit(1).await?;
                nobody(readers)?;
                Ok(guard.release().await?)
            } else {
                let guard = lock.read().await?;
                readers.visit(usize::MAX).await?;
                nobody(writers)?;
                Ok(guard.release().await?)
            }
        }
    });
    drive(task, lanes.collect()).await
}

fn nobody(others: &Inside) -> Result<(), Failure> {
    if others.count() == 0 { Ok(()) } else { Err("a reader and a writer at the same time".into()) }
}
