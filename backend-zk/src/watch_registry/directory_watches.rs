//! The watches of the [listing cache](crate::listing_cache). They and the state of the cache are
//! protected by the lock of the registry. They are one-event watches, as in
//! [`once`](super::one_shot); a path with a persistent watch of the registry gets none.

use std::sync::{Arc, Weak};

use futures_util::FutureExt as _;
use synod_core::path::Path;
use synod_core::store::OpResult;
use synod_core::task::spawn;

use crate::client::{Client, OneshotWatcher, ZkStat};
use crate::error::Trouble;
use crate::listing_cache::sole_contender::{CreatedTicket, Listing, PendingCreate, WatchFired};
use crate::watch_registry::{State, WatchRegistry};

/// The response to a request for a watch on a directory, with the directory's stat.
type Response = Result<(Option<ZkStat>, OneshotWatcher), Trouble>;

impl WatchRegistry {
    /// Records that a ticket is about to be created. If the directory is to be watched, that
    /// request has been sent when this returns.
    pub(crate) fn before_create(
        self: &Arc<Self>,
        client: &Arc<Client>,
        dir: &Path,
    ) -> Option<PendingCreate> {
        let mut state = self.state();
        let connection = self.connection.generation();
        let mut create = state.sole_contender.before_create(dir, connection)?;
        if create.wants_watch
            && !state.watches.0.contains_key(dir)
            && state.sole_contender.request_watch(dir, &mut create)
        {
            self.watch_directory(client, dir.clone());
        }
        Some(create)
    }

    /// Requests the watch. A task receives the response, because this runs under the lock, which
    /// is needed to record the response.
    fn watch_directory(self: &Arc<Self>, client: &Client, dir: Path) {
        let (registry, connection) = (Arc::downgrade(self), self.connection.clone());
        let request = client.check_and_watch_stat(dir.as_str());
        spawn(async move { record_watch(&registry, &dir, connection.answer(request).await) })
            .let_go();
    }

    /// Records a ticket that was created. Returns `true` if it is certainly the only child.
    pub(crate) fn ticket_created(
        &self,
        dir: &Path,
        create: &mut PendingCreate,
        done: &OpResult,
        listing: Listing,
    ) -> bool {
        let mut state = self.state();
        let connection = self.connection.generation();
        let Some(sequence) = done.sequence else { return false };
        let ticket = CreatedTicket { path: &done.path, sequence, connection };
        state.sole_contender.created(dir, create, &ticket, listing)
    }

    /// Records that the session has certainly deleted a node.
    pub(crate) fn ticket_deleted(&self, node: &Path) {
        self.state().sole_contender.deleted(node);
    }
}

impl State {
    /// Records the response to the request for a watch on a directory.
    fn record_watch(&mut self, dir: &Path, response: Response) {
        let watch = match response {
            Ok((Some(stat), watcher)) => Some((stat.czxid, fired(watcher))),
            // The directory does not exist. Drop the watch for its creation.
            Ok((None, _)) | Err(_) => None,
        };
        if let Some(unwanted) = self.sole_contender.watch_answered(dir, watch) {
            self.watches.retire(dir, unwanted);
        }
    }

    /// Releases the one-event watch on a directory, because a persistent one was set.
    pub(super) fn release_directory_watch(&mut self, dir: &Path) {
        if let Some(watch) = self.sole_contender.release_watch(dir) {
            self.watches.retire(dir, watch);
        }
    }
}

fn record_watch(registry: &Weak<WatchRegistry>, dir: &Path, response: Response) {
    if let Some(registry) = registry.upgrade() {
        registry.state().record_watch(dir, response);
    }
}

fn fired(watcher: OneshotWatcher) -> WatchFired {
    watcher.changed().map(|_event| ()).boxed()
}
