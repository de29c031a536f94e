//! The lock: uncontended, contended by many, and passed on along a queue of waiters.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::time::Duration;

use futures_util::future::{join, try_join_all};
use synod::lock::{CohortMutex, Mutex};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use super::Ours;
use crate::racer::{Failure, drive};
use crate::report::{Report, Stopwatch, rss};
use crate::task::Task;

/// Counts the holders of a recipe that only a few may hold.
#[derive(Debug, Default)]
pub(super) struct Inside(Cell<usize>);

impl Inside {
    /// Enters, lets all other tasks run, and leaves. Fails if there are more than `most` holders.
    pub(super) async fn visit(&self, most: usize) -> Result<(), Failure> {
        self.0.set(self.0.get() + 1);
        if self.0.get() > most {
            return Err(format!("{} are in where there is room for {most}", self.0.get()).into());
        }
        yield_now().await;
        self.0.set(self.0.get() - 1);
        Ok(())
    }

    /// The number of holders.
    pub(super) fn count(&self) -> usize {
        self.0.get()
    }
}

/// Each client has a lock of its own, all with one session.
pub(super) async fn alone(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let locks = ours.dir.join("locks")?;
    let lanes = ours.shared(task.clients).into_iter().enumerate().map(|(lane, client)| {
        let mutex = Mutex::new(&client, locks.join(&lane.to_string())?);
        Ok(async move || Ok(mutex.lock().await?.release().await?))
    });
    drive(task, lanes.collect::<Result<_, Failure>>()?).await
}

/// All want one lock, each with a session of its own.
pub(super) async fn contended(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let path = ours.dir.join("contended")?.join(&task.clients.to_string())?;
    let inside = Inside::default();
    let inside = &inside;
    let lanes = ours.sessions(task.clients).await?.iter().map(|client| {
        let mutex = Mutex::new(client, path.clone());
        async move || {
            let guard = mutex.lock().await?;
            inside.visit(1).await?;
            Ok(guard.release().await?)
        }
    });
    drive(task, lanes.collect()).await
}

/// Number of grants in a row within the process before other processes get the lock.
const MOST: NonZeroU32 = NonZeroU32::new(1_000).unwrap();

/// All tasks want one lock, with one session; it is passed on among them without a request to the
/// store.
pub(super) async fn passed_on(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let path = ours.dir.join("one-process")?;
    let (mutex, inside) = (CohortMutex::new(&ours.clients[0], path, MOST), Inside::default());
    let lanes = (0..task.clients).map(|_| {
        async || {
            let guard = mutex.lock().await?;
            inside.visit(1).await?;
            Ok(guard.release().await?)
        }
    });
    drive(task, lanes.collect()).await
}

/// The same with a lock that is released to the store each time.
pub(super) async fn one_process(ours: &Ours, task: &Task) -> Result<Report, Failure> {
    let path = ours.dir.join("one-process")?;
    let (mutex, inside) = (Mutex::new(&ours.clients[0], path), Inside::default());
    let lanes = (0..task.clients).map(|_| {
        async || {
            let guard = mutex.lock().await?;
            inside.visit(1).await?;
            Ok(guard.release().await?)
        }
    });
    drive(task, lanes.collect()).await
}

/// All wait for one lock, with one session, until the first releases it. A lap is a hand-over.
pub(super) async fn drain(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let mutex = Mutex::new(&ours.clients[0], ours.dir.join("drained")?);
    let first = mutex.lock().await?;
    let tickets = try_join_all((0..task.clients).map(|_| mutex.enqueue())).await?;
    let (inside, last) = (Inside::default(), Cell::new(Instant::now()));
    let waiters = tickets.into_iter().map(async |ticket| {
        let guard = ticket.wait().await?;
        inside.visit(1).await?;
        let handed = last.replace(Instant::now()).elapsed();
        guard.release().await?;
        Ok::<_, Failure>(handed)
    });
    let begin = async {
        // They start to watch only some time after they entered the queue.
        sleep(Duration::from_millis(200 + task.clients as u64)).await;
        let (memory, stopwatch) = (rss(), Stopwatch::start(task));
        last.set(Instant::now());
        first.release().await?;
        Ok::<_, Failure>((memory, stopwatch))
    };
    let (ready, laps) = join(begin, try_join_all(waiters)).await;
    let (memory, stopwatch) = ready?;
    Ok(stopwatch.stop_with(laps?, memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_too_many_is_noticed() {
        let inside = Inside::default();
        let (one, other) = join(inside.visit(2), inside.visit(2)).await;
        assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
        assert_eq!(inside.count(), 0);

        let (one, other) = join(inside.visit(1), inside.visit(1)).await;
        assert!(one.is_ok() && other.is_err(), "{one:?} {other:?}");
    }
}
