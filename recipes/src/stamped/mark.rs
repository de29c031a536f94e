//! [`CommitMark`]: the node by which a transaction is recognized when its answer was lost; [`Marks`]: those of one recipe value.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::session::{NodeGuard, Session};
use synod_core::store::{Expect, Lifetime, OpResult, Stat, Txn, Version};

use crate::mutant::mistake;
use crate::stamped::date::date;

/// How many marks are kept while no transaction uses them.
const IDLE: usize = 8;

/// The start of the data of a mark with which no transaction is applied any more.
const VOID: &str = "void";

/// A node. Its data is the number of the last transaction that was committed with it, and the date of that. Removed when dropped.
pub(super) struct CommitMark {
    session: Session,
    node: OpResult,
    /// Removes a persistent node. An ephemeral one has none.
    guard: Option<NodeGuard>,
    /// `None` if the store did not return it.
    version: Option<Version>,
    /// The number of the last transaction that was sent with it.
    number: u64,
}

/// The marks of one recipe value that no transaction uses at the moment.
pub(crate) struct Marks {
    dir: Path,
    /// The start of the names of its marks.
    name: &'static str,
    /// What its transactions fail while doing.
    doing: &'static str,
    lifetime: Lifetime,
    idle: Mutex<Vec<CommitMark>>,
}

/// The most bytes that a name has.
const MAX_NAME: usize = 255;

/// Returns the path of a directory, if every name fits below it.
pub(crate) fn roomy(dir: Path) -> Result<Path> {
    let _longest = dir.join(&"x".repeat(MAX_NAME))?;
    Ok(dir)
}

impl Marks {
    /// Ephemeral marks in the directory at `dir`, with names that start so, for transactions that are described so in errors.
    pub(crate) fn new(dir: Path, name: &'static str, doing: &'static str) -> Self {
        Self { dir, name, doing, lifetime: Lifetime::Session, idle: Mutex::default() }
    }

    /// Marks that outlive their session, so that a transaction in doubt is settled in the next one. Those of a process that was
    /// killed stay, for [`remove_old_marks`](super::old_marks::remove_old_marks).
    pub(crate) fn lasting(dir: Path, name: &'static str, doing: &'static str) -> Self {
        Self { lifetime: Lifetime::Persistent, ..Self::new(dir, name, doing) }
    }

    pub(super) fn doing(&self) -> &'static str {
        self.doing
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// A mark for this session that no other transaction uses.
    pub(super) async fn take(&self, session: &Session) -> Result<CommitMark> {
        match self.idle_for(session) {
            Some(mark) => mark.moved_to(session),
            None => self.create(session).await,
        }
    }

    /// A new mark for this session.
    pub(super) async fn create(&self, session: &Session) -> Result<CommitMark> {
        let name = session.unique(&self.dir.join(self.name)?)?;
        let made = session.create_sequential(&name, dated("0"), self.lifetime).await?;
        let node = made.required()?;
        let version = node.stat.map(|stat| stat.version);
        let guard = match self.lifetime {
            Lifetime::Session => None,
            _ => Some(session.guard(&node)?),
        };
        Ok(CommitMark { session: session.clone(), node, guard, version, number: 0 })
    }

    fn idle_for(&self, session: &Session) -> Option<CommitMark> {
        let (mark, _old) = {
            let mut idle = self.idle();
            let (mut own, other): (Vec<CommitMark>, Vec<CommitMark>) =
                idle.drain(..).partition(|mark| mark.serves(session));
            let mark = own.pop();
            *idle = own;
            // Those of a lost session are dropped when the lock is free.
            (mark, other)
        };
        mark
    }

    /// Takes back a mark. No request that was sent with it is on its way.
    pub(super) fn give_back(&self, mark: CommitMark) {
        let mut idle = self.idle();
        if idle.len() < IDLE {
            idle.push(mark);
            return;
        }
        drop(idle);
        drop(mark);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<CommitMark>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CommitMark {
    pub(super) fn path(&self) -> &Path {
        &self.node.path
    }

    fn is_of(&self, session: &Session) -> bool {
        self.session.info().id == session.info().id
    }

    /// Returns true if it is there for as long as this session lives.
    fn serves(&self, session: &Session) -> bool {
        self.guard.is_some() || self.is_of(session)
    }

    /// The same mark, which is removed when this session is closed.
    fn moved_to(mut self, session: &Session) -> Result<Self> {
        if !self.is_of(session) {
            let guard = session.guard(&self.node)?;
            self.guard.replace(guard).into_iter().for_each(NodeGuard::leave);
            self.session = session.clone();
        }
        Ok(self)
    }

    /// The transaction that is applied once however often it is sent: it changes the version of the mark that it expects. And
    /// the data that the mark has then.
    pub(super) fn stamp(&mut self, txn: Txn) -> (Txn, Bytes) {
        self.number += 1;
        let number = dated(&self.number.to_string());
        let expect = self.version.map_or(Expect::Any, Expect::Version);
        let Txn { ops, .. } = Txn::new().set(self.path(), number.clone(), expect);
        let mut stamped = txn;
        stamped.ops.splice(..0, ops);
        (stamped, number)
    }

    /// Records what a transaction made of the mark; without it the mark is not used again.
    pub(super) fn learn(mut self, stat: Option<Stat>) -> Option<Self> {
        self.version = Some(stat?.version);
        Some(self)
    }
}

impl Drop for CommitMark {
    fn drop(&mut self) {
        let guard = self.guard.take();
        mistake!(TransactionMarkStays: return guard.into_iter().for_each(NodeGuard::leave));
        if guard.is_none() {
            self.session.remove_in_background(&self.node);
        }
    }
}

/// The data of a mark with which no transaction is applied any more.
pub(super) fn void() -> Bytes {
    dated(VOID)
}

/// Returns true if a mark has such data.
pub(super) fn is_void(data: &[u8]) -> bool {
    data.starts_with(VOID.as_bytes())
}

/// The date at which a mark was written last, by the clock of its process.
pub(super) fn date_of(data: &[u8]) -> Option<Duration> {
    let (_state, millis) = str::from_utf8(data).ok()?.split_once(' ')?;
    millis.parse().ok().map(Duration::from_millis)
}

/// A state of a mark with the date of now.
fn dated(state: &str) -> Bytes {
    format!("{state} {}", date().as_millis()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_a_mark_says_when_it_was_written() {
        for data in [dated("0"), dated("17"), void()] {
            let written = date_of(&data).expect("it has a date");
            let age = date().checked_sub(written);
            assert!(age.is_some_and(|age| age < Duration::from_secs(60)), "{data:?}");
            assert_eq!(is_void(&data), data == void());
        }
        for other in ["", "17", "void", "17 ", "17 yesterday"] {
            assert_eq!(date_of(other.as_bytes()), None, "{other}");
        }
    }
}
