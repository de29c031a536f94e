//! The guard of a use of any recipe: [`Proof`].

use std::fmt::Debug;
use std::future::pending;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use synod_core::error::Result;
use synod_core::held::{Held, Release, Token};
use synod_core::path::Path;
use synod_core::store::Txn;

/// The guard of a use of a recipe. Dropping it releases it. Its methods forward to the guard,
/// except for uses with several guards.
pub trait Proof: Debug + Send + Sync {
    /// The guard, or the last of several.
    fn guard(&self) -> &dyn Held;

    /// The fencing token.
    fn token(&self) -> Token {
        self.guard().token()
    }

    /// The path of the ticket, or of the last of several.
    fn path(&self) -> Path {
        self.guard().path().clone()
    }

    /// Returns `true` if the use is certainly held at this moment.
    fn is_held(&self) -> bool {
        self.guard().is_held()
    }

    /// Waits until it is lost.
    fn lost(&self) -> BoxFuture<'_, ()> {
        self.guard().lost()
    }

    /// Returns a transaction that is applied only while it is held.
    fn txn(&self) -> Txn {
        self.guard().txn()
    }

    /// Runs endless work under the guard, and returns the result.
    fn work(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Releases it.
    fn release(self: Box<Self>) -> BoxFuture<'static, Result<()>>;
}

/// The proof of a use with a single guard.
#[derive(Debug)]
struct Single<G>(G);

/// Waits for a guard, and returns its proof.
pub(super) fn held<G: Release + 'static>(
    granting: impl Future<Output = Result<G>> + Send + 'static,
) -> BoxFuture<'static, Result<Box<dyn Proof>>> {
    async move { Ok(Box::new(Single(granting.await?)) as Box<dyn Proof>) }.boxed()
}

impl<G: Release + 'static> Proof for Single<G> {
    fn guard(&self) -> &dyn Held {
        &self.0
    }

    fn work(&mut self) -> BoxFuture<'_, Result<()>> {
        self.0.run(pending()).boxed()
    }

    fn release(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async { self.0.release().await }.boxed()
    }
}
