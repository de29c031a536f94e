//! The events of a watch, and the channel through which every store delivers them.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::mem::take;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use crate::error::Error;
use crate::path::Path;
use crate::store::node::{Node, Revision};
use crate::store::session::SessionEnd;

/// An event of a [`Watch`].
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums, reason = "a reader that forgets one of them misses changes")]
pub enum Event {
    /// Something changed.
    Changed(Change),
    /// Something may have been missed: read again. The watch goes on.
    Resync,
    /// The watch is over. This is the last event.
    Ended(End),
}

/// One change, or several of one path that joined.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// What changed.
    pub path: Path,
    /// How.
    pub kind: Kind,
    /// At which revision, if the store reports it.
    pub revision: Option<Revision>,
    /// What the node was after the change, if the store reports it. Without its sequence.
    pub node: Option<Node>,
}

impl Change {
    /// A change of the node at `path`.
    pub fn new(path: Path, kind: Kind) -> Self {
        Self { path, kind, revision: None, node: None }
    }

    /// Adds when it happened.
    pub fn at(mut self, revision: Revision) -> Self {
        self.revision = Some(revision);
        self
    }

    /// Adds what the node is now.
    pub fn with_node(mut self, node: Node) -> Self {
        self.node = Some(node);
        self
    }
}

/// How a node changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// It was created.
    Created,
    /// Its data was written.
    Updated,
    /// It was deleted.
    Deleted,
    /// Children of it came or went: all that some stores say to a query for names.
    Children,
}

/// Why a watch is over.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum End {
    /// Its session is.
    SessionOver(SessionEnd),
    /// The store cannot go on with it.
    Failed(Arc<Error>),
    /// One event was asked for ([`Query::once`](crate::store::Query::once)), and was delivered; or there was no
    /// node to report an event of.
    Delivered,
}

/// The events that a store reports of what is observed: a stream that ends with [`Event::Ended`].
///
/// Dropping it frees what the server keeps for it.
#[must_use = "a watch that is dropped watches nothing"]
pub struct Watch {
    shared: Arc<Channel>,
    guard: Option<Box<dyn Any + Send + Sync>>,
    lens: Option<Lens>,
}

/// What each event passes through between the store and the reader.
type Lens = Box<dyn FnMut(Event) -> Option<Event> + Send + Sync>;

/// The end of a [`Watch`] that its store holds.
///
/// A feed never blocks and never loses events silently: when its reader takes none and the buffer is full, they
/// give way to one [`Event::Resync`].
#[derive(Clone)]
pub struct Feed {
    shared: Arc<Channel>,
}

struct Channel {
    capacity: usize,
    /// Whether it ends after its first event.
    once: bool,
    state: Mutex<ChannelState>,
}

struct ChannelState {
    queue: VecDeque<Event>,
    waker: Option<Waker>,
    phase: FeedPhase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FeedPhase {
    Open,
    /// The end is queued.
    Ending,
    /// The end was taken, or the watch was dropped.
    Over,
}

impl Feed {
    /// The most events that a watch may keep for a reader that does not take them: beyond, they give way to one
    /// [`Event::Resync`]. A store keeps as few as it likes.
    pub const MAX_EVENTS: usize = 16_384;

    /// A watch and the feed that fills it, with room for `capacity` events.
    pub fn new(capacity: usize) -> (Self, Watch) {
        Self::open(capacity, false)
    }

    /// The same for one event: after it the watch ends with [`End::Delivered`].
    pub fn once() -> (Self, Watch) {
        Self::open(1, true)
    }

    fn open(capacity: usize, once: bool) -> (Self, Watch) {
        let state = ChannelState { queue: VecDeque::new(), waker: None, phase: FeedPhase::Open };
        let (capacity, state) = (capacity.max(1), Mutex::new(state));
        let shared = Arc::new(Channel { capacity, once, state });
        (Self { shared: shared.clone() }, Watch { shared, guard: None, lens: None })
    }

    /// Reports one change. `false` if the watch ended or was dropped.
    pub fn send(&self, change: Change) -> bool {
        self.push([Event::Changed(change)])
    }

