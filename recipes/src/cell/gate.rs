//! [`Gate`]: the node by which a promoted change keeps the others out; [`Nodes`]: what a write of a cell depends on.

use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Expect, Lifetime, Node, Query, Txn, Version, View};

use crate::cell::mark::{CellValue, DOING};
use crate::cell::promotion::Lock;

/// The name of the gate, next to the tickets of the lock.
const NAME: &str = "gate";

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
    /// If changes of the cell are promoted.
    gate: Option<Path>,
}

impl Nodes {
    pub(super) fn new(cell: &Path, lock: Option<&Lock>) -> Result<Self> {
        let gate = lock.map(|lock| Ok::<_, Error>(lock.dir(cell)?.join(NAME)?)).transpose()?;
        Ok(Self { cell: cell.clone(), gate })
    }

    pub(super) fn query(&self) -> Query {
        Query::nodes(&self.cell, self.gate.clone())
    }

    /// What a view shows of them.
    pub(super) fn seen(&self, view: View) -> (Option<CellValue>, Option<Gate>) {
        let (mut value, mut gate) = (None, None);
        for node in view.nodes {
            if node.path == self.cell {
                value = CellValue::of(node);
            } else if Some(&node.path) == self.gate.as_ref() {
                gate = Gate::of(node);
            }
        }
        (value, gate)
    }

    /// Whether there is to be a gate, and this is none.
    pub(super) fn lack(&self, gate: Option<&Gate>) -> bool {
        self.gate.is_some() && gate.is_none()
    }

    /// Makes the gate, if there is to be one, and there is none.
    pub(super) async fn make_gate(&self, session: &Session) -> Result<()> {
        let Some(gate) = &self.gate else { return Ok(()) };
        let made = session.commit(Txn::new().create(gate, "", Lifetime::Persistent)).await;
        match made {
            Err(error) if !(error.is_ambiguous() && error.kind() == ErrorKind::Unreachable) => {
                return Err(error);
            }
            // Where another client made it, or the answer is lost, it is there.
            _ => {}
        }
        if session.read(Query::node(gate).names_only()).await?.node().is_some() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Refused, DOING)
            .at(gate)
            .because("the node by which a promoted change keeps others out could not be made"))
    }

    /// The transaction that closes the gate behind a ticket, and looks.
    pub(super) fn closing(&self, ticket: &Path) -> Option<Txn> {
        let set = Txn::new().set(self.gate.as_ref()?, ticket.name().to_owned(), Expect::Any);
        Some(set.look(self.query()))
    }
}

impl Gate {
    fn of(node: Node) -> Option<Self> {
        let ticket = std::str::from_utf8(&node.data).ok().filter(|name| !name.is_empty());
        let ticket = ticket.and_then(|name| node.path.parent()?.join(name).ok());
        Some(Self { version: node.stat?.version, path: node.path, ticket })
    }

    /// A transaction that is applied only if no ticket was named since.
    pub(super) fn guard(&self, txn: Txn) -> Txn {
        txn.check(&self.path, Expect::Version(self.version))
    }
}
