//! [`EventQueue`]: delivers the events of a session across its link, in order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use synod_core::store::{Change, Feed};
use tokio::sync::Notify;

use crate::link::{Direction, Link};

/// The event queue of one session.
#[derive(Debug)]
pub(crate) struct EventQueue {
    link: Arc<Link>,
    /// The number of messages that wait for a link that lets nothing through. Beyond that, each
    /// watch gets a resync instead.
    max_waiting: usize,
    waiting: Mutex<VecDeque<(Feed, Message)>>,
    arrived: Notify,
}

#[derive(Debug)]
enum Message {
    Changes(Vec<Change>),
    Resync,
}

impl EventQueue {
    pub(crate) fn new(link: Arc<Link>, max_waiting: usize) -> Self {
        Self { link, max_waiting, waiting: Mutex::default(), arrived: Notify::new() }
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Sends the changes of one commit to a watch: immediately if the link is clear, otherwise
    /// after the waiting messages.
    pub(crate) fn send(&self, feed: &Feed, changes: Vec<Change>) {
        let mut waiting = self.waiting();
        if waiting.is_empty() && self.link.is_clear() {
            let _delivered = feed.send_all(changes);
            return;
        }
        if waiting.len() >= self.max_waiting {
            replace_by_resyncs(&mut waiting);
        }
        waiting.push_back((feed.clone(), Message::Changes(changes)));
        self.arrived.notify_one();
    }

    /// Carries the waiting messages across the link, as long as it is polled.
    pub(crate) async fn carry(&self) {
        loop {
            while !self.waiting().is_empty() {
                self.link.cross(Direction::ToSession).await;
                self.deliver_first();
            }
            self.arrived.notified().await;
        }
    }

    fn deliver_first(&self) {
        // The lock is held until the message is delivered: otherwise a later message could find the
        // queue empty and overtake it.
        let mut waiting = self.waiting();
        let _delivered = match waiting.pop_front() {
            Some((feed, Message::Changes(changes))) => feed.send_all(changes),
            Some((feed, Message::Resync)) => feed.resync(),
            None => false,
        };
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<(Feed, Message)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Replaces all waiting messages by one resync per watch.
fn replace_by_resyncs(waiting: &mut VecDeque<(Feed, Message)>) {
    let mut resyncs: VecDeque<(Feed, Message)> = VecDeque::new();
    for (feed, _) in waiting.drain(..) {
        if !feed.is_over() && !resyncs.iter().any(|(other, _)| other.is_same(&feed)) {
            resyncs.push_back((feed, Message::Resync));
        }
    }
    *waiting = resyncs;
}

#[cfg(test)]
mod tests {
    use synod_core::path::Path;
    use synod_core::store::{Event, Kind, Watch};

    use super::*;
    use crate::link::Weather;

    const WAITING: usize = 64;

    fn news() -> Vec<Change> {
        vec![Change::new(Path::new("/a").expect("valid"), Kind::Updated)]
    }

    fn received(watch: &mut Watch) -> Vec<Event> {
        std::iter::from_fn(|| watch.try_next()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_crosses_a_cut_and_everything_comes_in_order_after_it() {
        let link = Arc::new(Link::new());
        let queue = EventQueue::new(link.clone(), WAITING);
        let (feed, mut watch) = Feed::new(8);
        queue.send(&feed, news());
        assert_eq!(received(&mut watch).len(), 1);

        link.set(Weather::CUT);
        queue.send(&feed, news());
        let carried = synod_core::clock::timeout(std::time::Duration::from_secs(9), queue.carry());
        assert!(carried.await.is_err());
        assert!(received(&mut watch).is_empty());

        link.set(Weather::CLEAR);
        queue.send(&feed, news());
        assert!(received(&mut watch).is_empty(), "not before what waits");
        let carried = synod_core::clock::timeout(std::time::Duration::from_secs(9), queue.carry());
        assert!(carried.await.is_err());
        assert_eq!(received(&mut watch).len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_lags_too_far_gets_a_resync() {
        let link = Arc::new(Link::new());
        let queue = EventQueue::new(link.clone(), WAITING);
        let (near, mut near_watch) = Feed::new(WAITING * 2);
        let (far, mut far_watch) = Feed::new(WAITING * 2);
        link.set(Weather::CUT);
        queue.send(&far, news());
        for _ in 0..WAITING {
            queue.send(&near, news());
        }
        assert!(queue.waiting().len() < WAITING);

        link.set(Weather::CLEAR);
        let carried = synod_core::clock::timeout(std::time::Duration::from_secs(9), queue.carry());
        assert!(carried.await.is_err());
        assert!(matches!(received(&mut far_watch)[..], [Event::Resync]));
        assert!(matches!(received(&mut near_watch)[..], [Event::Resync, Event::Changed(_)]));
    }
}
