//! Watches a node for one event, by the server's one-event watch. It is requested together with the
//! node, and the server removes it when it has fired. It continues after a reconnect.
//!
//! An observer that waits for the deletion of an ephemeral node watches the children of the node:
//! there are none, and that watch does not fire at a write of the node. For any other node this
//! watch reports too little, so a persistent one is set.
//!
//! If the path already has a persistent watch, that one is used. If a persistent watch is set
//! later, it replaces this one at the server and reports the events of both; removing this one
//! would then remove the other as well. So this one is kept as long as the other. All additions and
//! removals are in one order, under the lock of the registry.

use std::sync::{Arc, Weak};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either, select};
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{End, Feed, Kind, Node, Query, Revision, View, Watch};
use synod_core::task::spawn;
use tokio::sync::oneshot;

use crate::client::{Client, OneshotWatcher, StateWatcher, WatchedEvent, ZkError};
use crate::connection::Connection;
use crate::error::{Sort, Trouble};
use crate::notification::{Notification, change_for};
use crate::read::{MAX_CONNECTIONS, Once as Found, is_lost, request_once, view_of_once};
use crate::watch_registry::WatchRegistry;

/// The response to a request for the current state with a one-event watch, which has been sent.
type PendingRead = BoxFuture<'static, Result<Found, ZkError>>;

/// One observation for one event.
struct Once {
    registry: Weak<WatchRegistry>,
    query: Query,
    feed: Feed,
    /// Ends when the reader has dropped it.
    read: oneshot::Receiver<()>,
    /// The state of the connection when the watch was requested.
    states: StateWatcher,
}

/// Ends an observation when its reader drops it.
struct Unwatch {
    registry: Weak<WatchRegistry>,
    id: u64,
    _read: oneshot::Sender<()>,
}

impl WatchRegistry {
    /// [`WatchRegistry::observe`] for one event. `None` if a persistent watch is needed.
    pub(super) async fn observe_once(
        self: &Arc<Self>,
        client: &Arc<Client>,
        query: &Query,
    ) -> Option<Result<(View, Watch)>> {
        let (feed, watch) = Feed::once();
        let (watch, view) = self.add_once(client, query, feed, watch)?;
        let view = view.await.unwrap_or_else(|_ended| Some(Err(self.connection.lost("watch"))))?;
        if let Some(why) = self.connection.life.loss() {
            self.end(why);
        }
        Some(view.map(|view| (view, watch)))
    }

    /// The request has been sent when this returns, and nothing has been polled under the lock.
    fn add_once(
        self: &Arc<Self>,
        client: &Arc<Client>,
        query: &Query,
        feed: Feed,
        watch: Watch,
    ) -> Option<(Watch, oneshot::Receiver<Option<Result<View>>>)> {
        let mut states = client.state_watcher();
        let _current = states.state();
        let path = query.path.clone();
        let mut state = self.state();
        if state.watches.0.contains_key(&path) {
            return None;
        }
        let id = state.next;
        state.next += 1;
        state.once.insert(id, feed.clone());
        let (seen, request) =
            (self.connection.seen(), request_once(&self.connection, client, query));
        drop(state);
        let registry = Arc::downgrade(self);
        let (reads, read) = oneshot::channel();
        let unwatch = Unwatch { registry: registry.clone(), id, _read: reads };
        let (reply, view) = oneshot::channel();
        let once = Once { registry, query: query.clone(), feed, read, states };
        spawn(once.run(self.connection.clone(), (seen, request), reply)).let_go();
        Some((watch.with_guard(unwatch), view))
    }

    /// Requests the watch again on the next connection. `None` if a persistent watch has become
    /// necessary, or the session is over.
    fn request_again(&self, query: &Query) -> Option<(Revision, PendingRead)> {
        let client = self.connection.client("watch").ok()?;
        let state = self.state();
        if state.watches.0.contains_key(&query.path) {
            return None;
        }
        Some((self.connection.seen(), request_once(&self.connection, &client, query)))
    }

    fn remove_once(&self, id: u64) {
        let feed = self.state().once.remove(&id);
        drop(feed);
    }
}

impl Once {
    /// Runs until the watch has fired, its reader has dropped it, or the session is over. Sends
    /// `None` to `reply` if a persistent watch is needed.
    async fn run(
        self,
        connection: Arc<Connection>,
        request: (Revision, PendingRead),
        reply: oneshot::Sender<Option<Result<View>>>,
    ) {
        let answer = self.answer(&connection, request).await;
        drop(connection);
        let Some(answer) = answer else {
            self.feed.end(End::Delivered);
            let _delivered = reply.send(None).is_ok();
            return;
        };
        let (view, watcher) = match answer {
            Ok((view, watcher)) => (Ok(view), watcher),
            Err(trouble) => {
                let error = trouble.translate("watch", Sort::Read).at(&self.query.path);
                (Err(error), None)
            }
        };
        let node = view.as_ref().ok().and_then(View::node);
        let (exists, fits) = (node.is_some(), node.is_none_or(|node| self.reports(node)));
        let fired = watcher.map(|watcher| watcher.changed().boxed());
        if exists && fits {
            let _delivered = reply.send(Some(view)).is_ok();
            let Some(fired) = fired else { return };
            match select(fired, self.read).await {
                Either::Left((event, _)) => deliver(&event, self.states, &self.query, &self.feed),
                Either::Right((_, fired)) => retire(&self.registry, &self.query.path, fired),
            }
        } else {
            if let Some(fired) = fired {
                retire(&self.registry, &self.query.path, fired);
            }
            self.feed.end(End::Delivered);
            let _delivered = reply.send(fits.then_some(view)).is_ok();
        }
    }

    /// The current state together with the watch, requested again on the next connection if the
    /// first one was lost. `None` if a persistent watch is needed by then.
    async fn answer(
        &self,
        connection: &Connection,
        request: (Revision, PendingRead),
    ) -> Option<Result<(View, Option<OneshotWatcher>), Trouble>> {
        let (mut seen, mut request) = request;
        for try_number in 1.. {
            let answer = connection.answer(request).await;
            if try_number == MAX_CONNECTIONS || !is_lost(&answer) {
                return Some(view_of_once(connection, &self.query, seen, answer));
            }
            (seen, request) = self.registry.upgrade()?.request_again(&self.query)?;
        }
        None
    }

    /// Returns `true` if this kind of watch reports the event that the query waits for.
    fn reports(&self, node: &Node) -> bool {
        let is_ephemeral = node.stat.is_some_and(|stat| stat.owner.is_some());
        is_ephemeral || !self.query.is_until_gone()
    }
}

/// Retires a watch that observers no longer wait for.
fn retire(registry: &Weak<WatchRegistry>, path: &Path, fired: BoxFuture<'static, WatchedEvent>) {
    if let Some(registry) = registry.upgrade() {
        registry.state().watches.retire(path, fired.map(|_event| ()).boxed());
    }
}

impl Drop for Unwatch {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.upgrade() {
            registry.remove_once(self.id);
        }
    }
}

/// Delivers the event. The end of the session is reported by the registry.
fn deliver(event: &WatchedEvent, mut states: StateWatcher, query: &Query, feed: &Feed) {
    let Some(notification) = Notification::of(event) else { return };
    // After a reconnect the server reports a node that was deleted and created again as updated.
    let clear = notification.kind == Kind::Deleted || states.changed().now_or_never().is_none();
    let _delivered = match change_for(query, &notification) {
        Some(change) if clear => feed.send(change),
        _ => feed.resync(),
    };
}
