//! [`Hold`]: the hold of a granted ticket, with its metrics, and `guard!`, which defines the guard
//! of a recipe.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use futures_util::future::{Either, select};
use synod_core::clock::{self, Instant};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::held::{Held, Token};
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::Txn;
use tracing::Span;
use tracing::field::{Empty, debug, display};

use crate::line::meter;
use crate::line::ticket_node::TicketNode;

/// A lock, permits or leadership, while they are held. Dropping it releases them in the background.
///
/// `K` is the data of the recipe.
pub(crate) struct Hold<K = ()> {
    pub(crate) node: TicketNode,
    pub(crate) kind: K,
    metrics: HoldMetrics,
}

/// Adds to a type the methods of the [`Hold`] in its first field.
macro_rules! held {
    ($name:ident) => {
        impl $name {
            /// The fencing token, for systems outside the store: larger for each later holder.
            pub fn token(&self) -> ::synod_core::held::Token {
                self.0.token()
            }

            /// The path of the ticket of this guard.
            pub fn path(&self) -> &::synod_core::path::Path {
                self.0.path()
            }

            /// Returns `true` if the guard is certainly held at this moment. Returns `false` as
            /// soon as the session is not certain, before any notification of the loss. A removal
            /// of the node by another client is noticed only during `lost` or `run`.
            ///
            /// The result is valid only at the moment of the check: a process that is paused
            /// between the check and its next action may act too late. Work that must be exclusive
            /// without any assumption belongs in the transaction of `txn`, or to a system that
            /// compares tokens.
            pub fn is_held(&self) -> bool {
                self.0.is_held()
            }

            /// Waits until the guard is lost: its session is lost, or another client removed its
            /// node. A removal may be noticed only when a third of the session's TTL has passed
            /// since the ticket was created.
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: it only watches.
            pub async fn lost(&self) {
                self.0.lost().await;
            }

            /// A transaction that is applied only while the guard is held, independent of any
            /// clock: it begins with the check that the node exists. Add operations to it, and send
            /// it with the same client. For more than one guard use
            /// [`Txn::under`](synod_core::store::Txn::under), which has an example.
            pub fn txn(&self) -> ::synod_core::store::Txn {
                self.0.txn()
            }

            /// Runs `work` while the guard is held: `work` is dropped when the guard is lost.
            ///
            /// # Errors
            ///
            /// [`SessionLost`](synod_core::error::ErrorKind) if the guard was lost before `work`
            /// completed.
            ///
            /// # Cancel safety
            ///
            /// A dropped call drops `work`.
            pub async fn run<T>(
                &self,
                work: impl Future<Output = T>,
            ) -> ::synod_core::error::Result<T> {
                self.0.run(work).await
            }

            /// Waits until another client [requests](crate::lock::request_release) the release. The
            /// guard remains held: the holder decides whether to release it.
            ///
            /// # Errors
            ///
            /// [`SessionLost`](synod_core::error::ErrorKind) if the guard is lost before such a
            /// request, and any error that the store returns.
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: it only watches.
            pub async fn release_requested(&self) -> ::synod_core::error::Result<()> {
                self.0.release_requested().await
            }
        }

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                self.0.show(stringify!($name), f)
            }
        }

        impl ::synod_core::held::Held for $name {
            fn token(&self) -> ::synod_core::held::Token {
                Self::token(self)
            }

            fn path(&self) -> &::synod_core::path::Path {
                Self::path(self)
            }

            fn seen_path(&self) -> &::synod_core::path::Path {
                self.0.node.path()
            }

            fn is_held(&self) -> bool {
                Self::is_held(self)
            }

            fn lost(&self) -> ::futures_core::future::BoxFuture<'_, ()> {
                Box::pin(Self::lost(self))
            }

            fn txn(&self) -> ::synod_core::store::Txn {
                Self::txn(self)
            }

            async fn run<T: Send>(
                &self,
                work: impl Future<Output = T> + Send,
            ) -> ::synod_core::error::Result<T> {
                Self::run(self, work).await
            }
        }
    };
}

