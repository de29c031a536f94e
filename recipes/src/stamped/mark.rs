//! [`CommitMark`]: the ephemeral node by which a transaction is recognized when its answer was lost; [`Marks`]: those of one
//! recipe value.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Done, Expect, Lifetime, Stat, Txn, Version};

use crate::mutant::mistake;

/// How many marks are kept while no transaction uses them.
const IDLE: usize = 8;

/// An ephemeral node. Its data is the number of the last transaction that was committed with it. Removed when dropped.
pub(super) struct CommitMark {
    session: Session,
    node: Done,
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
    idle: Mutex<Vec<CommitMark>>,
}

impl Marks {
    /// Marks in the directory at `dir`, with names that start so, for transactions that are described so in errors.
    pub(crate) fn new(dir: Path, name: &'static str, doing: &'static str) -> Self {
        Self { dir, name, doing, idle: Mutex::default() }
    }

    pub(super) fn doing(&self) -> &'static str {
        self.doing
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A mark of this session that no other transaction uses.
    pub(super) async fn take(&self, session: &Session) -> Result<CommitMark> {
        if let Some(mark) = self.idle_of(session) {
            return Ok(mark);
        }
        let name = session.unique(&self.dir.join(self.name)?)?;
        let node = session.create_sequential(&name, "0", Lifetime::Session).await?.required()?;
        let version = node.stat.map(|stat| stat.version);
        Ok(CommitMark { session: session.clone(), node, version, number: 0 })
    }

    fn idle_of(&self, session: &Session) -> Option<CommitMark> {
        let (mark, _old) = {
            let mut idle = self.idle();
            let (mut own, other): (Vec<CommitMark>, Vec<CommitMark>) =
                idle.drain(..).partition(|mark| mark.session.info().id == session.info().id);
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

    /// The transaction that is applied once however often it is sent: it changes the version of the mark that it expects. And
    /// its number, which the mark has then.
    pub(super) fn stamp(&mut self, txn: Txn) -> (Txn, Bytes) {
        self.number += 1;
        let number = Bytes::from(self.number.to_string());
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
        mistake!(TransactionMarkStays: return);
        self.session.abandon(&self.node);
    }
}
