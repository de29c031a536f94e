//! [`Promotion`]: changes that lost too often go on under a lock, and the others stand back. [`Lock`]: that lock, as the
//! writer of a cell sees it.

use futures_core::future::BoxFuture;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::held::Held;
use synod_core::path::Path;

use crate::mutant::mistake;

#[cfg_attr(not(doctest), doc = include_str!("../../docs/promotion.md"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promotion {
    after: u32,
    at: Option<Path>,
}

impl Promotion {
    /// After so many lost tries. With 0 each change waits for the lock before its first. The lock of `/counters/orders` is
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