    /// Reports all changes of one revision at once.
    pub fn send_all(&self, changes: impl IntoIterator<Item = Change>) -> bool {
        self.push(changes.into_iter().map(Event::Changed))
    }

    /// Reports that something may have been missed.
    pub fn resync(&self) -> bool {
        self.shared.change(|state| {
            state.queue.clear();
            state.queue.push_back(Event::Resync);
        })
    }

    /// Ends the watch. Events that were sent before are still delivered; a second end is not.
    pub fn end(&self, why: End) {
        let _told = self.shared.change(|state| {
            state.queue.push_back(Event::Ended(why));
            state.phase = FeedPhase::Ending;
        });
    }

    /// Whether this and `other` fill the same watch.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Whether the watch ended, or was dropped.
    pub fn is_over(&self) -> bool {
        self.shared.lock().phase != FeedPhase::Open
    }

    fn push(&self, events: impl IntoIterator<Item = Event>) -> bool {
        let capacity = self.shared.capacity;
        self.shared.change(|state| {
            for event in events {
                if state.queue.len() == capacity {
                    state.queue.clear();
                    state.queue.push_back(Event::Resync);
                    break;
                }
                state.queue.push_back(event);
            }
        })
    }
}

impl Channel {
    fn lock(&self) -> std::sync::MutexGuard<'_, ChannelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state of an open watch and wakes its reader.
    fn change(&self, change: impl FnOnce(&mut ChannelState)) -> bool {
        let waker = {
            let mut state = self.lock();
            if state.phase != FeedPhase::Open {
                return false;
            }
            change(&mut state);
            if self.once && state.phase == FeedPhase::Open && !state.queue.is_empty() {
                state.queue.push_back(Event::Ended(End::Delivered));
                state.phase = FeedPhase::Ending;
            }
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }
}

impl Watch {
    /// Keeps `guard` until this watch is dropped: its `Drop` is where a store frees what it keeps.
    pub fn with_guard(mut self, guard: impl Send + Sync + 'static) -> Self {
        self.guard = Some(match self.guard.take() {
            Some(first) => Box::new((first, guard)),
            None => Box::new(guard),
        });
        self
    }

    /// Passes every event through `f` when it is taken; an event for which `f` returns `None` is skipped. For
    /// stores that wrap stores. The end is delivered even if `f` returns `None` for it.
    ///
    /// The `f` of a later call sees what those before it have left.
    pub fn map(
        mut self,
        mut f: impl FnMut(Event) -> Option<Event> + Send + Sync + 'static,
    ) -> Self {
        self.lens = Some(match self.lens.take() {
            Some(mut first) => Box::new(move |event| first(event).and_then(&mut f)),
            None => Box::new(f),
        });
        self
    }

    /// The next event; `None` after [`Event::Ended`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call takes no event.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// The next event, if one is there already.
    pub fn try_next(&mut self) -> Option<Event> {
        loop {
            let event = self.shared.lock().take()?;
            if let Some(event) = self.through_lens(event) {
                return Some(event);
            }
        }
    }

