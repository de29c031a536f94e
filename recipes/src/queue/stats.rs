//! [`QueueStats`]: the number of items in each state, for monitoring.

use std::time::SystemTime;

use synod_core::error::Result;
use synod_core::store::Query;

use crate::queue::Queue;
use crate::queue::item_name::ItemName;
use crate::support::metrics::{record_queue_age, record_queue_items};
use crate::support::time::date;

/// The number of items of a [`Queue`] in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// The items that can be delivered now: the depth of the queue.
    pub ready: usize,
    /// The items that wait for their dates.
    pub delayed: usize,
    /// The items that a consumer has claimed.
    pub claimed: usize,
    /// The dead letters.
    pub dead: usize,
    /// The earliest time of the put of an item that can be delivered now, by the clock of its
    /// producer. `None` if there is no such item, or only items of other programs.
    pub oldest: Option<SystemTime>,
}

/// # Monitoring
impl<T> Queue<T> {
    /// Counts the items in each state. As [`Queue::len`] it is not a consistent snapshot. Reads the
    /// names alone, in four calls to the store. With the feature `metrics` the result is also
    /// recorded as gauges: an exporter calls this once in a while.
    ///
    /// # Errors
    ///
    /// As [`Queue::len`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn stats(&self) -> Result<QueueStats> {
        let (shared, mut stats) = (self.shared()?, QueueStats::default());
        let (nodes, now) = (self.nodes(Query::names_only).await?, date());
        for node in nodes.values() {
            let Some(name) = ItemName::parse(node.path.name()) else { continue };
            if node.path.parent().is_some_and(|dir| dir == shared.claimed) {
                stats.claimed += 1;
            } else if name.date().is_some_and(|date| date > now) {
                stats.delayed += 1;
            } else {
                stats.ready += 1;
                stats.oldest = stats.oldest.into_iter().chain(name.since()).min();
            }
        }
        let dead = self.client.read(Query::children(&shared.dead).names_only()).await?.nodes;
        stats.dead = dead.iter().filter_map(|node| ItemName::parse(node.path.name())).count();
        for (state, items) in [
            ("ready", stats.ready),
            ("delayed", stats.delayed),
            ("claimed", stats.claimed),
            ("dead", stats.dead),
        ] {
            record_queue_items(&self.dir, state, items);
        }
        let put = stats.oldest.and_then(|date| date.duration_since(SystemTime::UNIX_EPOCH).ok());
        record_queue_age(
            &self.dir,
            put.map_or_else(Default::default, |put| now.saturating_sub(put)),
        );
        Ok(stats)
    }
}
