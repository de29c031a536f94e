//! [`Promotion`]: changes that lost too often go on under a lock, and the others stand back. [`Lock`]: that lock, as the
//! writer of a cell sees it.

use futures_core::future::BoxFuture;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::held::Held;
use synod_core::path::Path;

use crate::mutant::mistake;

/// When a change of a value goes on under a lock.
///
/// A change that lost its race against other clients so many times waits for the lock, in the order of the requests. While a
/// change has the lock, all clients that made the value with a promotion at the same lock let it go first: it meets no more
/// races, and is made.
///
/// A change that waits for the lock, or for one under it, waits as long as for any lock: a client under the lock that stops
/// answering holds the others up until its session ends.
///
/// Give every client of the path the same promotion. One that has none, or that is not of this library, is let in at any time,
/// and may be faster than a change under the lock: that one then tries again.
///
/// # Examples
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path::Path;
/// use synod_recipes::{Counter, Promotion};
///
/// # async fn example(client: Client) -> Result<()> {
/// let orders = Counter::new(&client, Path::new("/counters/orders")?).promote(Promotion::after(5));
/// let cost = orders.increment().await?.cost;
/// println!("{} tries, {} of them under the lock", cost.tries, cost.promoted_tries);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promotion {
    after: u32,
    at: Option<Path>,
}

impl Promotion {
    /// After so many lost tries; with 0 each change waits for the lock before its first. The lock of `/counters/orders` is
    /// `/counters/orders-promotion`.
    pub fn after(tries: u32) -> Self {
        Self { after: tries, at: None }
    }

    /// Sets the path of the lock: for one that is shared with Curator's `PromotedToLock`, or by several values. A client that
    /// holds the lock by other means must not change the value meanwhile: it would wait for itself.
    pub fn at(self, lock: impl Into<Path>) -> Self {
        Self { at: Some(lock.into()), ..self }
    }
}

/// Waits for the lock at a path.
pub(crate) type Enter = fn(&Client, Path) -> BoxFuture<'static, Result<Box<dyn Held>>>;

/// The lock of the changes of one value that are promoted.
pub(super) struct Lock {
    promotion: Promotion,
    enter: Enter,
}

impl Lock {
    pub(super) fn new(promotion: Promotion, enter: Enter) -> Self {
        Self { promotion, enter }
    }

    /// How many tries are made without it.
    pub(super) fn tries_without(&self) -> u32 {
        mistake!(NeverPromoted: return u32::MAX);
        self.promotion.after
    }

    /// The directory of its tickets.
    pub(super) fn dir(&self, cell: &Path) -> Result<Path> {
        match &self.promotion.at {
            Some(lock) => Ok(lock.clone()),
            // Not below the value: a ticket there would keep a value from being made again that was removed.
            None => Ok(Path::new(&format!("{cell}-promotion"))?),
        }
    }

    /// Waits for it.
    pub(super) async fn enter(&self, client: &Client, cell: &Path) -> Result<Box<dyn Held>> {
        (self.enter)(client, self.dir(cell)?).await
    }
}
