//! [`TicketNode`]: the owner of a ticket's node. Dropping it removes the node; [`TicketNode::lost`]
//! waits for its loss.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::{pending, select};
use synod_core::clock::{self, Instant, sleep};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::held::Token;
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{
    Commit, Expect, OpResult, Outcome, Query, RejectReason, Revision, Sequence, Stat, Txn, View,
    Watch,
};

use crate::line::ticket_name::FreeNames;
use crate::mutant::mistake;
use crate::support::retry::RetryDelays;

/// The node of a ticket. Dropping this removes the node.
#[derive(Debug)]
pub(crate) struct TicketNode {
    session: Session,
    node: OpResult,
    token: Token,
    sequence: Sequence,
    /// True if the ticket was released or handed over already.
    spent: AtomicBool,
    /// True if the node was removed, by its owner or by another client.
    gone: AtomicBool,
    /// True if the next ticket may reuse its name.
    renewable: AtomicBool,
    /// The version that writes and checks expect; `None` if the path alone identifies the ticket.
    seen_version: Option<SeenVersion>,
    created_at: Instant,
    /// The watch of the node, while no call uses it.
    watch: Mutex<Option<Watch>>,
}

impl TicketNode {
    /// The ticket whose node the session created.
    pub(crate) fn new(session: Session, node: OpResult) -> Result<Self> {
        let (stat, sequence) = (node.stat, node.sequence);
        let mut ticket = Self {
            session,
            node,
            token: Token::new(Revision::ZERO),
            sequence: Sequence::new(0),
            spent: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            renewable: AtomicBool::new(false),
            seen_version: None,
            created_at: clock::now(),
            watch: Mutex::default(),
        };
        // From now on, dropping `self` removes the node.
        let (Some(stat), Some(sequence)) = (stat, sequence) else {
            return Err(missing_create_result());
        };
        let is_own = stat.owner == Some(ticket.session.info().id);
        mistake!(OldTicketTrusted: let is_own = true);
        if !is_own {
            return Err(missing_create_result());
        }
        ticket.sequence = sequence;
        ticket.token = Token::new(stat.created);
        Ok(ticket)
    }

