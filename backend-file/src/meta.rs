//! [`Meta`]: the revision of the store, and the revisions that are reserved.
//!
//! A transaction of ephemeral nodes alone is not synced, so a power loss may take the last
//! revisions. They must not come again, because fencing tokens are made of them. So revisions are
//! reserved in blocks, by a commit that is synced, and whoever opens a store that nobody else has
//! open continues behind the reserved block. It also continues behind the date, so that a backup
//! that was restored does not repeat the revisions since it was made.

use std::time::UNIX_EPOCH;

use rusqlite::{Connection, params};
use synod_core::clock;
use synod_core::store::Revision;

use crate::fault::Fault;

/// The number of revisions in a reserved block, and in a second of the date.
const BLOCK: u64 = 1 << 16;

/// The nanoseconds of a second.
const NANOS: u128 = 1_000_000_000;

/// The number of reserved revisions below which the next block is reserved: more than a batch of
/// transactions uses.
const RESERVE: u64 = 1 << 14;

/// The row of the table `meta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) revision: u64,
    ceiling: u64,
    /// The last revision whose changes are forgotten.
    pub(crate) trimmed: u64,
    /// The number of seats that were added and removed.
    pub(crate) seats: u64,
}

impl Meta {
    pub(crate) fn read(db: &Connection) -> Result<Self, Fault> {
        let sql = "SELECT revision, ceiling, trimmed, seats FROM meta";
        Ok(db.prepare_cached(sql)?.query_row([], |row| {
            Ok(Self {
                revision: row.get(0)?,
                ceiling: row.get(1)?,
                trimmed: row.get(2)?,
                seats: row.get(3)?,
            })
        })?)
    }

    pub(crate) fn write(&self, db: &Connection) -> Result<(), Fault> {
        let sql = "UPDATE meta SET revision = ?1, ceiling = ?2, trimmed = ?3, seats = ?4";
        let row = params![self.revision, self.ceiling, self.trimmed, self.seats];
        db.prepare_cached(sql)?.execute(row)?;
        Ok(())
    }

    /// Returns `true` if the machine was started again since the database was last opened: only
    /// that, and no end of a process, can damage the file. Without a known start it may have been.
    pub(crate) fn is_of_earlier_boot(db: &Connection, boot: &str) -> Result<bool, Fault> {
        let last: String = db.query_row("SELECT boot FROM meta", [], |row| row.get(0))?;
        Ok(boot.is_empty() || last != boot)
    }

    /// Records the start of the machine.
    pub(crate) fn set_boot(db: &Connection, boot: &str) -> Result<(), Fault> {
        db.execute("UPDATE meta SET boot = ?1", [boot])?;
        Ok(())
    }

    /// Returns `true` if the next block must be reserved before anything is written.
    pub(crate) fn is_short(&self) -> bool {
        self.ceiling - self.revision < RESERVE
    }

    /// Reserves the next block. The transaction must be synced.
    pub(crate) fn reserve(&mut self) {
        self.ceiling = self.revision + BLOCK;
    }

    /// Continues behind all revisions that may have been shown: for the first opener. Whoever had
    /// the store open before may have lost its last commits, and forgot what it watched.
    pub(crate) fn start_again(&mut self) {
        let since = clock::date().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Not by the second alone: a backup may be opened in the same one as the store itself.
        let of_date = since.as_nanos().saturating_mul(u128::from(BLOCK)) / NANOS;
        self.revision = self.ceiling.max(u64::try_from(of_date).unwrap_or(u64::MAX));
        self.trimmed = self.revision;
        self.reserve();
    }

    /// Returns the next revision.
    pub(crate) fn next(&mut self) -> Result<Revision, Fault> {
        if self.revision >= self.ceiling {
            return Err(Fault::Foreign("more changes at once than revisions are reserved".into()));
        }
        self.revision += 1;
        Ok(Revision::new(self.revision))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_ONE: Meta = Meta { revision: 0, ceiling: 0, trimmed: 0, seats: 0 };

    #[test]
    fn no_revision_is_used_that_is_not_reserved() {
        let mut meta = DAY_ONE;
        assert!(meta.is_short());
        assert!(meta.next().is_err(), "nothing is reserved yet");
        meta.reserve();
        for used in 1..=BLOCK {
            assert_eq!(meta.is_short(), BLOCK - (used - 1) < RESERVE);
            assert_eq!(meta.next().expect("reserved").get(), used);
        }
        assert!(meta.next().is_err(), "the block is used up");
    }

    #[test]
    fn an_opener_continues_behind_what_was_reserved_and_behind_the_date() {
        let mut meta = DAY_ONE;
        meta.start_again();
        let first = meta;
        assert!(first.revision > 1_700_000_000 << 16, "behind the date");
        assert!(first.revision < 1 << 48);
        assert!(!first.is_short());

        meta.start_again();
        assert!(meta.revision >= first.ceiling, "behind the reserved block");
        // The copy of an older store, restored.
        let mut restored = DAY_ONE;
        restored.start_again();
        assert!(restored.revision >= first.revision);

        // The next opening may be in the same second, and continues behind the last one.
        let openings: Vec<Meta> = std::iter::repeat_with(|| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            let mut meta = DAY_ONE;
            meta.start_again();
            meta
        })
        .take(64)
        .collect();
        assert!(openings.windows(2).all(|two| two[0].revision < two[1].revision));
    }
}
