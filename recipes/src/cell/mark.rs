//! [`Mark`]: the node by which a writer finds out what it wrote.

use bytes::Bytes;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{
    Commit, Expect, Lifetime, Node, OpResult, Outcome, Query, RejectReason, Stat, Txn, Version,
    View,
};

use crate::mutant::mistake;

/// What a change of a cell fails while doing.
pub(super) const DOING: &str = "changing a value";

/// The start of the name of a mark.
const NAME: &str = "writer-";

/// The ephemeral node of a writer below its cell. Its data is the number of the last write. Removed when dropped.
pub(super) struct Mark {
    session: Session,
    node: OpResult,
    /// `None` if the store did not return it.
    version: Option<Version>,
    /// The number of the last write that was tried.
    writes: u64,
}

/// A value, and the version of the node that has it.
#[derive(Clone, Debug)]
pub(crate) struct CellValue {
    pub(crate) data: Bytes,
    pub(crate) stat: Stat,
}

/// What a write starts from.
pub(super) enum Basis {
    Present(CellValue),
    /// There is no node, as seen in this session.
    Missing(Session),
}

/// Identifies a basis: no two that differ have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BasisId(Option<Stat>);

impl Mark {
    /// A mark below the cell, whose node exists; and what a look shows with the mark in place.
    ///
    /// `None` if there is no node.
    pub(super) async fn make(
        session: &Session,
        cell: &Path,
        look: Query,
    ) -> Result<Option<(Self, Option<View>)>> {
        let name = session.unique(&cell.join(NAME)?)?;
        let txn = Txn::new()
            .check(cell, Expect::Any)
            .create_sequential(name, "0", Lifetime::Session)
            .look(look);
        match session.commit(txn).await? {
            Outcome::Rejected(no) if no.index == 0 => Ok(None),
            outcome => {
                let mut commit = outcome.required()?;
                let look = commit.look.take();
                Ok(Some((Self::of(session, &mut commit)?, look)))
            }
        }
    }

    /// Creates the cell with this value, and a mark below it. `None` if there is something already.
    pub(super) async fn found(
        session: &Session,
        cell: &Path,
        data: Bytes,
    ) -> Result<Option<(Self, Option<CellValue>)>> {
        let name = session.unique(&cell.join(NAME)?)?;
        let txn = Txn::new().create(cell, data.clone(), Lifetime::Persistent).create_sequential(
            name,
            "0",
            Lifetime::Session,
        );
        mistake!(CreatesWithoutMark: let txn = {
            Txn::new().create(cell, data.clone(), Lifetime::Persistent)
        });
        match session.commit(txn).await? {
            Outcome::Rejected(no) if no.index == 0 && no.reason == RejectReason::Exists => Ok(None),
            outcome => {
                let mut commit = outcome.required()?;
                let stat = commit.results.first().and_then(|done| done.stat);
                let value = stat.map(|stat| CellValue { data, stat });
                Ok(Some((Self::of(session, &mut commit)?, value)))
            }
        }
    }

    /// The mark that the last operation of a transaction created.
    fn of(session: &Session, commit: &mut Commit) -> Result<Self> {
        let node = commit.results.pop().ok_or_else(|| {
            Error::new(ErrorKind::Backend, DOING)
                .because("the store did not report what it created")
                .with_unknown_effect()
        })?;
        let version = node.stat.map(|stat| stat.version);
        Ok(Self { session: session.clone(), node, version, writes: 0 })
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    /// The transaction that replaces a value by `data`, with its number in the mark.
    pub(super) fn txn(&mut self, cell: &Path, from: &Stat, data: &Bytes) -> (Txn, Bytes) {
        self.writes += 1;
        let number = Bytes::from(self.writes.to_string());
        let mark = self.version.map_or(Expect::Any, Expect::Version);
        let txn = Txn::new().set(&self.node.path, number.clone(), mark).set(
            cell,
            data.clone(),
            Expect::Version(from.version),
        );
        mistake!(WritesWithoutMark: let txn = {
            Txn::new().set(cell, data.clone(), Expect::Version(from.version))
        });
        (txn, number)
    }

    /// Reads the mark. Returns its data; `None` if it is gone.
    pub(super) async fn read(&mut self) -> Result<Option<Bytes>> {
        let view = self.session.read(Query::node(&self.node.path)).await?;
        let node = view.into_node();
        self.version = node.as_ref().and_then(|node| node.stat).map(|stat| stat.version);
        Ok(node.map(|node| node.data))
    }

    /// Records what a write made of the mark.
    pub(super) fn learn(&mut self, stat: Option<Stat>) {
        self.version = stat.map(|stat| stat.version);
    }

    /// Whether its version is known.
    pub(super) fn is_known(&self) -> bool {
        self.version.is_some()
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        mistake!(MarkStays: return);
        self.session.remove_in_background(&self.node);
    }
}

/// The error of a preparation, whose effect on the value is certainly none.
pub(super) fn harmless(error: Error) -> Error {
    if !error.has_unknown_effect() {
        return error;
    }
    let plain = Error::new(error.kind(), DOING);
    let plain = match error.path() {
        Some(path) => plain.at(path),
        None => plain,
    };
    plain.because("a request that comes before the write failed").caused_by(error)
}

impl CellValue {
    pub(super) fn of(node: Node) -> Option<Self> {
        Some(Self { stat: node.stat?, data: node.data })
    }
}

impl Basis {
    pub(super) fn value(&self) -> Option<&CellValue> {
        match self {
            Self::Present(value) => Some(value),
            Self::Missing(_) => None,
        }
    }

    pub(super) fn id(&self) -> BasisId {
        match self {
            Self::Present(value) => BasisId(Some(value.stat)),
            Self::Missing(_) => BasisId(None),
        }
    }
}