    /// Allows the next ticket to reuse the name of this one, as long as the name stays inside this
    /// library.
    pub(super) fn renewable(self) -> Self {
        self.renewable.store(true, Ordering::Relaxed);
        self
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// The delays between the attempts of a request that is repeated until it succeeds.
    pub(crate) fn delays(&self) -> RetryDelays {
        RetryDelays::forever(self.session.random())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.node.path
    }

    /// The revision of the node's create.
    pub(crate) fn created(&self) -> Option<Revision> {
        self.node.stat.map(|stat| stat.created)
    }

    /// Returns `true` if a node at its path, created at this revision, is this node.
    pub(crate) fn is_of(&self, created: Revision) -> bool {
        self.created().is_none_or(|own| own == created)
    }

    pub(crate) fn sequence(&self) -> Sequence {
        self.sequence
    }

    pub(crate) fn token(&self) -> Token {
        mistake!(TokenIsSequence: return Token::new(Revision::new(self.sequence.get())));
        self.token
    }

    /// Increments the turn in the token, because the ticket is handed over within this process.
    pub(crate) fn pass_on(&mut self) {
        mistake!(TurnUncounted: return);
        self.token = self.token.next_turn();
    }

    /// Returns the path for use outside this library, which may keep it. After this call no other
    /// ticket ever gets this path.
    pub(crate) fn public_path(&self) -> &Path {
        mistake!(ToldNameUsedAgain: return self.path());
        self.renewable.store(false, Ordering::Relaxed);
        self.path()
    }

    /// Adds the check that the node exists. Either no other ticket ever has its path, or the check
    /// expects the version that was read last.
    pub(crate) fn check(&self, txn: Txn) -> Txn {
        mistake!(TxnUnguarded: return txn);
        txn.check(self.public_path().clone(), self.expected())
    }

    /// Makes writes and checks expect the last version that was read: see [`SeenVersion`].
    pub(super) fn versioned(mut self) -> Self {
        self.seen_version = self.node.stat.map(SeenVersion::of);
        self
    }

    pub(super) fn is_versioned(&self) -> bool {
        self.seen_version.is_some()
    }

    /// The version that a write to the node, or a transaction under it, expects.
    pub(crate) fn expected(&self) -> Expect {
        self.seen_version.as_ref().map_or(Expect::Any, SeenVersion::expected)
    }

    /// Records the stat of the node at its path. Returns `true` if it belongs to this ticket.
    pub(crate) fn record(&self, stat: Stat) -> bool {
        self.seen_version.as_ref().is_none_or(|seen| seen.record(stat))
    }

    /// Replaces the data of the ticket, if it exists: [`Session::commit`] of one operation. If
    /// writes expect a version, and another client has written to the ticket, this reads the
    /// version and writes again.
    pub(crate) async fn write(&self, data: Bytes) -> Result<Outcome> {
        loop {
            let set = Txn::new().set(self.path().clone(), data.clone(), self.expected());
            let outcome = self.session.commit(set).await?;
            match &outcome {
                Outcome::Rejected(no)
                    if no.reason == RejectReason::OtherVersion && self.read_version().await? => {}
                Outcome::Committed(Commit { results: done, .. }) => {
                    let stat = done.first().and_then(|it| it.stat);
                    let _is_own = stat.is_none_or(|stat| self.record(stat));
                    return Ok(outcome);
                }
                Outcome::Rejected(_) => return Ok(outcome),
            }
        }
    }

    /// Reads the version of the ticket if writes expect it. Returns false if the ticket is gone.
    pub(crate) async fn read_version(&self) -> Result<bool> {
        if !self.is_versioned() {
            return Ok(true);
        }
        let node = Query::node(self.path().clone()).names_only();
        let stat = self.session.read(node).await?.into_node().and_then(|node| node.stat);
        Ok(stat.is_some_and(|stat| self.record(stat)))
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Returns `true` if another client removed the node and this client noticed it.
    pub(crate) fn was_removed(&self) -> bool {
        self.is_gone() && !self.spent.load(Ordering::Relaxed)
    }

    pub(crate) fn was_lost(&self) -> Error {
        Error::new(ErrorKind::SessionLost, "holding on")
            .at(self.path())
            .because("it was lost before")
    }

    /// Removes the node, and returns when it is removed.
    pub(crate) async fn remove(&self) -> Result<()> {
        self.spend();
        if self.renewable.load(Ordering::Relaxed) {
            let is_settled = self.session.remove_tracked(&self.node).await?.is_settled();
            mistake!(NameFreedInDoubt: let is_settled = true);
            if is_settled {
                self.session.local::<FreeNames>().give(self.path());
            }
            return Ok(());
        }
        self.session.remove(&self.node).await
    }

    /// Removes the node in the background, unless it was removed before.
    pub(crate) fn give_up(&self) {
        mistake!(DroppedTicketStays: return);
        if !self.spent.swap(true, Ordering::Relaxed) && !self.gone.swap(true, Ordering::Relaxed) {
            self.session.remove_in_background(&self.node);
        }
    }

    /// Removes the node of a spent ticket in the background.
    pub(crate) fn abandon(&self) {
        self.session.remove_in_background(&self.node);
    }

    /// Records that the ticket was released or handed over.
    pub(crate) fn spend(&self) {
        self.spent.store(true, Ordering::Relaxed);
        self.gone.store(true, Ordering::Relaxed);
    }

    /// Waits until the ticket is lost: its session is lost, or another client removed the node.
    pub(crate) async fn lost(&self) {
        mistake!(ReconnectResets: return self.session.lost_or_reconnected().await);
        let _either = select(pin!(self.session.lost()), pin!(self.removed())).await;
    }

    /// Waits until another client removed the node. Never returns when the session ends.
    ///
    /// The watch begins when the ticket is a third of the TTL old: most tickets are released
    /// before.
    async fn removed(&self) {
        mistake!(RemovalUnnoticed: return pending().await);
        let age = clock::elapsed(self.created_at);
        sleep((self.session.info().ttl / 3).saturating_sub(age)).await;
        let mut delays = self.delays();
        let mut lent = Lent { ticket: self, watch: self.kept().take() };
        let node = Query::until_gone(self.path().clone()).local();
        while !self.is_gone() {
            if let Some(watch) = &mut lent.watch {
                let _event = watch.next().await;
                lent.watch = None;
            }
            match self.session.watch(node.clone()).await {
                Ok((view, watch)) if self.is_in(&view) => lent.watch = Some(watch),
                Ok(_) => self.gone.store(true, Ordering::Relaxed),
                Err(error) if error.kind() == ErrorKind::SessionLost => pending().await,
                Err(_) => delays.wait().await,
            }
        }
    }

    fn is_in(&self, view: &View) -> bool {
        view.node().is_some_and(|node| node.stat.is_none_or(|stat| self.record(stat)))
    }

    fn kept(&self) -> MutexGuard<'_, Option<Watch>> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TicketNode {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// The watch of a [`TicketNode`], which is put back when this is dropped.
struct Lent<'a> {
    ticket: &'a TicketNode,
    watch: Option<Watch>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        mistake!(WatchesAgain: return);
        if let Some(watch) = self.watch.take() {
            self.ticket.kept().get_or_insert(watch);
        }
    }
}

/// The error for a store that does not return the node of a create. The contract requires every
/// store to return it.
pub(crate) fn missing_create_result() -> Error {
    Error::new(ErrorKind::Backend, "creating a ticket")
        .because("the store did not report the node that it created, or gave it to another session")
}

/// The version of a ticket that was read last. Every write and every check of the ticket expects
/// it.
///
/// It is used for two kinds of tickets. If the create was retried on a store that does not append a
/// sequence to the name (etcd), a delayed first request could create the deleted node again after
/// another holder was granted. And if a write to the ticket reduces its claim (a downgrade), a
/// delayed transaction under the former claim must fail.
#[derive(Debug)]
pub(super) struct SeenVersion {
    last: Mutex<Stat>,
}

impl SeenVersion {
    /// Starts with the version at the create of the ticket.
    fn of(created: Stat) -> Self {
        Self { last: Mutex::new(created) }
    }

