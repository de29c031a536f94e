//! [`Writing`]: one transaction of the database, in the turn, in which jobs write.

use std::time::Duration;

use rusqlite::Connection;
use synod_core::path::Path;
use synod_core::store::{
    Commit, Kind, Lifetime, Op, OpResult, Outcome, Query, RejectReason, Rejected, Revision,
    Sequence, SessionId, Stat, TryFacts as _, Txn, View, try_judge,
};

use crate::changes;
use crate::fault::Fault;
use crate::filter::Wakes;
use crate::machine::Machine;
use crate::meta::Meta;
use crate::place::Place;
use crate::query::answer;
use crate::seat_id::SeatId;
use crate::sessions::{self, NewSession, Reason};
use crate::tree::{Lease, NewNode, Tree};

/// The least number of digits that a sequential name ends in, as on ZooKeeper.
const DIGITS: usize = 10;

/// Work that follows a commit.
pub(crate) type After = Box<dyn FnOnce(&Place) + Send>;

/// A transaction of the database.
pub(crate) struct Writing<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) meta: Meta,
    pub(crate) machine: &'a Machine,
    /// Called after the transaction was committed. Dropped if it is not.
    pub(crate) after: Vec<After>,
    /// The seats to wake after the commit.
    pub(crate) wakes: Wakes,
}

/// The answer to a request of a session that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionOver;

impl<'a> Writing<'a> {
    pub(crate) fn new(db: &'a Connection, meta: Meta, machine: &'a Machine) -> Self {
        Self { db, meta, machine, after: Vec::new(), wakes: Wakes::default() }
    }

    /// Opens a session. Its id is a revision, so it never comes again.
    pub(crate) fn open(
        &mut self,
        seat: SeatId,
        ttl: Duration,
        lingers: bool,
    ) -> Result<SessionId, Fault> {
        let id = SessionId::new(self.meta.next()?.get());
        let ttl = milliseconds(ttl);
        sessions::add(self.db, id, NewSession { seat, ttl, lingers })?;
        Ok(id)
    }

    /// Ends the sessions of a seat whose lock was granted. Those that linger end later.
    pub(crate) fn end_seat(&mut self, seat: SeatId) -> Result<(), Fault> {
        for session in sessions::ending_with(self.db, seat)? {
            self.end(session, Reason::ProcessEnded)?;
        }
        sessions::start_lingering(self.db, seat, self.machine)
    }

    /// Ends a session: removes its ephemeral nodes at one revision. Ending it twice is no error.
    pub(crate) fn end(&mut self, session: SessionId, reason: Reason) -> Result<(), Fault> {
        let Some(seat) = sessions::remove(self.db, session, reason)? else { return Ok(()) };
        self.wakes.ended(seat);
        let at = self.meta.next()?;
        for path in Tree(self.db).owned_by(session)? {
            Tree(self.db).remove(&path)?;
            self.changed(at, &path, Kind::Deleted)?;
        }
        changes::add_end(self.db, at, session)
    }

    /// Removes a node whose time to live has passed, unless it was written since `modified`.
    pub(crate) fn expire_node(&mut self, path: &Path, modified: u64) -> Result<(), Fault> {
        let tree = Tree(self.db);
        let unchanged = tree.stat(path)?.is_some_and(|stat| stat.modified.get() == modified);
        if unchanged && !tree.occupied(path, &|_| false)? {
            let at = self.meta.next()?;
            tree.remove(path)?;
            self.changed(at, path, Kind::Deleted)?;
        }
        Ok(())
    }

    /// Applies a transaction that was validated.
    pub(crate) fn commit(
        &mut self,
        session: SessionId,
        txn: &Txn,
    ) -> Result<Result<Outcome, SessionOver>, Fault> {
        if !sessions::lives(self.db, session)? {
            return Ok(Err(SessionOver));
        }
        if let Err(rejected) = try_judge(&txn.ops, &Tree(self.db))? {
            return Ok(Ok(self.rejected(rejected, txn)?));
        }
        let mut meta = self.meta;
        let at = meta.next()?;
        for (index, op) in txn.ops.iter().enumerate().filter(|(_, op)| op.is_sequential()) {
            if Tree(self.db).contains(&numbered(op.path(), at.get())?)? {
                let taken = Rejected::new(index, op.path().clone(), RejectReason::Exists);
                return Ok(Ok(self.rejected(taken, txn)?));
            }
        }
        if txn.ops.iter().any(changes_something) {
            self.meta = meta;
        }
        let mut results = Vec::with_capacity(txn.ops.len());
        let mut own = None;
        for op in &txn.ops {
            results.push(self.apply(session, op, &mut own)?);
        }
        let look = self.look(txn.look_of_commit(), own.as_ref())?;
        let revision = Revision::new(self.meta.revision);
        Ok(Ok(Outcome::Committed(Commit::new(Some(revision), results, look))))
    }

