//! [`WriteId`]: the node whose number identifies the last committed transaction; [`WriteIds`]: the
//! idle ones of a recipe.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::session::{NodeGuard, Session};
use synod_core::store::{Commit, Expect, Lifetime, Node, OpResult, Query, Stat, Txn, Version};

use crate::mutant::mistake;
use crate::support::time::date;

/// The maximum number of write ids that are kept while no transaction uses them.
const MAX_IDLE: usize = 8;

/// The data of a write id before the first transaction.
const NEW: &str = "0";

/// The prefix of the data of a write id with which no transaction can be applied.
const VOID: &str = "void";

/// A node whose data is the number of the last transaction that was committed with it.
///
/// The data of a persistent write id also has the date of the last write. The node is removed when
/// this value is dropped.
pub(crate) struct WriteId {
    session: Session,
    node: OpResult,
    /// Removes a persistent node, which does not end with its session.
    guard: Option<NodeGuard>,
    /// `Some` for a persistent node: this client does not remove it as an old one.
    in_use: Option<InUse>,
    /// `None` if the store did not report it.
    version: Option<Version>,
    /// The number of the last transaction that was sent.
    number: u64,
}

/// The effect of a transaction, as its write id shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteVerdict {
    /// The transaction was applied, by the write that has this stat.
    Applied(Option<Stat>),
    /// The transaction was not applied, and never will be.
    Void,
    /// The transaction was not applied, but may still be as long as the write id has this stat.
    Open(Option<Stat>),
    /// The write id is gone, so the transaction can no longer be applied. It may have been applied
    /// before.
    Gone,
}

impl WriteId {
    /// Adds the create of an ephemeral write id at the end of a transaction. The name of the node
    /// begins with the last name of `path`.
    pub(crate) fn create_with(txn: Txn, session: &Session, path: &Path) -> Result<Txn> {
        Ok(txn.create_sequential(session.unique(path)?, NEW, Lifetime::Session))
    }

    /// Returns the write id that the last operation of a transaction created.
    pub(crate) fn created_by(
        commit: &mut Commit,
        session: &Session,
        doing: &'static str,
    ) -> Result<Self> {
        let node = commit.results.pop().ok_or_else(|| {
            Error::new(ErrorKind::Backend, doing)
                .because("the store did not report what it created")
                .with_unknown_effect()
        })?;
        Ok(Self::of(session, node))
    }

    fn of(session: &Session, node: OpResult) -> Self {
        let version = node.stat.map(|stat| stat.version);
        Self { session: session.clone(), node, guard: None, in_use: None, version, number: 0 }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.node.path
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Returns a transaction that is applied at most once, however often it is sent: its first
    /// operation writes this node. Also returns the new data of the node.
    pub(crate) fn stamp(&mut self, mut txn: Txn) -> (Txn, Bytes) {
        self.number += 1;
        let number = match self.in_use {
            Some(_) => dated(&self.number.to_string()),
            None => self.number.to_string().into(),
        };
        let expect = self.version.map_or(Expect::Any, Expect::Version);
        let Txn { ops, .. } = Txn::new().set(self.path(), number.clone(), expect);
        txn.ops.splice(..0, ops);
        (txn, number)
    }

    /// Records the stat of the node after a transaction.
    pub(crate) fn record_write(&mut self, stat: Option<Stat>) {
        self.version = stat.map(|stat| stat.version);
    }

    /// Returns `true` if the version of the node is known.
    pub(crate) fn is_known(&self) -> bool {
        self.version.is_some()
    }

    /// Reads the node in its session.
    pub(crate) async fn read(&mut self) -> Result<Option<Node>> {
        let node = self.session.read(Query::node(self.path())).await?.into_node();
        self.record_write(node.as_ref().and_then(|node| node.stat));
        Ok(node)
    }

    /// The data of this node after which no transaction can be applied with it.
    pub(super) fn void(&self) -> Bytes {
        if self.in_use.is_some() { dated(VOID) } else { VOID.into() }
    }

    fn is_of(&self, session: &Session) -> bool {
        self.session.info().id == session.info().id
    }

    /// Returns `true` if the node exists as long as this session lives.
    fn serves(&self, session: &Session) -> bool {
        self.in_use.is_some() || self.is_of(session)
    }

    /// Returns this write id, which is removed when `session` is closed.
    fn moved_to(mut self, session: &Session) -> Result<Self> {
        if !self.is_of(session) {
            let guard = session.guard(&self.node)?;
            self.guard.replace(guard).into_iter().for_each(NodeGuard::leave);
            self.session = session.clone();
        }
        Ok(self)
    }
}

impl Drop for WriteId {
    fn drop(&mut self) {
        let guard = self.guard.take();
        mistake!(TransactionMarkStays: return guard.into_iter().for_each(NodeGuard::leave));
        if guard.is_none() {
            mistake!(MarkStays: return);
            self.session.remove_in_background(&self.node);
        }
    }
}

impl WriteVerdict {
    /// Determines from the node of a write id the effect of the transaction that sets it to
    /// `number`.
    pub(crate) fn of(node: Option<&Node>, number: &[u8]) -> Self {
        match node {
            None => Self::Gone,
            Some(node) if node.data == number => Self::Applied(node.stat),
            Some(node) if node.data.starts_with(VOID.as_bytes()) => Self::Void,
            Some(node) => Self::Open(node.stat),
        }
    }
}

/// The write ids of one recipe value that no transaction currently uses.
pub(crate) struct WriteIds {
    dir: Path,
    /// The start of their names.
    name: &'static str,
    /// The action that error messages name.
    doing: &'static str,
    lifetime: Lifetime,
    idle: Mutex<Vec<WriteId>>,
}

impl WriteIds {
    /// Ephemeral write ids in the directory at `dir`, with names that begin with `name`. Error
    /// messages name the action `doing`.
    pub(crate) fn new(dir: Path, name: &'static str, doing: &'static str) -> Self {
        Self { dir, name, doing, lifetime: Lifetime::Session, idle: Mutex::default() }
    }

