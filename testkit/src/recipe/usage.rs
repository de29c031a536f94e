//! A way to use a recipe, from its beginning to its end: [`Use`].

use std::fmt::{self, Debug};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;

use crate::recipe::proof::Proof;

/// The label of everything that is held through the table.
pub const LABEL: &str = "ann";

/// A way to use a recipe.
#[derive(Clone, Copy)]
#[expect(clippy::exhaustive_structs, reason = "each part must be given: that is what it is for")]
pub struct Use {
    /// Its name, which is that in metrics and spans if it has them.
    pub name: &'static str,
    /// The action.
    pub act: Act,
    /// `true` if it continues while the store does not answer for longer than the time limit of a
    /// call.
    pub outlasts: bool,
}

/// A call of a recipe at a path.
pub type Call<T> = fn(Client, Path) -> BoxFuture<'static, Result<T>>;

/// The action of a use.
#[derive(Clone, Copy)]
#[expect(clippy::exhaustive_enums, reason = "checks must know each of them")]
pub enum Act {
    /// Waits, and holds the granted guard until it releases it.
    Hold {
        /// Waits until it is granted.
        take: Call<Box<dyn Proof>>,
        /// Acquires a conflicting guard.
        rival: Call<Box<dyn Proof>>,
        /// `true` if waits and holds of this name are measured, and are spans.
        measured: bool,
    },
    /// Changes a value twice, or reserves two parts of it, and does not wait for other clients.
    Change {
        /// Makes the changes.
        change: Call<()>,
        /// `true` if changes of this name are measured, and are spans.
        measured: bool,
    },
    /// Waits for other clients, and holds nothing.
    Pass {
        /// Waits.
        wait: Call<()>,
        /// Makes others wait.
        bar: Call<()>,
        /// Lets the waiters pass.
        lift: Call<()>,
    },
}

/// The obstacle of a use, which waits until this is removed.
#[must_use = "it is removed by `remove`"]
pub struct Obstacle(Box<dyn FnOnce() -> BoxFuture<'static, Result<()>> + Send>);

impl Use {
    /// Runs the use from its beginning to its end without an obstacle: a granted guard is released,
    /// and a barrier is lifted first.
    ///
    /// # Errors
    ///
    /// The errors of the recipe.
    ///
    /// # Cancel safety
    ///
    /// The same as of the calls of the recipe that it makes.
    pub async fn whole(&self, client: &Client, path: &Path) -> Result<()> {
        if let Act::Pass { lift, .. } = self.act {
            lift(client.clone(), path.clone()).await?;
        }
        self.waiting(client, path).await
    }

    /// Runs the use from its beginning to its end. It waits for its obstacle.
    ///
    /// # Errors
    ///
    /// The errors of the recipe.
    ///
    /// # Cancel safety
    ///
    /// The same as of the calls of the recipe that it makes.
    pub async fn waiting(&self, client: &Client, path: &Path) -> Result<()> {
        match self.begin(client, path).await? {
            Some(proof) => proof.release().await,
            None => Ok(()),
        }
    }

    /// Runs the use up to its guard, if it has one that is to be released.
    ///
    /// # Errors
    ///
    /// The errors of the recipe.
    ///
    /// # Cancel safety
    ///
    /// The same as of the calls of the recipe that it makes.
    pub async fn begin(&self, client: &Client, path: &Path) -> Result<Option<Box<dyn Proof>>> {
        let (client, path) = (client.clone(), path.clone());
        match self.act {
            Act::Hold { take, .. } => take(client, path).await.map(Some),
            Act::Change { change: call, .. } | Act::Pass { wait: call, .. } => {
                call(client, path).await.map(|()| None)
            }
        }
    }

    /// Makes this use wait, if it ever waits for other clients.
    ///
    /// # Errors
    ///
    /// The errors of the recipe.
    ///
    /// # Cancel safety
    ///
    /// The same as of the calls of the recipe that it makes.
    pub async fn obstruct(&self, client: &Client, path: &Path) -> Result<Option<Obstacle>> {
        let (client, path) = (client.clone(), path.clone());
        match self.act {
            Act::Hold { rival, .. } => {
                let proof = rival(client, path).await?;
                Ok(Some(Obstacle(Box::new(|| proof.release()))))
            }
            Act::Change { .. } => Ok(None),
            Act::Pass { bar, lift, .. } => {
                bar(client.clone(), path.clone()).await?;
                Ok(Some(Obstacle(Box::new(move || lift(client, path)))))
            }
        }
    }

    /// Returns `true` if the use waits for other clients.
    pub fn waits(&self) -> bool {
        !matches!(self.act, Act::Change { .. })
    }
}

impl Obstacle {
    /// Removes the obstacle.
    ///
    /// # Errors
    ///
    /// The errors of the recipe.
    ///
    /// # Cancel safety
    ///
    /// The same as of the calls of the recipe that it makes.
    pub async fn remove(self) -> Result<()> {
        (self.0)().await
    }
}

impl Debug for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Use").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Debug for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hold { .. } => "Hold",
            Self::Change { .. } => "Change",
            Self::Pass { .. } => "Pass",
        })
    }
}

impl Debug for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Obstacle")
    }
}

/// Runs a call, and ignores its result.
pub(super) fn done<T>(
    call: impl Future<Output = Result<T>> + Send + 'static,
) -> BoxFuture<'static, Result<()>> {
    async move { call.await.map(drop) }.boxed()
}