/// Defines the guard of a recipe around a [`Hold`].
macro_rules! guard {
    ($(#[$attribute:meta])* $name:ident($kind:ty)) => {
        $(#[$attribute])*
        ///
        /// Dropping it releases it in the background.
        #[must_use = "dropping this releases it"]
        pub struct $name(pub(crate) $crate::line::hold::Hold<$kind>);

        $crate::line::hold::held!($name);

        impl $name {
            /// Releases the guard. When this returns without an error, the next waiter can be
            /// granted.
            ///
            /// # Errors
            ///
            /// [`SessionLost`](synod_core::error::ErrorKind) if the guard was lost before: there is
            /// nothing to release. [`Unreachable`](synod_core::error::ErrorKind) if the release
            /// takes too long: it continues in the background, until it is done or the session has
            /// ended.
            ///
            /// # Cancel safety
            ///
            /// A dropped call continues in the background.
            pub async fn release(self) -> ::synod_core::error::Result<()> {
                self.0.give_back().await
            }
        }

        impl ::synod_core::held::Release for $name {
            async fn release(self) -> ::synod_core::error::Result<()> {
                Self::release(self).await
            }
        }
    };
}

pub(crate) use {guard, held};

guard! {
    /// A guard of a [`Mutex`](crate::lock::Mutex), or of one of the locks of a
    /// [`MultiLock`](crate::lock::MultiLock).
    MutexGuard(())
}

/// The leadership of an election, for checks, guarded transactions and the token. It ends with the
/// candidacy or the work that it belongs to, independent of its clones.
#[derive(Clone)]
pub struct Leadership(pub(crate) Arc<Hold>);

held!(Leadership);

impl Leadership {
    /// The session of its ticket.
    pub(crate) fn session(&self) -> &Session {
        self.0.node.session()
    }

    /// The path of its ticket, for callers that neither keep it nor use it in a request.
    pub(crate) fn ticket(&self) -> &Path {
        self.0.node.path()
    }
}

impl<K> Hold<K> {
    pub(crate) fn new(node: TicketNode, recipe: &'static str, kind: K) -> Self {
        let metrics = HoldMetrics::of(&node, recipe);
        Self { node, kind, metrics }
    }

    /// The same hold, with other data of the recipe.
    pub(crate) fn map<L>(self, kind: impl FnOnce(K) -> L) -> Hold<L> {
        let Self { node, kind: before, metrics } = self;
        Hold { node, kind: kind(before), metrics }
    }

    /// The same hold, handed over within this process.
    pub(crate) fn passed_on(mut self) -> Self {
        self.node.pass_on();
        self.metrics = HoldMetrics::of(&self.node, self.metrics.recipe);
        self
    }

    /// The fencing token.
    pub(crate) fn token(&self) -> Token {
        self.node.token()
    }

    /// The path of its ticket, for code outside this library.
    pub(crate) fn path(&self) -> &Path {
        self.node.public_path()
    }

    /// Returns `true` if it is certainly held at this moment.
    pub(crate) fn is_held(&self) -> bool {
        self.node.session().is_certain() && !self.node.is_gone()
    }

    /// Waits until it is lost.
    pub(crate) async fn lost(&self) {
        self.node.lost().await;
    }

    /// A transaction that is applied only while this is held.
    pub(crate) fn txn(&self) -> Txn {
        self.node.check(Txn::new())
    }

    /// Runs `work` while this is held.
    pub(crate) async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        match select(pin!(work), pin!(self.lost())).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right(_) => Err(Error::new(ErrorKind::SessionLost, "holding on")
                .at(self.node.path())
                .because("it was lost; the work under it was stopped")),
        }
    }

    /// Releases it. After that [`Hold::is_held`] is false for all clones.
    pub(crate) async fn give_back(&self) -> Result<()> {
        if self.node.is_gone() {
            return Err(self.node.was_lost());
        }
        self.node.remove().await
    }

    /// Releases it in the background, even if it is shared.
    pub(crate) fn give_up(&self) {
        self.node.give_up();
    }
}

impl<K> Hold<K> {
    /// Writes the `Debug` output of a guard.
    pub(crate) fn show(&self, guard: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(guard)
            .field("recipe", &self.metrics.recipe)
            .field("path", self.node.path())
            .field("token", &self.token())
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

impl<K> fmt::Debug for Hold<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show("Hold", f)
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
        self.node.path()
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
}

/// Measures the duration of a hold, and reports it when dropped.
struct HoldMetrics {
    recipe: &'static str,
    since: Instant,
    span: Span,
}

impl HoldMetrics {
    fn of(node: &TicketNode, recipe: &'static str) -> Self {
        let (ticket, token) = (node.path(), node.token());
        let path = ticket.parent().map(display);
        let span = tracing::debug_span!("holding", recipe, path, %ticket, %token, held = Empty);
        Self { recipe, since: clock::now(), span }
    }
}

impl Drop for HoldMetrics {
    fn drop(&mut self) {
        let held = clock::elapsed(self.since);
        meter::held(self.recipe, held);
        self.span.record("held", debug(held));
    }
}