    /// The expected state in checks of the node: a version that no other node of this name ever
    /// has.
    fn expected(&self) -> Expect {
        Expect::Version(self.last().version)
    }

    /// Records the stat of the node at the path. Returns `true` if it belongs to the ticket.
    fn record(&self, stat: Stat) -> bool {
        let mut last = self.last();
        if stat.created != last.created {
            return false;
        }
        if stat.modified > last.modified {
            *last = stat;
        }
        true
    }

    fn last(&self) -> MutexGuard<'_, Stat> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use synod_core::store::{Revision, Version};

    use super::*;

    fn stat(created: u64, modified: u64) -> Stat {
        Stat::new(Revision::new(created), Revision::new(modified), Version::new(modified), None)
    }

    #[test]
    fn a_ticket_expects_its_latest_version_that_was_read() {
        let ticket = SeenVersion::of(stat(5, 5));
        for (seen, is_this, expected) in [
            (stat(5, 5), true, 5),
            (stat(5, 8), true, 8),
            // A lagging response.
            (stat(5, 7), true, 8),
            // A node that a delayed request created.
            (stat(9, 9), false, 8),
        ] {
            assert_eq!(ticket.record(seen), is_this, "{seen:?}");
            assert_eq!(ticket.expected(), Expect::Version(Version::new(expected)), "{seen:?}");
        }
    }
}
