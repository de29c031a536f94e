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
    /// A node changed.
    Changed(Change),
    /// An event may have been missed: read again. The watch continues.
    Resync,
    /// The watch is over. This is the last event.
    Ended(End),
}

/// One change, or several merged changes of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The path of the node.
    pub path: Path,
    /// The kind of the change.
    pub kind: Kind,
    /// The revision of the change, if the store reports it.
    pub revision: Option<Revision>,
    /// The node after the change, if the store reports it. Without its sequence.
    pub node: Option<Node>,
}

impl Change {
    /// Creates a change of the node at `path`.
    pub fn new(path: Path, kind: Kind) -> Self {
        Self { path, kind, revision: None, node: None }
    }

    /// Adds the revision of the change.
    pub fn at(mut self, revision: Revision) -> Self {
        self.revision = Some(revision);
        self
    }

    /// Adds the node after the change.
    pub fn with_node(mut self, node: Node) -> Self {
        self.node = Some(node);
        self
    }
}

/// The kind of a change of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The node was created.
    Created,
    /// The data of the node was written.
    Updated,
    /// The node was deleted.
    Deleted,
    /// Children of the node were created or deleted. Some stores report only this to a query for
    /// names.
    Children,
}

/// The reason for the end of a watch.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum End {
    /// The session is over.
    SessionOver(SessionEnd),
    /// The store cannot continue the watch.
    Failed(Arc<Error>),
    /// The only requested event ([`Query::once`](crate::store::Query::once)) was delivered, or no
    /// node exists whose event could be reported.
    Delivered,
}

/// A stream of the events of an observed query. It ends with [`Event::Ended`].
///
/// Dropping it frees its resources at the server.
#[must_use = "a watch that is dropped watches nothing"]
pub struct Watch {
    shared: Arc<Channel>,
    guard: Option<Box<dyn Any + Send + Sync>>,
    filter: Option<EventFilter>,
}

/// A function through which each event passes on its way from the store to the reader.
type EventFilter = Box<dyn FnMut(Event) -> Option<Event> + Send + Sync>;

/// The sending half of a [`Watch`], which its store holds.
///
/// A feed never blocks and never loses events silently: if the reader takes no events and the
/// buffer is full, one [`Event::Resync`] replaces the events.
#[derive(Clone)]
pub struct Feed {
    shared: Arc<Channel>,
}

struct Channel {
    capacity: usize,
    /// `true` if the watch ends after its first event.
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
    /// The final event is queued.
    Ending,
    /// The final event was taken, or the watch was dropped.
    Over,
}

impl Feed {
    /// The maximum number of events that a watch keeps for a reader that does not take them. One
    /// [`Event::Resync`] then replaces them. A store may keep fewer.
    pub const MAX_EVENTS: usize = 16_384;

    /// Creates a watch with a buffer for `capacity` events, and the feed that fills it.
    pub fn new(capacity: usize) -> (Self, Watch) {
        Self::open(capacity, false)
    }

    /// Creates a watch for one event, after which it ends with [`End::Delivered`], and its feed.
    pub fn once() -> (Self, Watch) {
        Self::open(1, true)
    }

    fn open(capacity: usize, once: bool) -> (Self, Watch) {
        let state = ChannelState { queue: VecDeque::new(), waker: None, phase: FeedPhase::Open };
        let (capacity, state) = (capacity.max(1), Mutex::new(state));
        let shared = Arc::new(Channel { capacity, once, state });
        (Self { shared: shared.clone() }, Watch { shared, guard: None, filter: None })
    }

    /// Reports one change. Returns `false` if the watch ended or was dropped.
    pub fn send(&self, change: Change) -> bool {
        self.push([Event::Changed(change)])
    }

    /// Reports all changes of one revision together.
    pub fn send_all(&self, changes: impl IntoIterator<Item = Change>) -> bool {
        self.push(changes.into_iter().map(Event::Changed))
    }

    /// Reports that an event may have been missed.
    pub fn resync(&self) -> bool {
        self.shared.change(|state| {
            state.queue.clear();
            state.queue.push_back(Event::Resync);
        })
    }

    /// Ends the watch. Earlier events are still delivered; a second end is not.
    pub fn end(&self, why: End) {
        let _is_open = self.shared.change(|state| {
            state.queue.push_back(Event::Ended(why));
            state.phase = FeedPhase::Ending;
        });
    }

    /// Returns `true` if this and `other` fill the same watch.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns `true` if the watch ended, or was dropped.
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
    /// Keeps `guard` until this watch is dropped. A store frees its resources in the `Drop` of
    /// `guard`.
    pub fn with_guard(mut self, guard: impl Send + Sync + 'static) -> Self {
        self.guard = Some(match self.guard.take() {
            Some(first) => Box::new((first, guard)),
            None => Box::new(guard),
        });
        self
    }

    /// Passes every event through `f` when it is taken; an event for which `f` returns `None` is
    /// skipped. For stores that wrap stores. The end is delivered even if `f` returns `None` for
    /// it.
    ///
    /// If `map` is called several times, each `f` receives the results of the `f` before it.
    pub fn map(
        mut self,
        mut f: impl FnMut(Event) -> Option<Event> + Send + Sync + 'static,
    ) -> Self {
        self.filter = Some(match self.filter.take() {
            Some(mut first) => Box::new(move |event| first(event).and_then(&mut f)),
            None => Box::new(f),
        });
        self
    }

    /// Waits for the next event; `None` after [`Event::Ended`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call takes no event.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Returns the next event, if one is already queued.
    pub fn try_next(&mut self) -> Option<Event> {
        loop {
            let event = self.shared.lock().take()?;
            if let Some(event) = self.filtered(event) {
                return Some(event);
            }
        }
    }

    /// Called without the lock, because `filter` may be slow.
    fn filtered(&mut self, event: Event) -> Option<Event> {
        let Some(filter) = &mut self.filter else { return Some(event) };
        let end = match &event {
            Event::Ended(end) => Some(end.clone()),
            Event::Changed(_) | Event::Resync => None,
        };
        filter(event).or(end.map(Event::Ended))
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
                        // The last waker may belong to another task, and be the last reference to
                        // it: drop it without the lock.
                        let last = state.waker.replace(cx.waker().clone());
                        drop(state);
                        drop(last);
                        return Poll::Pending;
                    }
                }
            };
            if let Some(event) = self.filtered(event) {
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
