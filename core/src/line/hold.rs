//! [`Hold`]: what somebody holds who was called, as a value. [`Token`]: the number that proves it outside.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::{Either, pending, select};

use crate::clock::{self, Instant, sleep};
use crate::error::{Error, ErrorKind, Result};
use crate::line::meter;
use crate::mutant::{self, Mutant};
use crate::path::Path;
use crate::session::Session;
use crate::store::{Done, Event, Expect, Kind, Outcome, Query, Revision, Sequence, Txn, Watch};

/// Proof of holding something: a number that is larger for whoever holds it later.
///
/// Give it to systems outside with everything that is done there under a lock, and let them refuse what
/// comes with a lower one than they have seen. Tokens of one path never repeat and never go back,
/// also after its directory was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    revision: Revision,
    turn: u32,
}

impl Token {
    pub(crate) fn new(revision: Revision) -> Self {
        Self { revision, turn: 0 }
    }

    /// The same ticket, in other hands of this process.
    pub(crate) fn next_turn(self) -> Self {
        Self { turn: self.turn + 1, ..self }
    }

    /// When the ticket was created: the whole of the token where nothing is handed over within a process.
    pub fn revision(self) -> Revision {
        self.revision
    }

    /// Which time it is that the ticket was handed over within its process. Zero unless a recipe was
    /// told to do so.
    pub fn turn(self) -> u32 {
        self.turn
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.revision, f)?;
        if self.turn > 0 { write!(f, ".{}", self.turn) } else { Ok(()) }
    }
}

/// Something held: a lock, permits, the lead. Dropping it gives it back in the background.
///
/// It is held while the session that it hangs on certainly lives, by [`Hold::is_held`], and no longer.
/// A check is true of the moment at which it is made: a process that is paused between the check and
/// what it does then, acts too late. What must be exclusive whatever happens goes into the transaction of
/// [`Hold::txn`], or to a system that compares [`Hold::token`].
///
/// `K` is what a recipe keeps beside.
#[must_use = "what is held is given back when this is dropped"]
pub struct Hold<K = ()> {
    pub(crate) stub: Stub,
    pub(crate) kind: K,
    stay: Stay,
}

/// For how long something is held, which is told when it is not any more.
struct Stay {
    recipe: &'static str,
    since: Instant,
}

impl Drop for Stay {
    fn drop(&mut self) {
        meter::held(self.recipe, clock::elapsed(self.since));
    }
}

impl<K> Hold<K> {
    pub(crate) fn new(stub: Stub, recipe: &'static str, kind: K) -> Self {
        Self { stub, kind, stay: Stay { recipe, since: clock::now() } }
    }

    /// The same, held as something else.
    pub(crate) fn map<L>(self, kind: impl FnOnce(K) -> L) -> Hold<L> {
        let Self { stub, kind: before, stay } = self;
        Hold { stub, kind: kind(before), stay }
    }

    /// The same, in other hands of this process.
    pub(crate) fn passed_on(mut self) -> Self {
        if !mutant::is(Mutant::TurnUncounted) {
            self.stub.token = self.stub.token.next_turn();
        }
        self
    }

    /// The number to give to systems outside. Larger for whoever holds it later.
    pub fn token(&self) -> Token {
        self.stub.token
    }

    /// The node that stands for it.
    pub fn path(&self) -> &Path {
        self.stub.path()
    }

    /// Whether it is certainly held at this moment. False as soon as nobody can know, before anybody is
    /// told.
    pub fn is_held(&self) -> bool {
        self.stub.session().is_certain() && !self.stub.is_gone()
    }

    /// Waits until it is lost: its session is, or somebody removed its node. Of the latter it may hear only
    /// when a third of the session's time to live has passed since it stood in line.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches.
    pub async fn lost(&self) {
        self.stub.lost().await;
    }

    /// A transaction that happens only while this is held, whatever the clocks do: it begins with the
    /// check that the node is there. Add to it, and send it with the same client.
    ///
    /// # Examples
    ///
    /// ```
    /// # use synod_core::client::Client;
    /// # use synod_core::error::Result;
    /// # use synod_core::path::Path;
    /// use synod_core::recipe::mutex::Mutex;
    /// use synod_core::store::Expect;
    ///
    /// # async fn example(client: Client, data: Path) -> Result<()> {
    /// let guard = Mutex::new(&client, Path::new("/locks/db")?).lock().await?;
    /// let write = guard.txn().set(data, "mine", Expect::Any);
    /// let written = client.transaction(write).await?;
    /// assert!(written.committed().is_some(), "else the lock was lost before");
    /// # Ok(())
    /// # }
    /// ```
    pub fn txn(&self) -> Txn {
        self.stub.check(Txn::new())
    }

    /// Does something while it is held: `work` is dropped when it is lost.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`] if it was lost before `work` came to its end.
    ///
    /// # Cancel safety
    ///
    /// A dropped call drops `work`.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        match select(pin!(work), pin!(self.lost())).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right(_) => Err(Error::new(ErrorKind::SessionLost, "working under a lock")
                .at(self.path())
                .because("it was lost; what was done under it was stopped")),
        }
    }

    /// Gives it back: when this returned without an error, it is free for the next.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`] if it was lost before: there is nothing to give back.
    /// [`ErrorKind::Unreachable`] if that takes too long: it goes on in the background, until it is done or
    /// the session is over.
    ///
    /// # Cancel safety
    ///
    /// A dropped call goes on in the background.
    pub async fn release(self) -> Result<()> {
        self.give_back().await
    }

    /// [`Hold::release`] of what others look at, too: from now on it is not held, whoever asks.
    pub(crate) async fn give_back(&self) -> Result<()> {
        if self.stub.is_gone() {
            return Err(self.stub.was_lost());
        }
        self.stub.remove().await
    }

    /// Gives it back in the background, whoever still looks at it.
    pub(crate) fn give_up(&self) {
        self.stub.give_up();
    }
}

