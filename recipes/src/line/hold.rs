//! [`Hold`]: what somebody holds who was called, as a value.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use futures_util::future::{Either, select};
use synod_core::clock::{self, Instant};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::mutant::{self, Mutant};
use synod_core::path::Path;
use synod_core::store::Txn;
use tracing::Span;
use tracing::field::{Empty, debug, display};

use crate::line::meter;
use crate::line::ticket_node::TicketNode;
use synod_core::held::{Held, Token};

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
    pub(crate) node: TicketNode,
    pub(crate) kind: K,
    stay: Stay,
}

/// The lead of an election, while it is held: to look at, for guarded transactions, for its token. It ends with the
/// candidacy or the work that it belongs to, however many clones there are.
pub type Leadership = Arc<Hold>;

/// For how long something is held, which is told when it is not any more.
struct Stay {
    recipe: &'static str,
    since: Instant,
    span: Span,
}

impl Stay {
    fn of(node: &TicketNode, recipe: &'static str) -> Self {
        let (ticket, token) = (node.path(), node.token());
        let path = ticket.parent().map(display);
        let span = tracing::debug_span!("holding", recipe, path, %ticket, %token, held = Empty);
        Self { recipe, since: clock::now(), span }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let held = clock::elapsed(self.since);
        meter::held(self.recipe, held);
        self.span.record("held", debug(held));
    }
}

impl<K> Hold<K> {
    pub(crate) fn new(node: TicketNode, recipe: &'static str, kind: K) -> Self {
        let stay = Stay::of(&node, recipe);
        Self { node, kind, stay }
    }

    /// The same, held as something else.
    pub(crate) fn map<L>(self, kind: impl FnOnce(K) -> L) -> Hold<L> {
        let Self { node, kind: before, stay } = self;
        Hold { node, kind: kind(before), stay }
    }

    /// The same, in other hands of this process.
    pub(crate) fn passed_on(mut self) -> Self {
        if !mutant::is(Mutant::TurnUncounted) {
            self.node.pass_on();
        }
        self.stay = Stay::of(&self.node, self.stay.recipe);
        self
    }

    /// The number to give to systems outside. Larger for whoever holds it later.
    pub fn token(&self) -> Token {
        self.node.token()
    }

    /// The node that stands for it.
    pub fn path(&self) -> &Path {
        self.node.told_path()
    }

    /// [`Hold::path`] for who only looks on, and neither keeps it nor sends anything by it: a later ticket may
    /// have it, too.
    #[doc(hidden)]
    pub fn seen_path(&self) -> &Path {
        self.node.path()
    }

    /// Whether it is certainly held at this moment. False as soon as nobody can know, before anybody is
    /// told. That somebody removed its node is heard only while [`Hold::lost`] or [`Hold::run`] is waited for.
    pub fn is_held(&self) -> bool {
        self.node.session().is_certain() && !self.node.is_gone()
    }

    /// Waits until it is lost: its session is, or somebody removed its node. Of the latter it may hear only
    /// when a third of the session's time to live has passed since it stood in line.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches.
    pub async fn lost(&self) {
        self.node.lost().await;
    }

    /// A transaction that happens only while this is held, whatever the clocks do: it begins with the
    /// check that the node is there. Add to it, and send it with the same client. For more than one guard there is
    /// [`Txn::under`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use synod_core::client::Client;
    /// # use synod_core::error::Result;
    /// # use synod_core::path::Path;
    /// use synod_recipes::Mutex;
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
        self.node.check(Txn::new())
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
            Either::Right(_) => Err(Error::new(ErrorKind::SessionLost, "holding on")
                .at(self.node.path())
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
        if self.node.is_gone() {
            return Err(self.node.was_lost());
        }
        self.node.remove().await
    }

    /// Gives it back in the background, whoever still looks at it.
    pub(crate) fn give_up(&self) {
        self.node.give_up();
    }
}

impl<K> fmt::Debug for Hold<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("recipe", &self.stay.recipe)
            .field("path", self.node.path())
            .field("token", &self.token())
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

impl<K: Send + Sync> Held for Hold<K> {
    fn token(&self) -> Token {
        Self::token(self)
    }

    fn path(&self) -> &Path {
        Self::path(self)
    }

    fn seen_path(&self) -> &Path {
        Self::seen_path(self)
    }

    fn is_held(&self) -> bool {
        Self::is_held(self)
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        Box::pin(Self::lost(self))
    }

    fn txn(&self) -> Txn {
        Self::txn(self)
    }

    async fn run<T: Send>(&self, work: impl Future<Output = T> + Send) -> Result<T> {
        Self::run(self, work).await
    }

    async fn release(self) -> Result<()> {
        Self::release(self).await
    }
}
