//! [`LocalCopy`]: a value of the store in the memory of a client; [`Record`]: the order in which
//! reads and writes replace it.

use std::sync::Arc;

use synod_core::error::Error;
use synod_core::store::{Revision, Stat};

use crate::mutant::mistake;

/// A value of the store in the memory of this process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LocalCopy<T> {
    /// The last value that could be read.
    pub value: T,
    /// The incarnation and the version of the node that held the value.
    pub stat: Stat,
    /// The relation of the copy to the store, as far as this client knows.
    pub state: CopyState,
}

/// The relation of a [`LocalCopy`] to the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CopyState {
    /// The copy is the last value that the store reported, and the store will report a later one.
    Current,
    /// The store may have another value, and cannot report it: the session is not certain, or is
    /// lost.
    Stale,
    /// The node was removed.
    Removed,
    /// The stored data cannot be decoded, or the store rejects the read.
    Unreadable(Arc<Error>),
}

impl<T> LocalCopy<T> {
    /// Returns `true` if this is the last value that the store reported: its state is
    /// [`CopyState::Current`].
    pub fn is_current(&self) -> bool {
        matches!(self.state, CopyState::Current)
    }
}

/// The result of a read.
#[derive(Debug)]
pub(super) enum FoundValue<T> {
    Value(T, Stat),
    /// The data of this version cannot be decoded.
    Unreadable(Error, Stat),
    Nothing,
}

/// A copy, and the data that orders its changes: the answers to reads and to writes of this client
/// may overtake each other.
///
/// A copy is never replaced by an older one: revisions order all writes, including the writes to a
/// node that was removed and created again, whose versions start again.
#[derive(Debug)]
pub(super) struct Record<T> {
    pub(super) copy: LocalCopy<T>,
    /// The number of recorded answers to writes of this client.
    writes: u64,
    /// The revision of data that cannot be decoded and is newer than the copy.
    unreadable: Option<Revision>,
}

/// The effect of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Learned {
    /// True if the copy was replaced.
    pub(super) is_news: bool,
    /// True if the store must be read again.
    pub(super) read_again: bool,
}

const KNOWN: Learned = Learned { is_news: false, read_again: false };
const NEWS: Learned = Learned { is_news: true, read_again: false };
const IN_DOUBT: Learned = Learned { is_news: false, read_again: true };

impl<T> Record<T> {
    pub(super) fn new(value: T, stat: Stat) -> Self {
        let copy = LocalCopy { value, stat, state: CopyState::Current };
        Self { copy, writes: 0, unreadable: None }
    }

    /// Returns the number to pass to [`Self::read`] for a read that begins now.
    pub(super) fn writes(&self) -> u64 {
        self.writes
    }

    /// Records the result of a read; `writes` is the number of recorded writes when the read began.
    pub(super) fn read(&mut self, found: FoundValue<T>, writes: u64) -> Learned {
        let modified = match &found {
            FoundValue::Value(_, stat) | FoundValue::Unreadable(_, stat) => Some(stat.modified),
            FoundValue::Nothing => None,
        };
        let overtaken = writes != self.writes && modified.is_none_or(|at| at < self.newest());
        mistake!(OvertakenReadCounts: let overtaken = false);
        if overtaken {
            return IN_DOUBT;
        }
        match found {
            FoundValue::Nothing if matches!(self.copy.state, CopyState::Removed) => KNOWN,
            FoundValue::Nothing => self.set_state(CopyState::Removed),
            FoundValue::Unreadable(_, stat) if self.unreadable == Some(stat.modified) => KNOWN,
            FoundValue::Unreadable(error, stat) => {
                self.unreadable = Some(stat.modified);
                self.set_state(CopyState::Unreadable(Arc::new(error)))
            }
            FoundValue::Value(value, stat) => self.replace(value, stat),
        }
    }