    /// Applies an operation at the present revision.
    fn apply(
        &mut self,
        session: SessionId,
        op: &Op,
        own: &mut Option<(Path, Sequence)>,
    ) -> Result<OpResult, Fault> {
        let at = Revision::new(self.meta.revision);
        let tree = Tree(self.db);
        let (path, stat): (Path, Option<Stat>) = match op {
            Op::Check { path, .. } | Op::Create { path, lifetime: Lifetime::Container, .. } => {
                (path.clone(), None)
            }
            Op::Create { path, data, lifetime, sequential } => {
                let sequence = sequential.then(|| Sequence::new(at.get()));
                let path = if *sequential { numbered(path, at.get())? } else { path.clone() };
                let owner = (*lifetime == Lifetime::Session).then_some(session);
                let lease = self.lease(*lifetime);
                let new = NewNode { path: &path, data, sequence, owner, lease };
                let stat = tree.create(&new, at)?;
                self.changed(at, &path, Kind::Created)?;
                *own = sequence.map(|sequence| (path.clone(), sequence)).or(own.take());
                (path, Some(stat))
            }
            Op::Set { path, data, .. } => {
                let stat = tree.set(path, data, at, (self.machine.now(), self.machine.clock()))?;
                self.changed(at, path, Kind::Updated)?;
                (path.clone(), Some(stat))
            }
            Op::Delete { path, .. } => {
                tree.remove(path)?;
                self.changed(at, path, Kind::Deleted)?;
                (path.clone(), None)
            }
        };
        let mut result = OpResult::new(path);
        result.stat = stat;
        result.sequence = op.is_sequential().then(|| Sequence::new(at.get()));
        Ok(result)
    }

    /// Records a change, for all observers and for those that must be woken.
    fn changed(&mut self, at: Revision, path: &Path, kind: Kind) -> Result<(), Fault> {
        self.wakes.changed(path);
        changes::add(self.db, at, path, kind)
    }

    fn lease(&self, lifetime: Lifetime) -> Option<Lease> {
        let Lifetime::Ttl(ttl) = lifetime else { return None };
        let ttl = milliseconds(ttl);
        let due = self.machine.now() + ttl;
        Some(Lease { ttl, due, clock: self.machine.clock().to_owned() })
    }

    fn rejected(&self, rejected: Rejected, txn: &Txn) -> Result<Outcome, Fault> {
        Ok(Outcome::Rejected(rejected.with_look(self.look(txn.look.as_ref(), None)?)))
    }

    fn look(
        &self,
        query: Option<&Query>,
        own: Option<&(Path, Sequence)>,
    ) -> Result<Option<View>, Fault> {
        query.map(|query| answer(self.db, query, &self.meta, own)).transpose()
    }
}

/// Returns `true` if the transaction may write a node that outlives its session: the commit must
/// then be on the disk before it is answered. Call it in the turn.
pub(crate) fn outlives_sessions(db: &Connection, txn: &Txn) -> Result<bool, Fault> {
    for op in &txn.ops {
        let outlives = match op {
            Op::Check { .. } => false,
            Op::Create { lifetime, .. } => {
                matches!(lifetime, Lifetime::Persistent | Lifetime::Ttl(_))
            }
            Op::Set { path, .. } | Op::Delete { path, .. } => {
                Tree(db).stat(path)?.is_none_or(|stat| stat.owner.is_none())
            }
        };
        if outlives {
            return Ok(true);
        }
    }
    Ok(false)
}

fn changes_something(op: &Op) -> bool {
    op.is_write() && !matches!(op, Op::Create { lifetime: Lifetime::Container, .. })
}

/// The name of a sequential node: the caller's, and the revision.
fn numbered(path: &Path, revision: u64) -> Result<Path, Fault> {
    Ok(Path::new(&format!("{}{revision:0DIGITS$}", path.as_str()))?)
}

/// A duration in milliseconds, rounded up.
fn milliseconds(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
