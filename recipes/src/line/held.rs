//! [`Held`]: what every guard can do, whatever its recipe.

use std::fmt;

use futures_core::future::BoxFuture;

use crate::error::Result;
use crate::line::hold::Hold;
use crate::line::token::Token;
use crate::path::Path;
use crate::store::Txn;

/// Something held at one path, by whatever recipe: for code that works under any guard.
///
/// Each method means what the method of [`Hold`] with the same name means. The trait is kept by [`Hold`], and so by
/// the guards of mutexes, read-write locks, semaphores and elections; by
/// [`PassingGuard`](crate::recipe::PassingGuard); and by [`ReentrantGuard`](crate::recipe::ReentrantGuard).
///
/// - A [`MultiGuard`](crate::recipe::MultiGuard) has several paths, each with a token of its own. Each of its
///   [`holds`](crate::recipe::MultiGuard::holds) keeps the trait; for all of them together it has methods of its own.
/// - A [`Leadership`](crate::recipe::Leadership) is a [`Hold`] behind an `Arc`: `&*leadership` keeps the trait. It is given
///   back by the candidacy or the work that it belongs to.
///
/// # Examples
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path::Path;
/// use synod_core::recipe::{Held, Mutex, RwLock};
/// use synod_core::store::Expect;
///
/// /// Writes its token under whatever lock it is given, and gives the lock back.
/// async fn note(client: &Client, log: &Path, guard: impl Held) -> Result<()> {
///     let write = guard.txn().set(log.clone(), guard.token().to_string(), Expect::Any);
///     client.transaction(write).await?.required()?;
///     guard.release().await
/// }
///
/// # async fn example(client: Client, log: Path) -> Result<()> {
/// note(&client, &log, Mutex::new(&client, Path::new("/locks/a")?).lock().await?).await?;
/// note(&client, &log, RwLock::new(&client, Path::new("/locks/b")?).write().await?).await
/// # }
/// ```
pub trait Held: fmt::Debug + Send + Sync {
    /// The fencing token: larger for each later holder of the path.
    fn token(&self) -> Token;

    /// The node of the ticket.
    fn path(&self) -> &Path;

    /// [`Hold::seen_path`].
    #[doc(hidden)]
    fn seen_path(&self) -> &Path;

    /// Whether it is certainly held at this moment.
    fn is_held(&self) -> bool;

    /// Waits until it is lost. Cancel safe: it only watches.
    fn lost(&self) -> BoxFuture<'_, ()>;

    /// A transaction that happens only while this is held.
    fn txn(&self) -> Txn;

    /// Does `work` while this is held. When it is lost, or the call is dropped, `work` is dropped.
    ///
    /// # Errors
    ///
    /// As [`Hold::run`].
    fn run<T: Send>(
        &self,
        work: impl Future<Output = T> + Send,
    ) -> impl Future<Output = Result<T>> + Send
    where
        Self: Sized;

    /// Gives it back. A dropped call goes on in the background.
    ///
    /// # Errors
    ///
    /// As [`Hold::release`].
    fn release(self) -> impl Future<Output = Result<()>> + Send
    where
        Self: Sized;
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

/// # Guards
impl Txn {
    /// Goes on only while this is held, too, whatever the clocks do. It adds the check that the node of the hold is there.
    ///
    /// All checks of a transaction are made in its one commit: it is applied while all guards that it is under are held, or
    /// it is rejected and changes nothing. [`Rejected::path`](crate::store::Rejected::path) then is the node of the first one that
    /// is gone. Each guard takes one of the operations that the store allows in a transaction.
    ///
    /// The guards may be of different sessions and clients, provided that all clients are of one store and call its paths the
    /// same as the client that sends it: of one [namespace](crate::client::Client::namespace).
    ///
    /// # Examples
    ///
    /// ```
    /// # use synod_core::client::Client;
    /// # use synod_core::error::Result;
    /// # use synod_core::path;
    /// use synod_core::recipe::{Election, Mutex};
    /// use synod_core::store::{Expect, Txn};
    ///
    /// # async fn example(client: Client) -> Result<()> {
    /// let lead = Election::new(&client, path!("/cron/leader")).campaign("ann").await?;
    /// let guard = Mutex::new(&client, path!("/cron/jobs/backup")).lock().await?;
    /// let write = Txn::new().under(&lead).under(&guard).set(path!("/cron/last"), "backup", Expect::Any);
    /// let written = client.transaction(write).await?;
    /// assert!(written.committed().is_some(), "else the lead or the lock was lost before");
    /// # Ok(())
    /// # }
    /// ```
    pub fn under(mut self, held: &(impl Held + ?Sized)) -> Self {
        self.ops.extend(held.txn().ops);
        self
    }
}
