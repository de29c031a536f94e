//! [`Table`]: tables of SQLite, as programs on one machine use them that have no store: a row for
//! the holder of a lock, a row for each item of a queue, and a poll once a millisecond.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};

use super::job::{Job, add_one};
use super::lap::{Lap, clock, timed};
use crate::racer::Failure;

/// The pause between two polls.
const POLL: Duration = Duration::from_millis(1);

/// The time that a statement waits for another writer, by SQLite's own polling.
const BUSY: Duration = Duration::from_secs(60);

/// The pause between two writes of which another process waits.
pub(super) const PAUSE: Duration = Duration::from_millis(3);

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS locks (name TEXT PRIMARY KEY, owner INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY, worker INTEGER, data BLOB NOT NULL);
    CREATE INDEX IF NOT EXISTS free ON jobs (id) WHERE worker IS NULL;
    CREATE TABLE IF NOT EXISTS numbers (name TEXT PRIMARY KEY, number INTEGER NOT NULL);
    INSERT OR IGNORE INTO numbers VALUES ('counter', 0), ('stamp', 0);
";

/// Tables of SQLite. Each commit is synced.
pub(super) struct Table {
    db: Connection,
    job: Job,
    index: usize,
    sum: PathBuf,
    stamp: u64,
}

impl Table {
    pub(super) fn open(job: Job, place: &Path, sum: &Path, index: usize) -> Result<Self, Failure> {
        let db = Connection::open(place.join("tables.db"))?;
        db.busy_timeout(BUSY)?;
        db.pragma_update(None, "journal_mode", "wal")?;
        db.pragma_update(None, "synchronous", "full")?;
        db.execute_batch(TABLES)?;
        Ok(Self { db, job, index, sum: sum.to_owned(), stamp: 0 })
    }

    fn locked(&mut self) -> Result<(), Failure> {
        self.hold()?;
        add_one(&self.sum)?;
        self.db.prepare_cached("DELETE FROM locks WHERE name = 'lock'")?.execute([])?;
        Ok(())
    }

    /// Puts an item, and takes or claims one; waits as long as there is none.
    fn item(&mut self, claims: bool) -> Result<(), Failure> {
        let put = "INSERT INTO jobs (data) VALUES (?1)";
        self.db.prepare_cached(put)?.execute([crate::ours::DATA])?;
        loop {
            let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let next = "SELECT id, data FROM jobs WHERE worker IS NULL ORDER BY id LIMIT 1";
            let row = tx
                .prepare_cached(next)?
                .query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?)))
                .optional()?;
            let Some((id, _data)) = row else {
                drop(tx);
                sleep(POLL);
                continue;
            };
            if claims {
                let claim = "UPDATE jobs SET worker = ?2 WHERE id = ?1";
                tx.prepare_cached(claim)?.execute((id, self.index))?;
                tx.commit()?;
                self.db.prepare_cached("DELETE FROM jobs WHERE id = ?1")?.execute([id])?;
            } else {
                tx.prepare_cached("DELETE FROM jobs WHERE id = ?1")?.execute([id])?;
                tx.commit()?;
            }
            return Ok(());
        }
    }

    fn counted(&self) -> Result<(), Failure> {
        let add = "UPDATE numbers SET number = number + 1 WHERE name = 'counter'";
        self.db.prepare_cached(add)?.execute([])?;
        Ok(())
    }

    fn write_stamp(&self) -> Result<(), Failure> {
        let write = "UPDATE numbers SET number = ?1 WHERE name = 'stamp'";
        self.db.prepare_cached(write)?.execute([clock()])?;
        sleep(PAUSE);
        Ok(())
    }

    /// Polls until there is another stamp, and returns its age.
    fn see_stamp(&mut self) -> Result<Duration, Failure> {
        loop {
            let read = "SELECT number FROM numbers WHERE name = 'stamp'";
            let stamp: u64 = self.db.prepare_cached(read)?.query_row([], |row| row.get(0))?;
            if stamp != self.stamp {
                self.stamp = stamp;
                return Ok(Duration::from_nanos(clock().saturating_sub(stamp)));
            }
            sleep(POLL);
        }
    }
}

impl Lap for Table {
    fn lap(&mut self) -> Result<Duration, Failure> {
        match self.job {
            Job::Lock => timed(|| self.locked()),
            Job::QueueTake => timed(|| self.item(false)),
            Job::QueueAck => timed(|| self.item(true)),
            Job::Counter => timed(|| self.counted()),
            Job::Wake if self.index == 0 => timed(|| self.write_stamp()),
            Job::Wake => self.see_stamp(),
            Job::Death | Job::CacheSmall | Job::CacheLarge => Err("a table does not do it".into()),
        }
    }

    fn hold(&mut self) -> Result<(), Failure> {
        let take = "INSERT OR IGNORE INTO locks VALUES ('lock', ?1)";
        while self.db.prepare_cached(take)?.execute([self.index])? == 0 {
            sleep(POLL);
        }
        Ok(())
    }
}