    /// Write ids that outlive their session, so that the next session can resolve an unknown
    /// effect.
    ///
    /// The write ids of a killed process stay until
    /// [`remove_old_write_ids`](super::old_write_ids::remove_old_write_ids) removes them.
    pub(crate) fn persistent(dir: Path, name: &'static str, doing: &'static str) -> Self {
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

    /// Returns a write id for this session that no other transaction uses.
    pub(super) async fn take(&self, client: &Client, session: &Session) -> Result<WriteId> {
        match self.idle_for(session) {
            Some(id) => id.moved_to(session),
            None => self.create(client, session).await,
        }
    }

    /// Creates a write id for this session.
    pub(super) async fn create(&self, client: &Client, session: &Session) -> Result<WriteId> {
        let is_persistent = self.lifetime == Lifetime::Persistent;
        let data = if is_persistent { dated(NEW) } else { NEW.into() };
        let name = session.unique(&self.dir.join(self.name)?)?;
        let created = session.create_sequential(&name, data, self.lifetime).await?;
        let node = created.required()?;
        let mut id = WriteId::of(session, node);
        if is_persistent {
            id.guard = Some(session.guard(&id.node)?);
            id.in_use = Some(client.local::<WriteIdsInUse>().add(id.path()));
        }
        if !id.is_known() {
            // If the version were unknown, a transaction that is sent twice could be applied twice.
            id.read().await?;
        }
        Ok(id)
    }

    fn idle_for(&self, session: &Session) -> Option<WriteId> {
        let (id, _old) = {
            let mut idle = self.idle();
            let (mut own, other): (Vec<WriteId>, Vec<WriteId>) =
                idle.drain(..).partition(|id| id.serves(session));
            let id = own.pop();
            *idle = own;
            // The write ids of a lost session are dropped outside the lock.
            (id, other)
        };
        id
    }

    /// Takes back a write id that has no request in flight.
    pub(super) fn give_back(&self, id: WriteId) {
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE {
            idle.push(id);
            return;
        }
        drop(idle);
        drop(id);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<WriteId>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The persistent write ids that this client uses, or may use again.
///
/// The date in a write id is compared with a wall clock, which can be set to any date. The
/// transactions of this client that are still in doubt need their write ids nevertheless.
#[derive(Default)]
pub(super) struct WriteIdsInUse(Mutex<BTreeSet<Path>>);

/// A write id in use, until this value is dropped.
struct InUse {
    all: Arc<WriteIdsInUse>,
    path: Path,
}

impl WriteIdsInUse {
    fn add(self: Arc<Self>, path: &Path) -> InUse {
        self.lock().insert(path.clone());
        InUse { all: self, path: path.clone() }
    }

    pub(super) fn has(&self, path: &Path) -> bool {
        mistake!(OwnWriteIdIsOld: return false);
        self.lock().contains(path)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Path>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.all.lock().remove(&self.path);
    }
}

/// The error of a request that comes before a write. It has no effect on the nodes that the write
/// changes.
pub(crate) fn without_effect(error: Error, doing: &'static str) -> Error {
    if !error.has_unknown_effect() {
        return error;
    }
    let plain = Error::new(error.kind(), doing);
    let plain = match error.path() {
        Some(path) => plain.at(path),
        None => plain,
    };
    plain.because("a request that comes before the write failed").caused_by(error)
}

/// Returns the date of the last write of a persistent write id, by the clock of its process.
pub(super) fn date_of(data: &[u8]) -> Option<Duration> {
    let (_state, millis) = str::from_utf8(data).ok()?.split_once(' ')?;
    millis.parse().ok().map(Duration::from_millis)
}

/// Adds the current date to the state of a persistent write id.
fn dated(state: &str) -> Bytes {
    format!("{state} {}", date().as_millis()).into()
}

#[cfg(test)]
mod tests {
    use synod_core::store::Revision;

    use super::*;

    fn stat() -> Stat {
        Stat::new(Revision::new(3), Revision::new(7), Version::new(1), None)
    }

    fn verdict(data: impl Into<Bytes>, number: &[u8]) -> WriteVerdict {
        let path = Path::new("/ids/id").expect("it is one");
        WriteVerdict::of(Some(&Node::new(path).with(data.into(), stat())), number)
    }

    #[test]
    fn a_persistent_write_id_says_when_it_was_written() {
        for data in [dated(NEW), dated("17"), dated(VOID)] {
            let written = date_of(&data).expect("it has a date");
            let age = date().checked_sub(written);
            assert!(age.is_some_and(|age| age < Duration::from_secs(60)), "{data:?}");
        }
        for other in ["", "17", "void", "17 ", "17 yesterday"] {
            assert_eq!(date_of(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_write_id_decides_the_fate_of_its_transaction() {
        let (applied, open) =
            (WriteVerdict::Applied(Some(stat())), WriteVerdict::Open(Some(stat())));
        assert_eq!(
            (verdict("17", b"17"), WriteVerdict::of(None, b"17")),
            (applied, WriteVerdict::Gone)
        );
        for earlier in ["16", NEW, "17 1"] {
            assert_eq!(verdict(earlier, b"17"), open, "{earlier}");
        }
        assert_eq!(verdict(VOID, b"17"), WriteVerdict::Void);

        let number = dated("17");
        assert_eq!(verdict(number.clone(), &number), applied);
        assert_eq!(
            (verdict(dated(VOID), &number), verdict("17 1", &number)),
            (WriteVerdict::Void, open)
        );
    }
}
