//! Watching a node for one event: the server's own kind of watch. It is asked for together with the
//! node, is gone by itself when it has told, and lives on across connections.
//!
//! Who waits for a node to go watches its children, of which an ephemeral node has none: what is written to it does not
//! use that watch up. Of another node that tells too little, and it is watched for good.
//!
//! Where the path is watched for good already, that watch tells. If one for good comes later, it takes the
//! place of this one at the server, and tells both; to take this one away would take that one, too. So this
//! one is kept as long as the other. What is added and taken away is, in one order, under the lock of the hub.

use std::sync::{Arc, Weak};
use std::task::{Context, Waker};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either, select};
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{End, Feed, Kind, Node, Query, View, Watch};
use synod_core::task::spawn;
use tokio::sync::oneshot;
use zookeeper_client::{StateWatcher, WatchedEvent};

use crate::error::Sort;
use crate::hub::{Hub, Watches};
use crate::news::{News, told};
use crate::read::watched_once;
use crate::wire::Wire;

/// One observation for one event.
struct Once {
    hub: Weak<Hub>,
    query: Query,
    feed: Feed,
    /// Ends when its reader has dropped it.
    read: oneshot::Receiver<()>,
}

/// Ends an observation when its reader drops it.
struct Unwatch {
    hub: Weak<Hub>,
    path: Path,
    id: u64,
    _read: oneshot::Sender<()>,
}

impl Hub {
    /// [`Hub::observe`] for one event. `None` if that takes another kind of watch.
    pub(super) async fn observe_once(
        self: &Arc<Self>,
        query: &Query,
    ) -> Option<Result<(View, Watch)>> {
        let (feed, watch) = Feed::once();
        let (watch, view) = self.add_once(query, feed, watch)?;
        let view = view.await.unwrap_or_else(|_gone| Some(Err(self.wire.lost("observe"))))?;
        if let Some(why) = self.wire.life.loss() {
            self.end(why);
        }
        Some(view.map(|view| (view, watch)))
    }

    /// The request has left when this returns.
    fn add_once(
        self: &Arc<Self>,
        query: &Query,
        feed: Feed,
        watch: Watch,
    ) -> Option<(Watch, oneshot::Receiver<Option<Result<View>>>)> {
        let mut state = self.state();
        let path = query.path.clone();
        if state.watches.by_path.contains_key(&path) || !state.watches.add_once(&path) {
            return None;
        }
        let id = state.next;
        state.next += 1;
        state.once.insert(id, feed.clone());
        let hub = Arc::downgrade(self);
        let (reads, read) = oneshot::channel();
        let unwatch = Unwatch { hub: hub.clone(), path, id, _read: reads };
        let (tell, view) = oneshot::channel();
        let once = Once { hub, query: query.clone(), feed, read };
        let mut once = Box::pin(once.run(self.wire.clone(), tell));
        let _not_yet = once.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        spawn(once).let_go();
        Some((watch.with_guard(unwatch), view))
    }

    fn remove_once(&self, path: &Path, id: u64) {
        let mut state = self.state();
        if state.once.remove(&id).is_some() {
            state.watches.remove_once(path);
        }
    }
}

impl Watches {
    /// Whether there is room for it.
    fn add_once(&mut self, path: &Path) -> bool {
        let fits = self.fits(path);
        if fits {
            self.bytes += path.as_str().len();
        }
        fits
    }

    fn remove_once(&mut self, path: &Path) {
        self.bytes -= path.as_str().len();
    }
}

impl Once {
    /// Until it has told, or is not read any more, or the session is over. `None` is told where it takes another kind of
    /// watch.
    async fn run(self, wire: Arc<Wire>, tell: oneshot::Sender<Option<Result<View>>>) {
        let Ok(client) = wire.client("observe") else { return };
        let mut states = client.state_watcher();
        let _as_it_is = states.state();
        let answer = watched_once(&wire, &client, &self.query).await;
        drop((client, wire));
        let (view, watcher) = match answer {
            Ok((view, watcher)) => (Ok(view), watcher),
            Err(trouble) => {
                let error = trouble.translate("observe", Sort::Read).at(&self.query.path);
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
                Either::Left((event, _)) => say(&event, states, &self.query, &self.feed),
                Either::Right((_, coming)) => retire(&self.hub, &self.query.path, coming),
            }
        } else {
            if let Some(coming) = coming {
                retire(&self.hub, &self.query.path, coming);
            }
            self.feed.end(End::Told);
            let _heard = tell.send(fits.then_some(view)).is_ok();
        }
    }

    /// Whether the watch tells what is asked for of this node.
    fn tells_of(&self, node: &Node) -> bool {
        let is_ephemeral = node.stat.is_some_and(|stat| stat.owner.is_some());
        is_ephemeral || !self.query.is_until_gone()
    }
}

/// Nobody waits for it any more.
fn retire(hub: &Weak<Hub>, path: &Path, coming: BoxFuture<'static, WatchedEvent>) {
    if let Some(hub) = hub.upgrade() {
        hub.state().watches.retire(path, coming.map(|_told| ()).boxed());
    }
}

impl Drop for Unwatch {
    fn drop(&mut self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.remove_once(&self.path, self.id);
        }
    }
}

/// Tells what came. Of the end of the session the hub tells.
fn say(event: &WatchedEvent, mut states: StateWatcher, query: &Query, feed: &Feed) {
    let Some(news) = News::of(event) else { return };
    // On the next connection the server says of what was made again meanwhile that it was written.
    let clear = news.kind == Kind::Deleted || states.changed().now_or_never().is_none();
    let _heard = match told(query, &news) {
        Some(change) if clear => feed.send(change),
        _ => feed.resync(),
    };
}
