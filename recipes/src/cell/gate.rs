//! [`Gate`]: the node by which a promoted change keeps the others out; [`Nodes`]: what a write of a cell depends on.

use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Expect, Lifetime, Node, Query, Txn, Version, View};

use crate::cell::mark::{CellValue, DOING};
use crate::cell::promotion::Lock;

/// A persistent node whose version every write without the lock expects. Its data is the name of the ticket of the change that
/// wrote to it last. That change keeps the others out as long as its ticket exists, so one whose session is lost does not.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    path: Path,
    version: Version,
    /// The ticket that it names, until that is known to be gone.
    pub(super) ticket: Option<Path>,
}

/// The nodes that a write of a cell depends on.
#[derive(Clone, Debug)]
pub(super) struct Nodes {
    pub(super) cell: Path,
    /// The directory of the tickets, and the gate, if changes of the cell are promoted.
    lock: Option<(Path, Path)>,
}

impl Nodes {
    pub(super) fn new(cell: &Path, lock: Option<&Lock>) -> Result<Self> {
        let Some(lock) = lock else { return Ok(Self { cell: cell.clone(), lock: None }) };
        let dir = lock.dir(cell)?;
        // Not in the directory, where a waiter would take it for one of the few nodes that it looks at.
        let gate = Path::new(&format!("{dir}-gate"))?;
        Ok(Self { cell: cell.clone(), lock: Some((dir, gate)) })
    }

    pub(super) fn query(&self) -> Query {
        Query::nodes(&self.cell, self.gate().cloned())
    }

    fn gate(&self) -> Option<&Path> {
        self.lock.as_ref().map(|(_dir, gate)| gate)
    }

    /// What a view shows of them.
    pub(super) fn seen(&self, view: View) -> (Option<CellValue>, Option<Gate>) {
        let (mut value, mut gate) = (None, None);
        for node in view.nodes {
            if node.path == self.cell {
                value = CellValue::of(node);
            } else if let Some((dir, _gate)) = self.lock.as_ref().filter(|it| it.1 == node.path) {
                gate = Gate::of(node, dir);
            }
        }
        (value, gate)
    }

    /// Whether there is to be a gate, and this is none.
    pub(super) fn lack(&self, gate: Option<&Gate>) -> bool {
        self.lock.is_some() && gate.is_none()
    }

    /// Makes the gate, if there is to be one, unless another client has made it. The next read shows whether it is there.
    pub(super) async fn make_gate(&self, session: &Session) -> Result<()> {
        let Some(gate) = self.gate() else { return Ok(()) };
        match session.commit(Txn::new().create(gate, "", Lifetime::Persistent)).await {
            Err(error)
                if !(error.has_unknown_effect() && error.kind() == ErrorKind::Unreachable) =>
            {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// The error of a gate that could not be made.
    pub(super) fn missing_gate(&self) -> Error {
        Error::new(ErrorKind::Refused, DOING)
            .at(self.gate().unwrap_or(&self.cell))
            .because("the node by which a promoted change keeps others out could not be made")
    }

    /// The transaction that closes the gate behind a ticket, and looks.
    pub(super) fn closing(&self, ticket: &Path) -> Option<Txn> {
        let set = Txn::new().set(self.gate()?, ticket.name().to_owned(), Expect::Any);
        Some(set.look(self.query()))
    }
}

impl Gate {
    fn of(node: Node, dir: &Path) -> Option<Self> {
        let ticket = std::str::from_utf8(&node.data).ok().filter(|name| !name.is_empty());
        let ticket = ticket.and_then(|name| dir.join(name).ok());
        Some(Self { version: node.stat?.version, path: node.path, ticket })
    }

    /// Takes over what was found out about the ticket, if no other was named since.
    pub(super) fn remember(&mut self, old: Self) {
        if old.version == self.version {
            self.ticket = old.ticket;
        }
    }

    /// A transaction that is applied only if no ticket was named since.
    pub(super) fn guard(&self, txn: Txn) -> Txn {
        txn.check(&self.path, Expect::Version(self.version))
    }
}
