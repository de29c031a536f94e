//! [`LocalCopy`]: what a client knows of a value that it follows; [`Record`]: how it learns.

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
    /// Which incarnation and version of the node held it.
    pub stat: Stat,
    /// Whether the store still has it, as far as this client knows.
    pub state: CopyState,
}

/// How a [`LocalCopy`] compares with the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CopyState {
    /// It is the last value that the store reported, and a later one will be reported.
    Current,
    /// The store may have another value, and cannot report it: the session is not certain, or is lost.
    Stale,
    /// The node was removed.
    Removed,
    /// The store has something that is no such value, or refuses to be read.
    Unreadable(Arc<Error>),
}

impl<T> LocalCopy<T> {
    /// Whether it is the last value that the store reported: its state is [`CopyState::Current`].
    pub fn is_current(&self) -> bool {
        matches!(self.state, CopyState::Current)
    }
}

/// What a read found.
#[derive(Debug)]
pub(super) enum Seen<T> {
    Value(T, Stat),
    /// Bytes that are no value, of this version.
    Unreadable(Error, Stat),
    Nothing,
}

/// A copy, and what is needed to learn in the right order: the answers of reads and of this client's own writes may
/// overtake each other.
///
/// A copy is never replaced by an older one: revisions order all writes, also those of a node that was removed and made
/// again, whose versions begin again.
#[derive(Debug)]
pub(super) struct Record<T> {
    pub(super) copy: LocalCopy<T>,
    /// How many answers of this client's writes were recorded.
    writes: u64,
    /// When the bytes were written that are no value, if they are newer than the copy.
    unreadable: Option<Revision>,
}

/// What is to be done when something was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Learned {
    /// Whether the copy is another one now.
    pub(super) is_news: bool,
    /// Whether the store must be read again.
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

    /// A number that a read is recorded with when it is answered.
    pub(super) fn writes(&self) -> u64 {
        self.writes
    }

    /// Records what a read found that began when so many writes were recorded.
    pub(super) fn read(&mut self, seen: Seen<T>, writes: u64) -> Learned {
        let found = match &seen {
            Seen::Value(_, stat) | Seen::Unreadable(_, stat) => Some(stat.modified),
            Seen::Nothing => None,
        };
        let overtaken = writes != self.writes && found.is_none_or(|found| found < self.newest());
        mistake!(OvertakenReadCounts: let overtaken = false);
        if overtaken {
            return IN_DOUBT;
        }
        match seen {
            Seen::Nothing if matches!(self.copy.state, CopyState::Removed) => KNOWN,
            Seen::Nothing => self.turn(CopyState::Removed),
            Seen::Unreadable(_, stat) if self.unreadable == Some(stat.modified) => KNOWN,
            Seen::Unreadable(error, stat) => {
                self.unreadable = Some(stat.modified);
                self.turn(CopyState::Unreadable(Arc::new(error)))
            }
            Seen::Value(value, stat) => self.replace(value, stat),
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
        self.turn(CopyState::Current)
    }

    /// Records the value after an answered write of this client.
    pub(super) fn written(&mut self, value: T, stat: Stat) -> Learned {
        self.writes += 1;
        if !is_newer(&stat, &self.copy.stat) {
            return KNOWN;
        }
        (self.copy.value, self.copy.stat) = (value, stat);
        match self.copy.state {
            // It may have been removed before this write, or after it.
            CopyState::Removed => {
                let _stale = self.stale();
                Learned { is_news: true, read_again: true }
            }
            CopyState::Unreadable(_) if self.unreadable.is_none_or(|it| it < stat.modified) => {
                self.unreadable = None;
                self.turn(CopyState::Current)
            }
            _ => NEWS,
        }
    }

    /// Records that a write of this client was answered, and not what the node has now.
    pub(super) fn written_unseen(&mut self) -> Learned {
        self.writes += 1;
        self.stale()
    }

    /// Records that the store could not be read.
    pub(super) fn refused(&mut self, why: &Error) -> Learned {
        let known = self.unreadable.take().is_none();
        match &self.copy.state {
            CopyState::Unreadable(last) if known && last.kind() == why.kind() => return KNOWN,
            _ => {}
        }
        self.turn(CopyState::Unreadable(Arc::new(why.clone())))
    }

    /// Records that changes may be missed from now on.
    pub(super) fn stale(&mut self) -> Learned {
        if matches!(self.copy.state, CopyState::Stale) {
            return KNOWN;
        }
        self.unreadable = None;
        self.turn(CopyState::Stale)
    }

    fn turn(&mut self, state: CopyState) -> Learned {
        mistake!(CopyIsNeverStale: let state = CopyState::Current);
        self.copy.state = state;
        NEWS
    }

    /// When the newest version was written that is known, readable or not.
    fn newest(&self) -> Revision {
        self.unreadable.map_or(self.copy.stat.modified, |it| it.max(self.copy.stat.modified))
    }
}

