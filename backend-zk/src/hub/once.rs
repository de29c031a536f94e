//! Watching a node for one event: the server's own kind of watch. It is asked for together with the
//! node, is gone by itself when it has told, and lives on across connections.
//!
//! Where the path is watched for good already, that watch tells. If one for good comes later, it takes the
//! place of this one at the server, and tells both; to take this one away would take that one, too. So this
//! one is kept as long as the other. What is added and taken away is, in one order, under the lock of the hub.

use std::sync::{Arc, Weak};
use std::task::{Context, Waker};

use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{End, Feed, Kind, Query, View, Watch};
use synod_core::task::spawn;
use tokio::sync::oneshot;
use zookeeper_client::{StateWatcher, WatchedEvent};

use crate::alone::Coming;
use crate::error::Sort;
use crate::hub::{Hub, Watches};
use crate::news::{News, told};
use crate::read::node_watched;
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
        let view = view.await.unwrap_or_else(|_gone| Err(self.wire.lost("observe")));
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
    ) -> Option<(Watch, oneshot::Receiver<Result<View>>)> {
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

    /// Nobody waits for it any more.
    fn retire(&self, path: &Path, coming: Coming) {
        self.state().watches.retire(path, coming);
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
    /// Until it has told, or is not read any more, or the session is over.
    async fn run(self, wire: Arc<Wire>, tell: oneshot::Sender<Result<View>>) {
        let Ok(client) = wire.client("observe") else { return };
        let mut states = client.state_watcher();
        let _as_it_is = states.state();
        let answer = node_watched(&wire, &client, &self.query).await;
        drop((client, wire));
        let (view, watcher) = match answer {
            Ok((view, watcher)) => (Ok(view), watcher),
            Err(trouble) => {
                let error = trouble.translate("observe", Sort::Read).at(&self.query.path);
                (Err(error), None)
            }
        };
        if watcher.is_none() {
            self.feed.end(End::Told);
        }
        let _heard = tell.send(view).is_ok();
        let Some(watcher) = watcher else { return };
        let Self { hub, query, feed, read } = self;
        match select(watcher.changed().boxed(), read).await {
            Either::Left((event, _)) => say(&event, states, &query, &feed),
            Either::Right((_, coming)) => {
                if let Some(hub) = hub.upgrade() {
                    hub.retire(&query.path, coming.map(|_told| ()).boxed());
                }
            }
        }
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
    let Some(change) = News::of(event).and_then(|news| told(query, &news)) else { return };
    // On the next connection the server says of what was made again meanwhile that it was written.
    let clear = change.kind == Kind::Deleted || states.changed().now_or_never().is_none();
    let _heard = if clear { feed.send(change) } else { feed.resync() };
}
