//! Watches a node for one event, by the server's own kind of watch. It is requested together with
//! the node, removed by the server when it has fired, and survives reconnects.
//!
//! An observer that waits for the deletion of an ephemeral node watches the children of the node:
//! there are none, and a write of the node does not use up that watch. For any other node this
//! watch reports too little, so a persistent one is set.
//!
//! If the path already has a persistent watch, that one is used. If a persistent watch is set
//! later, it replaces this one at the server and reports the events of both; removing this one
//! would then remove the other as well. So this one is kept as long as the other. All additions and
//! removals are in one order, under the lock of the hub.

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
use crate::hub::Hub;
use crate::notification::{Notification, change_for};
use crate::read::{CONNECTIONS, Once as Found, ask_once, is_lost, shown_once};

/// The answer to a request for the current state with a one-event watch, which has been sent.
type Asked = BoxFuture<'static, Result<Found, ZkError>>;

/// One observation for one event.
struct Once {
    hub: Weak<Hub>,
    query: Query,
    feed: Feed,
    /// Ends when the reader has dropped it.
    read: oneshot::Receiver<()>,
    /// The state of the connection when the watch was requested.
    states: StateWatcher,
}

/// Ends an observation when its reader drops it.
struct Unwatch {
    hub: Weak<Hub>,
    id: u64,
    _read: oneshot::Sender<()>,
}

impl Hub {
    /// [`Hub::observe`] for one event. `None` if a persistent watch is needed.
    pub(super) async fn observe_once(
        self: &Arc<Self>,
        client: &Arc<Client>,
        query: &Query,
    ) -> Option<Result<(View, Watch)>> {
        let (feed, watch) = Feed::once();
        let (watch, view) = self.add_once(client, query, feed, watch)?;
        let view = view.await.unwrap_or_else(|_gone| Some(Err(self.wire.lost("watch"))))?;
        if let Some(why) = self.wire.life.loss() {
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
        let _as_it_is = states.state();
        let path = query.path.clone();
        let mut state = self.state();
        if state.watches.0.contains_key(&path) {
            return None;
        }
        let id = state.next;
        state.next += 1;
        state.once.insert(id, feed.clone());
        let (seen, asked) = (self.wire.seen(), ask_once(&self.wire, client, query));
        drop(state);
        let hub = Arc::downgrade(self);
        let (reads, read) = oneshot::channel();
        let unwatch = Unwatch { hub: hub.clone(), id, _read: reads };
        let (tell, view) = oneshot::channel();
        let once = Once { hub, query: query.clone(), feed, read, states };
        spawn(once.run(self.wire.clone(), (seen, asked), tell)).let_go();
        Some((watch.with_guard(unwatch), view))
    }

    /// Requests it again on the next connection. `None` if a persistent watch is needed by now, or
    /// the session is over.
    fn ask_again(&self, query: &Query) -> Option<(Revision, Asked)> {
        let client = self.wire.client("watch").ok()?;
        let state = self.state();
        if state.watches.0.contains_key(&query.path) {
            return None;
        }
        Some((self.wire.seen(), ask_once(&self.wire, &client, query)))
    }

    fn remove_once(&self, id: u64) {
        let feed = self.state().once.remove(&id);
        drop(feed);
    }
}

impl Once {
    /// Runs until the watch has fired, its reader has dropped it, or the session is over. Sends
    /// `None` to `tell` if a persistent watch is needed.
    async fn run(
        self,
        wire: Arc<Connection>,
        asked: (Revision, Asked),
        tell: oneshot::Sender<Option<Result<View>>>,
    ) {
        let answer = self.answer(&wire, asked).await;
        drop(wire);
        let Some(answer) = answer else {
            self.feed.end(End::Delivered);
            let _heard = tell.send(None).is_ok();
            return;
        };
        let (view, watcher) = match answer {
            Ok((view, watcher)) => (Ok(view), watcher),
            Err(trouble) => {
                let error = trouble.translate("watch", Sort::Read).at(&self.query.path);
                (Err(error), None)
            }
        };
        let found = view.as_ref().ok().and_then(View::node);
        let (there, fits) = (found.is_some(), found.is_none_or(|node| self.tells_of(node)));
        let coming = watcher.map(|watcher| watcher.changed().boxed());
        if there && fits {
            let _heard = tell.send(Some(view)).is_ok();
            let Some(coming) = coming else { return };
            match select(coming, self.read).await {
                Either::Left((event, _)) => say(&event, self.states, &self.query, &self.feed),
                Either::Right((_, coming)) => retire(&self.hub, &self.query.path, coming),
            }
        } else {
            if let Some(coming) = coming {
                retire(&self.hub, &self.query.path, coming);
            }
            self.feed.end(End::Delivered);
            let _heard = tell.send(fits.then_some(view)).is_ok();
        }
    }

    /// The current state together with the watch, requested again on the next connection if the
    /// first one was lost. `None` if a persistent watch is needed by then.
    async fn answer(
        &self,
        wire: &Connection,
        asked: (Revision, Asked),
    ) -> Option<Result<(View, Option<OneshotWatcher>), Trouble>> {
        let (mut seen, mut asked) = asked;
        for connection in 1.. {
            let answer = wire.answer(asked).await;
            if connection == CONNECTIONS || !is_lost(&answer) {
                return Some(shown_once(wire, &self.query, seen, answer));
            }
            (seen, asked) = self.hub.upgrade()?.ask_again(&self.query)?;
        }
        None
    }

    /// Whether this kind of watch reports the event that the query waits for.
    fn tells_of(&self, node: &Node) -> bool {
        let is_ephemeral = node.stat.is_some_and(|stat| stat.owner.is_some());
        is_ephemeral || !self.query.is_until_gone()
    }
}

/// Retires a watch that no observer waits for any more.
fn retire(hub: &Weak<Hub>, path: &Path, coming: BoxFuture<'static, WatchedEvent>) {
    if let Some(hub) = hub.upgrade() {
        hub.state().watches.retire(path, coming.map(|_told| ()).boxed());
    }
}

impl Drop for Unwatch {
    fn drop(&mut self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.remove_once(self.id);
        }
    }
}

/// Delivers the event. The end of the session is reported by the hub.
fn say(event: &WatchedEvent, mut states: StateWatcher, query: &Query, feed: &Feed) {
    let Some(notification) = Notification::of(event) else { return };
    // After a reconnect the server reports a node that was deleted and created again as updated.
    let clear = notification.kind == Kind::Deleted || states.changed().now_or_never().is_none();
    let _heard = match change_for(query, &notification) {
        Some(change) if clear => feed.send(change),
        _ => feed.resync(),
    };
}