    fn replace(&mut self, value: T, stat: Stat) -> Learned {
        let is_newer = is_newer(&stat, &self.copy.stat);
        self.unreadable = None;
        if is_newer {
            self.copy = LocalCopy { value, stat, state: CopyState::Current };
            return NEWS;
        }
        if self.copy.is_current() {
            return KNOWN;
        }
        self.set_state(CopyState::Current)
    }

    /// Records the value after an answered write of this client.
    pub(super) fn written(&mut self, value: T, stat: Stat) -> Learned {
        self.writes += 1;
        if !is_newer(&stat, &self.copy.stat) {
            return KNOWN;
        }
        (self.copy.value, self.copy.stat) = (value, stat);
        match self.copy.state {
            // The node may have been removed before this write, or after it.
            CopyState::Removed => {
                let _stale = self.stale();
                Learned { is_news: true, read_again: true }
            }
            CopyState::Unreadable(_) if self.unreadable.is_none_or(|it| it < stat.modified) => {
                self.unreadable = None;
                self.set_state(CopyState::Current)
            }
            _ => NEWS,
        }
    }

    /// Records an answer to a write of this client that does not show the value of the node.
    pub(super) fn written_unseen(&mut self) -> Learned {
        self.writes += 1;
        self.stale()
    }

    /// Records that the store could not be read.
    pub(super) fn refused(&mut self, reason: &Error) -> Learned {
        let is_known = self.unreadable.take().is_none();
        match &self.copy.state {
            CopyState::Unreadable(last) if is_known && last.kind() == reason.kind() => {
                return KNOWN;
            }
            _ => {}
        }
        self.set_state(CopyState::Unreadable(Arc::new(reason.clone())))
    }

    /// Records that changes may be missed from now on.
    pub(super) fn stale(&mut self) -> Learned {
        if matches!(self.copy.state, CopyState::Stale) {
            return KNOWN;
        }
        self.unreadable = None;
        self.set_state(CopyState::Stale)
    }

    fn set_state(&mut self, state: CopyState) -> Learned {
        mistake!(CopyIsNeverStale: let state = CopyState::Current);
        self.copy.state = state;
        NEWS
    }

    /// The revision of the newest known version, readable or not.
    fn newest(&self) -> Revision {
        self.unreadable.map_or(self.copy.stat.modified, |it| it.max(self.copy.stat.modified))
    }
}

/// Returns `true` if a version of the node was written later than another one, perhaps of an
/// earlier node.
fn is_newer(stat: &Stat, than: &Stat) -> bool {
    let is_newer = stat.modified > than.modified;
    mistake!(NewerByVersion: let is_newer = stat.version.get() > than.version.get());
    is_newer
}

#[cfg(test)]
mod tests {
    use synod_core::error::ErrorKind;
    use synod_core::store::Version;

    use super::*;

    fn stat(created: u64, modified: u64, version: u64) -> Stat {
        let [created, modified] = [created, modified].map(Revision::new);
        Stat::new(created, modified, Version::new(version), None)
    }

    fn record() -> Record<u32> {
        Record::new(1, stat(1, 10, 3))
    }

    fn corrupt() -> Error {
        Error::new(ErrorKind::Corrupt, "reading")
    }

    #[test]
    fn a_version_is_newer_by_its_revision_and_not_by_its_number() {
        // ZooKeeper's versions wrap from 2^31 - 1 to a negative number.
        for number in [0, 2, 3, 4, u64::MAX, u64::from(u32::MAX)] {
            let mut record = record();
            assert_eq!(record.read(FoundValue::Value(2, stat(11, 11, number)), 0), NEWS);
            assert_eq!((record.copy.value, record.copy.stat.version.get()), (2, number));
        }
    }