impl<K> fmt::Debug for Hold<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("recipe", &self.stay.recipe)
            .field("path", self.path())
            .field("token", &self.token())
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

/// The node of a ticket, which goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Stub {
    session: Session,
    node: Done,
    token: Token,
    sequence: Sequence,
    /// Whether the node is given back already, or handed on.
    spent: AtomicBool,
    /// Whether somebody removed it.
    gone: AtomicBool,
    drawn: Instant,
    /// The watch on it, while nobody waits with it.
    watch: Mutex<Option<Watch>>,
}

/// The watch of a [`Stub`], which is put back when this is dropped.
struct Lent<'a> {
    stub: &'a Stub,
    watch: Option<Watch>,
}

impl Stub {
    /// The ticket that the session drew.
    pub(crate) fn new(session: Session, node: Done) -> Result<Self> {
        let (stat, sequence) = (node.stat, node.sequence);
        let mut stub = Self {
            session,
            node,
            token: Token::new(Revision::ZERO),
            sequence: Sequence::new(0),
            spent: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            drawn: clock::now(),
            watch: Mutex::default(),
        };
        // From here on it goes when it is dropped.
        let (Some(stat), Some(sequence)) = (stat, sequence) else { return Err(untold()) };
        let is_own = stat.owner == Some(stub.session.info().id);
        if !is_own && !mutant::is(Mutant::OldTicketTrusted) {
            return Err(untold());
        }
        stub.sequence = sequence;
        stub.token = Token::new(stat.created);
        if mutant::is(Mutant::TokenIsSequence) {
            stub.token = Token::new(Revision::new(sequence.get()));
        }
        Ok(stub)
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) fn path(&self) -> &Path {
        &self.node.path
    }

    pub(crate) fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// Adds the check that the node is there. Nobody else ever has its path.
    pub(crate) fn check(&self, txn: Txn) -> Txn {
        if mutant::is(Mutant::TxnUnguarded) {
            return txn;
        }
        txn.check(self.path().clone(), Expect::Any)
    }

    /// Writes what others see of it.
    pub(crate) async fn write(&self, data: Bytes) -> Result<()> {
        let path = self.path().clone();
        match self.session.commit(Txn::new().set(path.clone(), data, Expect::Any)).await? {
            Outcome::Committed(_) => Ok(()),
            Outcome::Rejected(_) if mutant::is(Mutant::ProclaimsUnguarded) => Ok(()),
            Outcome::Rejected(_) => Err(Error::new(ErrorKind::SessionLost, "proclaiming")
                .at(&path)
                .because("the lead was lost before")),
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    pub(crate) fn was_lost(&self) -> Error {
        Error::new(ErrorKind::SessionLost, "holding on")
            .at(self.path())
            .because("it was lost before")
    }

    /// Removes the node, and tells when it is gone.
    pub(crate) async fn remove(&self) -> Result<()> {
        self.spend();
        self.session.remove(&self.node).await
    }

    /// Removes the node in the background, unless that was done before.
    fn give_up(&self) {
        if mutant::is(Mutant::DroppedTicketStays) {
            return;
        }
        if !self.spent.swap(true, Ordering::Relaxed) && !self.gone.swap(true, Ordering::Relaxed) {
            self.session.abandon(&self.node);
        }
    }

    /// Takes note that the node is given back.
    pub(crate) fn spend(&self) {
        self.spent.store(true, Ordering::Relaxed);
        self.gone.store(true, Ordering::Relaxed);
    }

    /// Waits until it is lost: its session is, or somebody removed the node.
    pub(crate) async fn lost(&self) {
        let _either = select(pin!(self.session.lost()), pin!(self.removed())).await;
    }

    /// Waits until somebody removed the node. Never tells of the end of the session.
    ///
    /// Most tickets are given back before they are of any age: those are not watched.
    async fn removed(&self) {
        if mutant::is(Mutant::RemovalUnnoticed) {
            return pending().await;
        }
        let age = clock::elapsed(self.drawn);
        sleep((self.session.info().ttl / 3).saturating_sub(age)).await;
        let mut delays = self.session.delays();
        let mut lent = Lent { stub: self, watch: self.kept().take() };
        let mut node = Query::node(self.path().clone()).names_only().local().once();
        while !self.is_gone() {
            if let Some(watch) = &mut lent.watch {
                // What was written once may be written often.
                node.once &= !until_more_than_data(watch).await;
                lent.watch = None;
            }
            match self.session.observe(node.clone()).await {
                Ok((view, watch)) if view.node().is_some() => lent.watch = Some(watch),
                Ok(_) => self.gone.store(true, Ordering::Relaxed),
                Err(error) if error.kind() == ErrorKind::SessionLost => pending().await,
                Err(_) => sleep(delays.next().unwrap_or_default()).await,
            }
        }
    }

    fn kept(&self) -> MutexGuard<'_, Option<Watch>> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for anything but that a node holds other data. Whether that happened, too.
async fn until_more_than_data(watch: &mut Watch) -> bool {
    let mut written = false;
    while let Some(Event::Changed(change)) = watch.next().await
        && change.kind == Kind::Updated
    {
        written = true;
    }
    written
}

/// A store always tells what a transaction of one operation made.
pub(crate) fn untold() -> Error {
    Error::new(ErrorKind::Backend, "drawing a ticket")
        .because("the store did not tell what it made, or gave it to another session")
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.take()
            && !mutant::is(Mutant::WatchesAgain)
        {
            self.stub.kept().get_or_insert(watch);
        }
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.give_up();
    }
}
