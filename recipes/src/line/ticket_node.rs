//! [`TicketNode`]: owns the node of a ticket. Dropping it removes the node; [`TicketNode::lost`] waits for its loss.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::{pending, select};
use synod_core::clock::{self, Instant, sleep};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::held::Token;
use synod_core::path::Path;
use synod_core::retry::{Delays, Retry};
use synod_core::session::Session;
use synod_core::store::{OpResult, Query, Revision, Sequence, Txn, View, Watch};

use crate::line::names::Names;
use crate::line::seen_version::SeenVersion;
use crate::mutant::mistake;

/// The node of a ticket. Dropping this removes the node.
#[derive(Debug)]
pub(crate) struct TicketNode {
    pub(super) session: Session,
    pub(super) node: OpResult,
    token: Token,
    sequence: Sequence,
    /// Whether the ticket was released or handed over already.
    spent: AtomicBool,
    /// Whether the node was removed, by its owner or by another client.
    gone: AtomicBool,
    /// Whether the next ticket may reuse its name.
    renewable: AtomicBool,
    /// The version that writes and checks expect; `None` if the path alone identifies the ticket.
    pub(super) seen_version: Option<SeenVersion>,
    drawn: Instant,
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
            drawn: clock::now(),
            watch: Mutex::default(),
        };
        // From here on a drop removes the node.
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

    /// The next ticket may reuse the name of this one, as long as the name stays inside this library.
    pub(super) fn renewable(self) -> Self {
        self.renewable.store(true, Ordering::Relaxed);
        self
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// How long to wait between the tries of what is repeated until it succeeds.
    pub(crate) fn delays(&self) -> Delays {
        Retry::forever().delays(self.session.random())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.node.path
    }

    /// The revision of the node's create.
    pub(crate) fn created(&self) -> Option<Revision> {
        self.node.stat.map(|stat| stat.created)
    }

    /// Whether a node at its path with this revision of its create is this one.
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

    /// Counts in the token that the ticket is handed over within this process.
    pub(crate) fn pass_on(&mut self) {
        mistake!(TurnUncounted: return);
        self.token = self.token.next_turn();
    }

    /// The path, for use outside this library, where it may be kept for long: no other ticket ever has it.
    pub(crate) fn told_path(&self) -> &Path {
        mistake!(ToldNameUsedAgain: return self.path());
        self.renewable.store(false, Ordering::Relaxed);
        self.path()
    }

    /// Adds the check that the node exists. Either no other ticket ever has its path, or the check expects the version
    /// that was seen last.
    pub(crate) fn check(&self, txn: Txn) -> Txn {
        mistake!(TxnUnguarded: return txn);
        txn.check(self.told_path().clone(), self.expected())
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Whether another client removed the node, as far as that was noticed.
    pub(crate) fn was_removed(&self) -> bool {
        self.is_gone() && !self.spent.load(Ordering::Relaxed)
    }

    pub(crate) fn was_lost(&self) -> Error {
        Error::new(ErrorKind::SessionLost, "holding on")
            .at(self.path())
            .because("it was lost before")
    }

    /// Removes the node, and returns when it is gone.
    pub(crate) async fn remove(&self) -> Result<()> {
        self.spend();
        if self.renewable.load(Ordering::Relaxed) {
            let is_last = self.session.remove_tracked(&self.node).await?.is_settled();
            mistake!(NameFreedInDoubt: let is_last = true);
            if is_last {
                self.session.local::<Names>().give(self.path());
            }
            return Ok(());
        }
        self.session.remove(&self.node).await
    }

    /// Removes the node in the background, unless that was done before.
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

    /// Waits until it is lost: its session is lost, or another client removed the node.
    pub(crate) async fn lost(&self) {
        mistake!(ReconnectResets: return self.session.lost_or_reconnected().await);
        let _either = select(pin!(self.session.lost()), pin!(self.removed())).await;
    }

    /// Waits until another client removed the node. Never returns when the session ends.
    ///
    /// Most tickets are released before a third of the time to live has passed: those are not watched.
    async fn removed(&self) {
        mistake!(RemovalUnnoticed: return pending().await);
        let age = clock::elapsed(self.drawn);
        sleep((self.session.info().ttl / 3).saturating_sub(age)).await;
        let mut delays = self.delays();
        let mut lent = Lent { ticket: self, watch: self.kept().take() };
        let node = Query::until_gone(self.path().clone()).local();
        while !self.is_gone() {
            if let Some(watch) = &mut lent.watch {
                let _look_again = watch.next().await;
                lent.watch = None;
            }
            match self.session.watch(node.clone()).await {
                Ok((view, watch)) if self.is_in(&view) => lent.watch = Some(watch),
                Ok(_) => self.gone.store(true, Ordering::Relaxed),
                Err(error) if error.kind() == ErrorKind::SessionLost => pending().await,
                Err(_) => sleep(delays.next().unwrap_or_default()).await,
            }
        }
    }

    fn is_in(&self, view: &View) -> bool {
        view.node().is_some_and(|node| node.stat.is_none_or(|stat| self.learn(stat)))
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

/// The error for a store that does not return what a create made. Every store returns it.
pub(crate) fn missing_create_result() -> Error {
    Error::new(ErrorKind::Backend, "drawing a ticket")
        .because("the store did not report what it created, or gave it to another session")
}