    /// Called without the lock: what stands in between may be slow.
    fn through_lens(&mut self, event: Event) -> Option<Event> {
        let Some(lens) = &mut self.lens else { return Some(event) };
        let end = match &event {
            Event::Ended(end) => Some(end.clone()),
            Event::Changed(_) | Event::Resync => None,
        };
        lens(event).or(end.map(Event::Ended))
    }
}

impl ChannelState {
    fn take(&mut self) -> Option<Event> {
        let event = self.queue.pop_front();
        if matches!(event, Some(Event::Ended(_))) {
            self.phase = FeedPhase::Over;
        }
        event
    }
}

impl Stream for Watch {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        loop {
            let event = {
                let mut state = self.shared.lock();
                match state.take() {
                    Some(event) => event,
                    None if state.phase == FeedPhase::Over => return Poll::Ready(None),
                    None => {
                        // The last one may belong to another task, and be all that is left of it.
                        let last = state.waker.replace(cx.waker().clone());
                        drop(state);
                        drop(last);
                        return Poll::Pending;
                    }
                }
            };
            if let Some(event) = self.through_lens(event) {
                return Poll::Ready(Some(event));
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.phase = FeedPhase::Over;
        let left = (take(&mut state.queue), state.waker.take());
        drop(state);
        drop(left);
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guarded = self.guard.is_some();
        f.debug_struct("Watch")
            .field("queued", &self.shared.lock().queue.len())
            .field("guarded", &guarded)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed")
            .field("queued", &self.shared.lock().queue.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str) -> Change {
        Change::new(Path::new(name).expect("valid"), Kind::Updated)
    }

    fn received(watch: &mut Watch) -> Vec<String> {
        std::iter::from_fn(|| watch.try_next())
            .map(|event| match event {
                Event::Changed(change) => change.path.to_string(),
                Event::Resync => "resync".into(),
                Event::Ended(_) => "ended".into(),
            })
            .collect()
    }

    #[test]
    fn an_overflow_is_reported_once_and_the_watch_goes_on() {
        let (feed, mut watch) = Feed::new(2);
        for name in ["/a", "/b", "/c", "/d"] {
            assert!(feed.send(change(name)));
        }
        assert_eq!(received(&mut watch), ["resync", "/d"]);
        assert!(feed.send(change("/e")));
        assert_eq!(received(&mut watch), ["/e"]);
    }

    #[tokio::test]
    async fn the_end_is_reported_exactly_once_and_then_nothing() {
        let (feed, mut watch) = Feed::new(8);
        feed.send(change("/a"));
        feed.end(End::SessionOver(SessionEnd::Expired));
        feed.end(End::SessionOver(SessionEnd::Closed));
        assert!(!feed.send(change("/b")));

        assert_eq!(received(&mut watch), ["/a", "ended"]);
        assert!(watch.next().await.is_none());
    }

    #[test]
    fn a_watch_for_one_event_gets_one_event_and_the_end() {
        let (feed, mut watch) = Feed::once();
        assert!(feed.send_all([]), "nothing is no event");
        assert!(received(&mut watch).is_empty() && !feed.is_over());
        assert!(feed.send(change("/a")));
        assert!(feed.is_over() && !feed.send(change("/b")) && !feed.resync());
        assert_eq!(received(&mut watch), ["/a", "ended"]);

        let (feed, mut watch) = Feed::once();
        assert!(feed.resync());
        assert_eq!(received(&mut watch), ["resync", "ended"]);
    }

    #[tokio::test]
    async fn a_sleeping_reader_is_woken() {
        let (feed, mut watch) = Feed::new(8);
        let (event, sent) = futures_util::future::join(watch.next(), async {
            tokio::task::yield_now().await;
            feed.send(change("/a"))
        })
        .await;
        assert!(sent && matches!(event, Some(Event::Changed(_))));
    }

    #[test]
    fn a_map_turns_and_skips_events_but_never_the_end() {
        let (feed, watch) = Feed::new(8);
        let mut watch = watch
            .map(|event| match event {
                Event::Changed(change) if change.path.as_str() == "/a" => None,
                other => Some(other),
            })
            .map(|event| match event {
                Event::Changed(_) => Some(Event::Resync),
                Event::Resync | Event::Ended(_) => None,
            });
        feed.send_all(["/a", "/b"].map(change));
        feed.end(End::SessionOver(SessionEnd::Expired));
        assert_eq!(received(&mut watch), ["resync", "ended"]);
    }

    #[tokio::test]
    async fn a_reader_sleeps_on_when_all_that_came_is_skipped() {
        let (feed, watch) = Feed::new(8);
        let mut watch = watch.map(|event| (!matches!(event, Event::Resync)).then_some(event));
        let (event, ()) = futures_util::future::join(watch.next(), async {
            for _ in 0..3 {
                feed.resync();
                tokio::task::yield_now().await;
            }
            feed.send(change("/a"));
        })
        .await;
        assert!(matches!(event, Some(Event::Changed(_))));
    }

    #[test]
    fn dropping_a_watch_drops_what_the_store_keeps_for_it() {
        let kept = Arc::new(());
        let (feed, watch) = Feed::new(8);
        let watch = watch.with_guard(kept.clone()).with_guard(kept.clone());
        assert_eq!(Arc::strong_count(&kept), 3);

        drop(watch);

        assert_eq!(Arc::strong_count(&kept), 1);
        assert!(feed.is_over());
    }
}