    #[test]
    fn an_older_value_is_not_taken_whatever_reports_it() {
        let mut record = record();
        assert_eq!(record.read(FoundValue::Value(7, stat(1, 9, 2)), 0), KNOWN);
        assert_eq!(record.written(7, stat(1, 9, 2)), KNOWN);
        assert_eq!(record.read(FoundValue::Value(1, stat(1, 10, 3)), 1), KNOWN);
        assert_eq!((record.copy.value, record.copy.is_current()), (1, true));
    }

    #[test]
    fn a_read_that_a_write_overtook_is_repeated_unless_it_is_newer() {
        let mut record = record();
        let before = record.writes();
        assert_eq!(record.written(2, stat(1, 20, 4)), NEWS);
        assert_eq!(record.read(FoundValue::Value(1, stat(1, 10, 3)), before), IN_DOUBT);
        assert_eq!(record.read(FoundValue::Nothing, before), IN_DOUBT);
        assert_eq!(
            record.read(FoundValue::Unreadable(corrupt(), stat(1, 15, 4)), before),
            IN_DOUBT
        );
        assert_eq!((record.copy.value, record.copy.is_current()), (2, true));
        assert_eq!(record.read(FoundValue::Value(3, stat(1, 30, 5)), before), NEWS);
        assert_eq!(record.copy.value, 3);
        // Some servers do not report the stat of a written node.
        let before = record.writes();
        assert_eq!(record.written_unseen(), NEWS);
        assert_eq!(record.read(FoundValue::Nothing, before), IN_DOUBT);
        assert!(matches!(record.copy.state, CopyState::Stale));
    }

    #[test]
    fn a_removed_node_leaves_the_value_until_there_is_another_one() {
        let mut record = record();
        assert_eq!(record.read(FoundValue::Nothing, 0), NEWS);
        assert!(matches!(record.copy.state, CopyState::Removed));
        // A write of this client may have been before the removal, or after it.
        let learned = record.written(2, stat(20, 20, 0));
        assert_eq!(learned, Learned { is_news: true, read_again: true });
        assert!(matches!(record.copy, LocalCopy { value: 2, state: CopyState::Stale, .. }));
        assert_eq!(record.read(FoundValue::Nothing, record.writes()), NEWS);
        assert!(matches!(record.copy.state, CopyState::Removed));
        assert_eq!(record.read(FoundValue::Value(3, stat(30, 30, 0)), record.writes()), NEWS);
        assert!(record.copy.is_current());
    }

    #[test]
    fn bytes_that_are_no_value_are_news_once_and_end_with_a_value() {
        let mut record = record();
        assert_eq!(record.read(FoundValue::Unreadable(corrupt(), stat(1, 20, 4)), 0), NEWS);
        assert_eq!(record.read(FoundValue::Unreadable(corrupt(), stat(1, 20, 4)), 0), KNOWN);
        assert!(matches!(record.copy, LocalCopy { value: 1, state: CopyState::Unreadable(_), .. }));
        assert_eq!(record.read(FoundValue::Unreadable(corrupt(), stat(1, 21, 5)), 0), NEWS);
        // A write before the unreadable data, and a write after it.
        assert_eq!(record.written(2, stat(1, 19, 3)), NEWS);
        assert!(matches!(record.copy, LocalCopy { value: 2, state: CopyState::Unreadable(_), .. }));
        assert_eq!(record.written(3, stat(1, 22, 6)), NEWS);
        assert!(matches!(record.copy, LocalCopy { value: 3, state: CopyState::Current, .. }));
    }

    #[test]
    fn a_stale_copy_is_current_when_it_was_read_again() {
        let mut record = record();
        assert_eq!((record.stale(), record.stale()), (NEWS, KNOWN));
        assert_eq!(record.written(2, stat(1, 20, 4)), NEWS, "and it is still stale");
        assert!(matches!(record.copy, LocalCopy { value: 2, state: CopyState::Stale, .. }));
        assert_eq!(record.read(FoundValue::Value(2, stat(1, 20, 4)), 1), NEWS);
        assert!(record.copy.is_current());
    }
}
