//! The traits of all guards, [`Held`] and [`Release`], and their fencing token, [`Token`].

use std::fmt;

use futures_core::future::BoxFuture;

use crate::error::Result;
use crate::path::Path;
use crate::store::Txn;

mod token;

pub use token::Token;

/// A guard of one path, of any recipe. For code that works with every kind of guard.
///
/// The guards of `synod-recipes` implement it, and so can the guard of any other recipe that
/// depends on one node.
///
/// # Examples
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path::Path;
/// use synod_core::held::Release;
/// use synod_core::store::Expect;
///
/// /// Writes the token of a lock under the lock, and releases the lock.
/// async fn note(client: &Client, log: &Path, guard: impl Release) -> Result<()> {
///     let write = guard.txn().set(log.clone(), guard.token().to_string(), Expect::Any);
///     client.commit(write).await?.required()?;
///     guard.release().await
/// }
/// ```
pub trait Held: fmt::Debug + Send + Sync {
    /// Returns the fencing token, which is larger for each later holder of the path.
    fn token(&self) -> Token;

    /// Returns the path of the ticket.
    fn path(&self) -> &Path;

    /// Returns [`Held::path`], for tools that only compare it with paths in the store and do not
    /// keep it.
    #[doc(hidden)]
    fn seen_path(&self) -> &Path {
        self.path()
    }

    /// Returns `true` if the guard is certainly held at this moment.
    fn is_held(&self) -> bool;

    /// Waits until the guard is lost. Cancel safe: it only watches.
    fn lost(&self) -> BoxFuture<'_, ()>;

    /// Returns a transaction that is applied only while the guard is held.
    fn txn(&self) -> Txn;

    /// Runs `work` while the guard is held. If the guard is lost, or the call is dropped, `work` is
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`](crate::error::ErrorKind::SessionLost) if the guard was lost
    /// before `work` was done.
    fn run<T: Send>(
        &self,
        work: impl Future<Output = T> + Send,
    ) -> impl Future<Output = Result<T>> + Send
    where
        Self: Sized;
}

/// A guard that can be released early. All guards can, except a guard that belongs to another
/// object, such as the leadership of a candidacy.
pub trait Release: Held + Sized {
    /// Releases the guard. A dropped call continues in the background.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`](crate::error::ErrorKind::SessionLost) if the guard was lost
    /// before, and [`ErrorKind::Unreachable`](crate::error::ErrorKind::Unreachable) if the store
    /// did not answer in time: the node is then removed in the background.
    fn release(self) -> impl Future<Output = Result<()>> + Send;
}

/// # Guards
impl Txn {
    /// Requires in addition that `held` is held, whatever the clocks do. It adds the check that the
    /// node of the guard exists.
    ///
    /// All checks of a transaction are made in its one commit: it is applied while all its guards
    /// are held, or it is rejected and changes nothing.
    /// [`Rejected::path`](crate::store::Rejected::path) is then the node of the first guard that
    /// was lost. Each guard takes one of the operations that the store allows in a transaction.
    ///
    /// The guards may belong to different sessions and clients, provided that all clients use one
    /// store and the same paths as the client that sends the transaction: the paths of one
    /// [namespace](crate::client::Client::namespace).
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
