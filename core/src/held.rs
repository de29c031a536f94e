//! [`Held`]: what the guard of every recipe can do. [`Token`]: the fencing token of a guard.

use std::fmt;

use futures_core::future::BoxFuture;

use crate::error::Result;
use crate::path::Path;
use crate::store::Txn;

mod token;

pub use token::Token;

/// A guard of one path, of any recipe: for code that works under any guard.
///
/// The guards of `synod-recipes` implement it, and so does the guard of any other recipe that depends on one node.
///
/// # Examples
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path::Path;
/// use synod_core::held::Held;
/// use synod_core::store::Expect;
///
/// /// Writes the token of a lock under the lock, and releases the lock.
/// async fn note(client: &Client, log: &Path, guard: impl Held) -> Result<()> {
///     let write = guard.txn().set(log.clone(), guard.token().to_string(), Expect::Any);
///     client.commit(write).await?.required()?;
///     guard.release().await
/// }
/// ```
pub trait Held: fmt::Debug + Send + Sync {
    /// The fencing token: larger for each later holder of the path.
    fn token(&self) -> Token;

    /// The path of the ticket.
    fn path(&self) -> &Path;

    /// [`Held::path`], for tools that only compare it with what they see in the store, and keep it no longer than that.
    #[doc(hidden)]
    fn seen_path(&self) -> &Path {
        self.path()
    }

    /// Whether it is certainly held at this moment.
    fn is_held(&self) -> bool;

    /// Waits until it is lost. Cancel safe: it only watches.
    fn lost(&self) -> BoxFuture<'_, ()>;

    /// A transaction that is applied only while this is held.
    fn txn(&self) -> Txn;

    /// Runs `work` while this is held. When it is lost, or the call is dropped, `work` is dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`](crate::error::ErrorKind::SessionLost) if it was lost before `work` was done.
    fn run<T: Send>(
        &self,
        work: impl Future<Output = T> + Send,
    ) -> impl Future<Output = Result<T>> + Send
    where
        Self: Sized;

    /// Releases it. A dropped call continues in the background.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`](crate::error::ErrorKind::SessionLost) if it was lost before, and
    /// [`ErrorKind::Unreachable`](crate::error::ErrorKind::Unreachable) if the store did not answer in time: the node
    /// is then removed in the background.
    fn release(self) -> impl Future<Output = Result<()>> + Send
    where
        Self: Sized;
}

/// # Guards
impl Txn {
    /// Requires that this is held, too, whatever the clocks do. It adds the check that the node of the hold exists.
    ///
    /// All checks of a transaction are made in its one commit: it is applied while all guards that it is under are
    /// held, or it is rejected and changes nothing. [`Rejected::path`](crate::store::Rejected::path) then is the node
    /// of the first guard that is gone. Each guard takes one of the operations that the store allows in a transaction.
    ///
    /// The guards may be of different sessions and clients, provided that all clients are of one store and use the same
    /// paths as the client that sends it: those of one [namespace](crate::client::Client::namespace).
    ///
    /// # Examples
    ///
    /// ```
    /// # use synod_core::error::Result;
    /// # use synod_core::held::Held;
    /// # use synod_core::path;
    /// use synod_core::store::{Expect, Txn};
    ///
    /// # fn example(lead: impl Held, guard: impl Held) -> Result<Txn> {
    /// let both = Txn::new().under(&lead).under(&guard).set(path!("/cron/last"), "backup", Expect::Any);
    /// # Ok(both)
    /// # }
    /// ```
    pub fn under(mut self, held: &(impl Held + ?Sized)) -> Self {
        self.ops.extend(held.txn().ops);
        self
    }
}
