//! Known-wrong stores, for testing the cases.
//!
//! A law proves little if it was never broken. [`Wrong`] wraps any correct backend and makes
//! exactly one [`Mistake`], from outside: no backend contains wrong code. Each case names the
//! mistakes that it catches, and the tests of a backend show that it does.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use synod_core::error::Result;
use synod_core::store::{Backend, SessionOptions, Store};

mod calls;
mod events;
mod expiry;
mod life;
mod listing;
mod mistake;
mod node_view;
mod outage;
mod owned_nodes;
mod past;
mod reading;
mod sequence;
mod session;
mod shared;
mod store;
mod transaction;
mod tree;
mod validation;
mod watch_state;
mod watching;
mod writing;

pub use mistake::Mistake;
use shared::Shared;
use store::WrongStore;

/// A backend that makes one mistake. Clones are the same store.
#[derive(Clone)]
pub struct Wrong {
    inner: Arc<dyn Backend>,
    shared: Arc<Shared>,
}

impl Wrong {
    /// Wraps `inner` and makes `mistake`.
    pub fn new(inner: Arc<dyn Backend>, mistake: Mistake) -> Self {
        Self::around(inner, Some(mistake))
    }

    /// Wraps `inner` and makes no mistake: a case must have the same verdict as for `inner`.
    pub fn transparent(inner: Arc<dyn Backend>) -> Self {
        Self::around(inner, None)
    }

    /// The same wrong store over another connection.
    pub fn by_way_of(&self, inner: Arc<dyn Backend>) -> Self {
        Self { inner, shared: self.shared.clone() }
    }

    fn around(inner: Arc<dyn Backend>, mistake: Option<Mistake>) -> Self {
        let shared = Shared::new(inner.clone(), mistake);
        Self { inner, shared: Arc::new(shared) }
    }
}

#[async_trait]
impl Backend for Wrong {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        let mut options = options.clone();
        if options.ttl.is_zero() && self.shared.makes(Mistake::TtlZeroAccepted) {
            options = SessionOptions::default();
        }
        let inner: Arc<dyn Store> = Arc::from(self.inner.open(&options).await?);
        let info = self.shared.info(options.ttl, inner.session());
        expiry::begin(&self.shared, &inner).await?;
        Ok(Box::new(WrongStore::start(self.shared.clone(), inner, info)))
    }
}

impl fmt::Debug for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wrong")
            .field("inner", &self.inner)
            .field("mistake", &self.shared.mistake)
            .finish()
    }
}
