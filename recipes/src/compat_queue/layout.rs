//! [`QueueLayout`]: the names that other libraries give to the items of their queues, and the order
//! in which they take them. [`ItemPlace`]: a place in that order.

use std::time::Duration;

use bytes::Bytes;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::Revision;

use crate::compat_queue::curator_items;
use crate::mutant::mistake;

/// The action that error messages name.
pub(super) const DOING: &str = "using a queue of another library";

/// The library and the kind of queue whose nodes a [`CompatQueue`](crate::queue::CompatQueue)
/// shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueLayout {
    /// Curator's `SimpleDistributedQueue`.
    CuratorSimple,
    /// Curator's `DistributedQueue`, and its `DistributedIdQueue` for items that are taken.
    CuratorItems,
    /// Curator's `DistributedPriorityQueue`.
    CuratorPriority,
    /// Curator's `DistributedDelayQueue`.
    CuratorDelay,
    /// kazoo's `LockingQueue`.
    KazooLocking,
    /// The queue of etcd's `contrib/recipes` for Go, whose prefix is the path with a `/` at its
    /// end.
    EtcdRecipe,
}

/// A place in the order of a [`CompatQueue`](crate::queue::CompatQueue), for an item that is put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ItemPlace {
    pub(super) priority: Option<i32>,
    pub(super) after: Option<Duration>,
}

impl ItemPlace {
    /// Sets the priority, if the other library has priorities: a lower number is taken earlier. The
    /// defaults are 0 for Curator and 100 for kazoo.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Delays the item: it is not taken before this time has passed, by the wall clocks of the
    /// programs that put and take.
    pub fn after(mut self, after: Duration) -> Self {
        self.after = Some(after);
        self
    }
}

/// The name of a new node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NewName {
    /// A name to which the store appends a number.
    Numbered(String),
    /// A name that ends in the current time. If the name is taken, a later time is used.
    Time(String),
}

/// The rank of a node in its queue: the lowest rank is taken first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CompatRank {
    /// The milliseconds since the beginning of 1970 before which the item must not be taken.
    pub(super) due: u64,
    number: u64,
    name: String,
}

/// The default priority of items in kazoo.
const DEFAULT_PRIORITY: i32 = 100;

impl QueueLayout {
    /// The directory of the items.
    pub(super) fn items(self, dir: &Path) -> Result<Path> {
        Ok(match self {
            Self::KazooLocking => dir.join("entries")?,
            _ => dir.clone(),
        })
    }

    /// The directory in which consumers of the other library lock items, if its path does not
    /// depend on the program.
    pub(super) fn locks(self, dir: &Path) -> Result<Option<Path>> {
        Ok(match self {
            Self::KazooLocking => Some(dir.join("taken")?),
            _ => None,
        })
    }

    /// The prefix of the names of items.
    fn prefix(self) -> &'static str {
        match self {
            Self::CuratorSimple => "qn-",
            Self::CuratorItems | Self::CuratorPriority | Self::CuratorDelay => "queue-",
            Self::KazooLocking => "entry-",
            Self::EtcdRecipe => "",
        }
    }

    /// Returns the name of a new item. `date` is the current date, and replaces the number if the
    /// store does not number names.
    pub(super) fn new_name(
        self,
        place: ItemPlace,
        date: Duration,
        has_numbers: bool,
    ) -> Result<NewName> {
        let ItemPlace { priority, after } = place;
        let refuse = |reason| Err(Error::new(ErrorKind::Invalid, DOING).because(reason));
        if priority.is_some() && !matches!(self, Self::CuratorPriority | Self::KazooLocking) {
            return refuse("the items of this layout have no priority");
        }
        if after.is_some() && self != Self::CuratorDelay {
            return refuse("the items of this layout have no delay");
        }
        let more = match (self, priority) {
            (Self::CuratorPriority, priority) => {
                let priority = priority.unwrap_or(0);
                let sign = u8::from(priority >= 0);
                format!("{sign}{:08X}", priority.cast_unsigned())
            }
            (Self::CuratorDelay, _) => {
                format!("|{:08X}|", millis(date.saturating_add(after.unwrap_or_default())))
            }
            (Self::KazooLocking, priority) => match priority.unwrap_or(DEFAULT_PRIORITY) {
                priority @ 0..=999 => format!("{priority:03}-"),
                _ => return refuse("kazoo's priorities are from 0 to 999"),
            },
            _ => String::new(),
        };
        let name = format!("{}{more}", self.prefix());
        if has_numbers && self != Self::EtcdRecipe {
            return Ok(NewName::Numbered(name));
        }
        Ok(NewName::Time(format!("{name}{}", date.as_nanos())))
    }

    /// Returns the rank of the node with this name. `None` if the node is not an item.
    pub(super) fn rank(self, name: &str, created: Option<Revision>) -> Option<CompatRank> {
        let rest = name.strip_prefix(self.prefix())?;
        let number = match self {
            Self::CuratorSimple => rest.parse().ok()?,
            Self::EtcdRecipe => created.map_or(0, Revision::get),
            _ => 0,
        };
        let due = match self {
            Self::CuratorDelay => delay(rest).unwrap_or(0),
            _ => 0,
        };
        let name = name.to_owned();
        mistake!(QueueIgnoresOrder: let name = name.chars().rev().collect::<String>());
        Some(CompatRank { due, number, name })
    }

    /// Returns the data of a node with these items.
    pub(super) fn encode(self, items: &[Bytes]) -> Result<Bytes> {
        match (self, items) {
            (Self::CuratorItems | Self::CuratorPriority | Self::CuratorDelay, items) => {
                curator_items::encode(items)
            }
            (_, [item]) => Ok(item.clone()),
            _ => Err(Error::new(ErrorKind::Invalid, DOING)
                .because("a node of this layout has one item: put them one by one")),
        }
    }

    /// Reads the items in the data of a node. `None` if the data has another format.
    pub(super) fn decode(self, data: &Bytes) -> Option<Vec<Bytes>> {
        match self {
            Self::CuratorItems | Self::CuratorPriority | Self::CuratorDelay => {
                curator_items::decode(data)
            }
            _ => Some(vec![data.clone()]),
        }
    }
}

