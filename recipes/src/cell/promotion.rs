//! [`Promotion`]: changes that lost too many races take a lock, and other changes yield to them.
//! [`PriorityGate`]: the node that makes the others yield.

use futures_core::future::BoxFuture;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::held::Held;
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Expect, Lifetime, Node, Query, Txn, Version, View};

use crate::cell::change::{DOING, StoredValue};
use crate::mutant::mistake;

#[cfg_attr(not(doctest), doc = include_str!("../../docs/promotion.md"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promotion {
    after: u32,
    at: Option<Path>,
}

impl Promotion {
    /// Promotes a change after `tries` lost attempts. With 0 each change waits for the lock before
    /// its first attempt. The lock of `/counters/orders` is `/counters/orders-promotion`.
    pub fn after(tries: u32) -> Self {
        Self { after: tries, at: None }
    }

    /// Sets the path of the lock, to share it with Curator's `PromotedToLock` or between several
    /// values. A client that holds the lock by other means must not change the value while it holds
    /// the lock: the change would wait for that lock.
    pub fn at(self, lock: impl Into<Path>) -> Self {
        Self { at: Some(lock.into()), ..self }
    }
}

/// Waits for the lock at a path.
pub(crate) type Enter = fn(&Client, Path) -> BoxFuture<'static, Result<Box<dyn Held>>>;

/// The lock of the promoted changes of one value.
pub(super) struct PromotionLock {
    promotion: Promotion,
    enter: Enter,
}

impl PromotionLock {
    pub(super) fn new(promotion: Promotion, enter: Enter) -> Self {
        Self { promotion, enter }
    }

    /// The number of attempts without the lock.
    pub(super) fn tries_without(&self) -> u32 {
        mistake!(NeverPromoted: return u32::MAX);
        self.promotion.after
    }

    /// The directory of the tickets of the lock.
    pub(super) fn dir(&self, value: &Path) -> Result<Path> {
        match &self.promotion.at {
            Some(lock) => Ok(lock.clone()),
            // Not below the value: with a ticket there, a removed value could not be created again.
            None => Ok(Path::new(&format!("{value}-promotion"))?),
        }
    }

    /// Waits for the lock.
    pub(super) async fn enter(&self, client: &Client, value: &Path) -> Result<Box<dyn Held>> {
        (self.enter)(client, self.dir(value)?).await
    }
}

/// A persistent node whose version every write without the lock expects.
///
/// Its data is the name of the ticket of the change that wrote the gate last. Other changes yield
/// while that ticket exists; it is removed if the session of the change is lost.
#[derive(Clone, Debug)]
pub(super) struct PriorityGate {
    path: Path,
    version: Version,
    /// The ticket that the gate names; `None` once the ticket is known to be gone.
    pub(super) ticket: Option<Path>,
}

impl PriorityGate {
    fn of(node: Node, dir: &Path) -> Option<Self> {
        let ticket = std::str::from_utf8(&node.data).ok().filter(|name| !name.is_empty());
        let ticket = ticket.and_then(|name| dir.join(name).ok());
        Some(Self { version: node.stat?.version, path: node.path, ticket })
    }

    /// Keeps the record that the ticket is gone, unless the gate has named another ticket since.
    pub(super) fn inherit(&mut self, old: Self) {
        if old.version == self.version {
            self.ticket = old.ticket;
        }
    }

    /// Adds a check to a transaction, which is then applied only if the gate has not named another
    /// ticket since.
    pub(super) fn guard(&self, txn: Txn) -> Txn {
        txn.check(&self.path, Expect::Version(self.version))
    }
}

/// The nodes that a write of a value depends on.
#[derive(Clone, Debug)]
pub(super) struct ValueNodes {
    pub(super) value: Path,
    /// The directory of the tickets, and the gate, if changes of the value are promoted.
    lock: Option<(Path, Path)>,
}

impl ValueNodes {
    pub(super) fn new(value: &Path, lock: Option<&PromotionLock>) -> Result<Self> {
        let Some(lock) = lock else { return Ok(Self { value: value.clone(), lock: None }) };
        let dir = lock.dir(value)?;
        // Outside the directory, where a waiter would mistake it for a node to watch.
        let gate = Path::new(&format!("{dir}-gate"))?;
        Ok(Self { value: value.clone(), lock: Some((dir, gate)) })
    }

    pub(super) fn query(&self) -> Query {
        Query::nodes(&self.value, self.gate().cloned())
    }

    fn gate(&self) -> Option<&Path> {
        self.lock.as_ref().map(|(_dir, gate)| gate)
    }

    /// Returns the value and the gate in a view.
    pub(super) fn found(&self, view: View) -> (Option<StoredValue>, Option<PriorityGate>) {
        let (mut value, mut gate) = (None, None);
        for node in view.nodes {
            if node.path == self.value {
                value = StoredValue::of(node);
            } else if let Some((dir, _gate)) = self.lock.as_ref().filter(|it| it.1 == node.path) {
                gate = PriorityGate::of(node, dir);
            }
        }
        (value, gate)
    }

    /// Returns `true` if a gate is needed and `gate` is `None`.
    pub(super) fn lacks(&self, gate: Option<&PriorityGate>) -> bool {
        self.lock.is_some() && gate.is_none()
    }

    /// Creates the gate, if one is needed and no other client has created it. The next read shows
    /// whether the gate exists.
    pub(super) async fn create_gate(&self, session: &Session) -> Result<()> {
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

    /// The error of a gate that could not be created.
    pub(super) fn missing_gate(&self) -> Error {
        Error::new(ErrorKind::Refused, DOING)
            .at(self.gate().unwrap_or(&self.value))
            .because("the node by which a promoted change keeps others out could not be made")
    }

    /// The transaction that writes the name of a ticket to the gate, and reads the nodes.
    pub(super) fn closing(&self, ticket: &Path) -> Option<Txn> {
        let set = Txn::new().set(self.gate()?, ticket.name().to_owned(), Expect::Any);
        Some(set.look(self.query()))
    }
}
