//! [`QueuePlace`]: where a queue is in the store, and the transactions that move its items there.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::clock::{self, sleep};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::session::Session;
use synod_core::store::{Expect, Lifetime, Query, Rejected, Txn, View};

use crate::line::ticket_name::dated;
use crate::mutant::mistake;
use crate::queue::item_name::ItemName;
use crate::stamped::Stamped;
use crate::stamped::mark::Marks;
use crate::stamped::sent::{Evidence, Sent, is_only_lost};

/// What a queue fails while doing.
pub(super) const DOING: &str = "using a queue";

/// Where a queue is. All its transactions are stamped, so each is applied once and its effect is found out.
pub(super) struct QueuePlace {
    pub(super) client: Client,
    pub(super) dir: Path,
    /// The items, persistent.
    pub(super) items: Path,
    /// The claims, ephemeral, each with the name of its item.
    pub(super) claims: Path,
    /// The ids that applications chose, for as long as their items are in the queue.
    ids: Path,
    /// The slots that the items of bounded queues fill.
    pub(super) slots: Path,
    /// The items that no consumer is to have.
    pub(super) dead: Path,
    marks: Marks,
}

/// A transaction that needs a node of this path deletes it. While the node is there, the transaction was not applied.
pub(super) struct StillThere<'a>(pub(super) Option<&'a Path>);

impl Evidence for StillThere<'_> {
    fn whole(&self) -> Option<Query> {
        self.0.map(Query::node)
    }

    fn is_untouched(&self, view: &View) -> bool {
        self.0.is_some_and(|path| view.nodes.iter().any(|node| node.path == *path))
    }
}

impl QueuePlace {
    pub(super) fn new(client: &Client, dir: Path) -> Result<Self> {
        let below = |name: &str| dir.join(name);
        Ok(Self {
            client: client.clone(),
            items: below("items")?,
            claims: below("claims")?,
            ids: below("ids")?,
            slots: below("slots")?,
            dead: below("dead")?,
            marks: Marks::new(below("marks")?, "queue-", DOING),
            dir,
        })
    }

    /// An id that no other item has, with the time of now.
    pub(super) fn unique_id(&self) -> String {
        dated(&self.client.chance().id(), Some(clock::date()))
    }

    pub(super) fn item(&self, name: &ItemName) -> Result<Path> {
        Ok(self.items.join(&name.to_string())?)
    }

    pub(super) fn claim(&self, name: &ItemName) -> Result<Path> {
        Ok(self.claims.join(&name.to_string())?)
    }

    /// Adds the creates of an item.
    pub(super) fn with_item(&self, txn: Txn, name: &ItemName, data: Bytes) -> Result<Txn> {
        let others = [name.id_node(&self.ids), name.slot_node(&self.slots)];
        mistake!(CapacityUnguarded: let others = [name.id_node(&self.ids), None]);
        let create = |txn: Txn, other| txn.create(other, "", Lifetime::Persistent);
        let txn = others.into_iter().flatten().fold(txn, create);
        Ok(txn.create(self.item(name)?, data, Lifetime::Persistent))
    }

    /// Adds the deletes of an item.
    pub(super) fn without_item(&self, txn: Txn, name: &ItemName) -> Result<Txn> {
        let others = [name.id_node(&self.ids), name.slot_node(&self.slots)].into_iter().flatten();
        Ok(others.fold(txn.delete(self.item(name)?, Expect::Any), |txn, other| {
            txn.delete(other, Expect::Any)
        }))
    }

    /// Adds the check that no consumer has an item. One that was never delivered has no claim.
    pub(super) fn unclaimed(&self, txn: Txn, name: &ItemName) -> Result<Txn> {
        mistake!(ClaimIgnored: return Ok(txn));
        if name.delivered == 0 {
            return Ok(txn);
        }
        Ok(txn.check(self.claim(name)?, Expect::Absent))
    }

    /// Adds the create of a dead letter.
    pub(super) fn with_dead(&self, txn: Txn, name: &ItemName, data: Bytes) -> Result<Txn> {
        Ok(txn.create(self.dead.join(&name.to_string())?, data, Lifetime::Persistent))
    }

    /// Whether a rejection is that of an id which is in the queue already.
    pub(super) fn is_known_id(&self, no: &Rejected, name: &ItemName) -> bool {
        name.id_node(&self.ids).is_some_and(|id| id == no.path)
    }

    /// Whether a rejection is that of a slot which another item fills.
    pub(super) fn is_filled_slot(&self, no: &Rejected) -> bool {
        no.path.parent().is_some_and(|dir| dir == self.slots)
    }

    /// Sends a transaction in this session until it is known whether it was applied.
    pub(super) async fn send(
        &self,
        session: &Session,
        txn: Txn,
        needed: Option<&Path>,
    ) -> Result<Sent> {
        let (client, marks) = (&self.client, &self.marks);
        Stamped { client, marks, session, evidence: &StillThere(needed) }.send(txn).await
    }

    /// Sends a transaction in one session after the other, until it is applied or rejected.
    pub(super) async fn insist(&self, txn: &Txn) -> Result<Option<Rejected>> {
        let mut delays = None;
        loop {
            let session = self.client.session().await?;
            match self.send(&session, txn.clone(), None).await {
                Ok(Sent::Applied(_)) => return Ok(None),
                Ok(Sent::Rejected(no)) => return Ok(Some(no)),
                Ok(Sent::Lost) => {}
                Err(error) if is_only_lost(&error) => {}
                Err(error) => return Err(error),
            }
            let delays = delays.get_or_insert_with(|| {
                Retry::until_elapsed(self.client.time_limit()).delays(self.client.chance())
            });
            let Some(delay) = delays.next() else {
                return Err(Error::new(ErrorKind::Unreachable, DOING)
                    .at(&self.dir)
                    .because("its sessions were lost, one after the other"));
            };
            sleep(delay).await;
        }
    }
}

/// The time since the beginning of 1970, by the clock of this machine.
pub(super) fn date() -> Duration {
    clock::date().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// The error of a transaction that the store never takes.
pub(super) fn refused(no: &Rejected) -> Error {
    Error::new(ErrorKind::Refused, DOING).at(&no.path).because(no.why.to_string())
}