/// Returns a date in the form that names contain: Curator reads it as a signed number of 64 bits.
fn millis(date: Duration) -> u64 {
    let max = u64::MAX / 2;
    u64::try_from(date.as_millis()).unwrap_or(max).min(max)
}

/// Reads the date in the name of an item with a delay.
fn delay(rest: &str) -> Option<u64> {
    let (time, _number) = rest.strip_prefix('|')?.split_once('|')?;
    u64::from_str_radix(time, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_millis(1_700_000_000_123);

    fn named(layout: QueueLayout, place: ItemPlace) -> String {
        match layout.new_name(place, NOW, true).expect("it has such a place") {
            NewName::Numbered(name) => format!("{name}0000000007"),
            NewName::Time(name) => name,
        }
    }

    #[test]
    fn names_are_those_of_the_other_libraries() {
        let (usual, first) = (ItemPlace::default(), ItemPlace::default().priority(-1));
        let second = ItemPlace::default().priority(5);
        let later = ItemPlace::default().after(Duration::from_secs(1));
        let never = ItemPlace::default().after(Duration::MAX);
        for (layout, place, name) in [
            (QueueLayout::CuratorSimple, usual, "qn-0000000007"),
            (QueueLayout::CuratorItems, usual, "queue-0000000007"),
            (QueueLayout::CuratorPriority, usual, "queue-1000000000000000007"),
            (QueueLayout::CuratorPriority, second, "queue-1000000050000000007"),
            (QueueLayout::CuratorPriority, first, "queue-0FFFFFFFF0000000007"),
            (QueueLayout::CuratorDelay, usual, "queue-|18BCFE5687B|0000000007"),
            (QueueLayout::CuratorDelay, later, "queue-|18BCFE56C63|0000000007"),
            (QueueLayout::CuratorDelay, never, "queue-|7FFFFFFFFFFFFFFF|0000000007"),
            (QueueLayout::KazooLocking, usual, "entry-100-0000000007"),
            (QueueLayout::KazooLocking, second, "entry-005-0000000007"),
            (QueueLayout::EtcdRecipe, usual, "1700000000123000000"),
        ] {
            assert_eq!(named(layout, place), name, "{layout:?}");
            assert!(layout.rank(name, None).is_some(), "{name} is one of {layout:?}");
        }
    }

    #[test]
    fn a_store_without_numbers_has_the_time_in_their_place() {
        let named = QueueLayout::KazooLocking.new_name(ItemPlace::default(), NOW, false);
        let name = "entry-100-1700000000123000000".to_owned();
        assert_eq!(named.expect("it has such a place"), NewName::Time(name));
    }

    #[test]
    fn a_place_that_a_layout_does_not_have_is_refused() {
        let delayed = ItemPlace::default().after(Duration::ZERO);
        let prior = ItemPlace::default().priority(1);
        for (layout, place) in [
            (QueueLayout::CuratorSimple, prior),
            (QueueLayout::CuratorDelay, prior),
            (QueueLayout::EtcdRecipe, delayed),
            (QueueLayout::KazooLocking, delayed),
            (QueueLayout::KazooLocking, ItemPlace::default().priority(1_000)),
            (QueueLayout::KazooLocking, ItemPlace::default().priority(-1)),
        ] {
            let error = layout.new_name(place, NOW, true).expect_err("it has no such place");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{layout:?}");
        }
    }

    #[test]
    fn items_are_in_the_order_of_the_other_library() {
        let sorted = |layout: QueueLayout, names: &[(&str, u64)]| {
            let ranks =
                names.iter().filter_map(|(name, at)| layout.rank(name, Some(Revision::new(*at))));
            let mut ranks: Vec<_> = ranks.collect();
            ranks.sort();
            ranks.into_iter().map(|rank| rank.name).collect::<Vec<_>>()
        };
        let simple = [("qn-0000000010", 1), ("qn-0000000009", 2), ("other", 3), ("qn-x", 4)];
        assert_eq!(sorted(QueueLayout::CuratorSimple, &simple), ["qn-0000000009", "qn-0000000010"]);
        let etcd = [("9", 7), ("10", 8)];
        assert_eq!(sorted(QueueLayout::EtcdRecipe, &etcd), ["9", "10"]);
        let delays = [("queue-|18BCFE56C63|0000000001", 1), ("queue-|18BCFE5687B|0000000002", 2)];
        assert_eq!(
            sorted(QueueLayout::CuratorDelay, &delays),
            ["queue-|18BCFE5687B|0000000002", "queue-|18BCFE56C63|0000000001"]
        );
    }
}
