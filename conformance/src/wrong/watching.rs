//! Mistakes in the beginning and the end of a watch, and in its cost.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::{Either, select};
use synod_core::error::Result;
use synod_core::store::{End, Event, Feed, Freshness, Query, Status, View, Watch};
use synod_core::task::spawn;
use tokio::sync::watch;

use crate::wrong::events::Teller;
use crate::wrong::mistake::Mistake;
use crate::wrong::shared::pause;
use crate::wrong::store::WrongStore;

/// The number of events that a watch keeps for a slow reader.
const EVENTS: usize = 4_096;

/// Silences a path when one of its watches is dropped.
struct Silencer(Arc<AtomicBool>);

impl Drop for Silencer {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(super) async fn watch(store: &WrongStore, query: &Query) -> Result<(View, Watch)> {
    let (mut view, inner) = begin(store, query).await?;
    store.node_view.view(&mut view);
    let room = if store.makes(Mistake::FeedUnbounded) { usize::MAX } else { EVENTS };
    let (feed, outer) = Feed::new(room);
    let waiting = Arc::new(AtomicUsize::new(0));
    let outer = counted(outer, waiting.clone());
    if store.makes(Mistake::SlowWatcherBlocks) {
        store.shared.books().feeds.push((feed.clone(), waiting.clone()));
    }
    let silence = store.watch_state.silence(query);
    let teller = Teller::new(store, query, &view, (feed.clone(), waiting), silence.clone());
    let status = store.inner.status();
    let outlives = store.makes(Mistake::CloseLeavesWatches);
    let task = spawn(async move {
        if outlives {
            until_lost(teller, inner, status, feed).await;
        } else {
            teller.deliver(inner).await;
        }
    });
    Ok((
        view,
        match store.mistake() {
            Some(Mistake::DropLeavesWatch) => {
                store.shared.books().tasks.push(task);
                outer
            }
            Some(Mistake::DropRemovesOtherWatches) => {
                outer.with_guard(task).with_guard(Silencer(silence))
            }
            _ => outer.with_guard(task),
        },
    ))
}

/// Decrements the count for each event that is taken.
fn counted(watch: Watch, waiting: Arc<AtomicUsize>) -> Watch {
    watch.map(move |event| {
        let left = match event {
            Event::Changed(_) => waiting.load(Ordering::Relaxed).saturating_sub(1),
            Event::Resync | Event::Ended(_) => 0,
        };
        waiting.store(left, Ordering::Relaxed);
        Some(event)
    })
}

/// The view, and the watch of the store inside.
async fn begin(store: &WrongStore, query: &Query) -> Result<(View, Watch)> {
    match store.mistake() {
        Some(Mistake::WatchArmedAfterRead) => {
            let view = store.honest_read(query.clone()).await?;
            pause().await;
            let (_later, watch) = store.honest_observe(query.clone()).await?;
            Ok((view, watch))
        }
        Some(Mistake::LocalWatchSkips) if query.freshness == Freshness::Local => {
            let view = store.honest_read(query.clone()).await?;
            let mut latest = query.clone();
            latest.freshness = Freshness::Latest;
            let (_later, watch) = store.honest_observe(latest).await?;
            Ok((view, watch))
        }
        Some(Mistake::WritesToldUntilGone) if query.is_until_gone() => {
            let mut of_all = query.clone();
            of_all.once = false;
            store.honest_observe(of_all).await
        }
        Some(Mistake::EventForWrongPath) => {
            let Some(parent) = query.path.parent() else {
                return store.honest_observe(query.clone()).await;
            };
            let (_wide, watch) = store.honest_observe(Query::subtree(parent)).await?;
            Ok((store.honest_read(query.clone()).await?, watch))
        }
        Some(Mistake::CloseLeavesWatches) => {
            let _lives = store.honest_read(Query::node(&query.path)).await?;
            store.shared.hidden().await?.watch(query.clone()).await
        }
        _ => store.honest_observe(query.clone()).await,
    }
}

/// Forwards events until the session is lost, and keeps the watch of the store inside nevertheless.
async fn until_lost(teller: Teller, inner: Watch, mut status: watch::Receiver<Status>, feed: Feed) {
    let telling = pin!(teller.deliver(inner));
    let lost = pin!(async {
        let lost = status.wait_for(Status::is_lost).await;
        lost.map_or(None, |status| match *status {
            Status::Lost { reason } => Some(reason),
            _ => None,
        })
    });
    if let Either::Right((Some(reason), telling)) = select(telling, lost).await {
        feed.end(End::SessionOver(reason));
        telling.await;
    }
}
