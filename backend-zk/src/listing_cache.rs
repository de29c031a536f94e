//! [`ListingCache`]: omits the listing that follows the create of a ticket, in directories where
//! this session is the only contender.
//!
//! A commit uses it only through the three methods of [`ListingCache`]. Without the cache every
//! listing is requested: the results are the same, but a lock without contention costs a second
//! request.

use std::sync::Arc;

use synod_core::path::Path;
use synod_core::store::OpResult;

use crate::client::Client;
use crate::listing_cache::sole_contender::{Listing, PendingCreate};
use crate::watch_registry::WatchRegistry;

pub(crate) mod sole_contender;

/// The directories in which the session is the only contender.
#[derive(Debug)]
pub(crate) struct ListingCache {
    /// The owner of the watches on these directories. `None` if the cache is disabled.
    registry: Option<Arc<WatchRegistry>>,
}

impl ListingCache {
    pub(crate) fn new(registry: Arc<WatchRegistry>, is_on: bool) -> Self {
        Self { registry: is_on.then_some(registry) }
    }

    /// Call this before the create of a ticket in `dir` is sent. `None` if nothing is recorded
    /// about the directory. Otherwise the result of the create must be passed to [`Self::created`].
    pub(crate) fn before_create(&self, client: &Arc<Client>, dir: &Path) -> Option<PendingCreate> {
        self.registry.as_ref()?.before_create(client, dir)
    }

    /// Records a ticket that was created. Returns `true` if it is certainly the only child.
    /// Otherwise, if the listing was omitted, the caller must request it and record it with the
    /// same `create`.
    pub(crate) fn created(
        &self,
        dir: &Path,
        create: &mut PendingCreate,
        done: &OpResult,
        listing: Listing,
    ) -> bool {
        self.registry
            .as_ref()
            .is_some_and(|registry| registry.ticket_created(dir, create, done, listing))
    }

    /// Records that the session has certainly deleted a node.
    pub(crate) fn deleted(&self, node: &Path) {
        if let Some(registry) = &self.registry {
            registry.ticket_deleted(node);
        }
    }
}