/// Whether a version of the node was written later than another one, perhaps of an earlier node.
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
        // ZooKeeper's versions end at 2^31 - 1, and go on with a negative number.
        for number in [0, 2, 3, 4, u64::MAX, u64::from(u32::MAX)] {
            let mut record = record();
            assert_eq!(record.read(Seen::Value(2, stat(11, 11, number)), 0), NEWS);
            assert_eq!((record.copy.value, record.copy.stat.version.get()), (2, number));
        }
    }

    #[test]
    fn an_older_value_is_not_taken_whatever_reports_it() {
        let mut record = record();
        assert_eq!(record.read(Seen::Value(7, stat(1, 9, 2)), 0), KNOWN);
        assert_eq!(record.written(7, stat(1, 9, 2)), KNOWN);
        assert_eq!(record.read(Seen::Value(1, stat(1, 10, 3)), 1), KNOWN);
        assert_eq!((record.copy.value, record.copy.is_current()), (1, true));
    }

    #[test]
    fn a_read_that_a_write_overtook_is_repeated_unless_it_is_newer() {
        let mut record = record();
        let before = record.writes();
        assert_eq!(record.written(2, stat(1, 20, 4)), NEWS);
        assert_eq!(record.read(Seen::Value(1, stat(1, 10, 3)), before), IN_DOUBT);
        assert_eq!(record.read(Seen::Nothing, before), IN_DOUBT);
        assert_eq!(record.read(Seen::Unreadable(corrupt(), stat(1, 15, 4)), before), IN_DOUBT);
        assert_eq!((record.copy.value, record.copy.is_current()), (2, true));
        assert_eq!(record.read(Seen::Value(3, stat(1, 30, 5)), before), NEWS);
        assert_eq!(record.copy.value, 3);
        // Some servers do not report what a write made.
        let before = record.writes();
        assert_eq!(record.written_unseen(), NEWS);
        assert_eq!(record.read(Seen::Nothing, before), IN_DOUBT);
        assert!(matches!(record.copy.state, CopyState::Stale));
    }

    #[test]
    fn a_removed_node_leaves_the_value_until_there_is_another_one() {
        let mut record = record();
        assert_eq!(record.read(Seen::Nothing, 0), NEWS);
        assert!(matches!(record.copy.state, CopyState::Removed));
        // A write of this client may have been before the removal, or after it.
        let learned = record.written(2, stat(20, 20, 0));
        assert_eq!(learned, Learned { is_news: true, read_again: true });
        assert!(matches!(record.copy, LocalCopy { value: 2, state: CopyState::Stale, .. }));
        assert_eq!(record.read(Seen::Nothing, record.writes()), NEWS);
        assert!(matches!(record.copy.state, CopyState::Removed));
        assert_eq!(record.read(Seen::Value(3, stat(30, 30, 0)), record.writes()), NEWS);
        assert!(record.copy.is_current());
    }

    #[test]
    fn bytes_that_are_no_value_are_news_once_and_end_with_a_value() {
        let mut record = record();
        assert_eq!(record.read(Seen::Unreadable(corrupt(), stat(1, 20, 4)), 0), NEWS);
        assert_eq!(record.read(Seen::Unreadable(corrupt(), stat(1, 20, 4)), 0), KNOWN);
        assert!(matches!(record.copy, LocalCopy { value: 1, state: CopyState::Unreadable(_), .. }));
        assert_eq!(record.read(Seen::Unreadable(corrupt(), stat(1, 21, 5)), 0), NEWS);
        // A write before those bytes, and one after them.
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
        assert_eq!(record.read(Seen::Value(2, stat(1, 20, 4)), 1), NEWS);
        assert!(record.copy.is_current());
    }
}
