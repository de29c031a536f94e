//! [`ItemName`]: the state of an item that its name contains. Pure.

use std::fmt;
use std::time::{Duration, SystemTime};

use synod_core::error::Result;
use synod_core::name::Name;
use synod_core::path::Path;
use synod_core::store::{Node, Revision};

use crate::line::ticket_name::since_of_id;

#[cfg(test)]
mod tests;

/// The prefix of the names of items, as in the queues of kazoo.
const ENTRY: &str = "entry-";

/// The start of the part of a name that changes with each delivery.
const TOKENS_START: char = '+';

/// The token of an item with a node of its failures.
const HAS_FAILURES: &str = "f";

/// The separator before the application's id in a key. The text before it makes the key unique: the
/// id may be used again when its item is done.
const ID_SEPARATOR: &str = "-id-";

/// The default priority, as in kazoo.
const DEFAULT_PRIORITY: u16 = 100;

/// The length of a [unique id](super::layout::QueueShared::unique_id).
const UNIQUE_LENGTH: usize = 36;

/// The maximum length of an id in bytes, percent-encoded as in names. With all tokens at their
/// maximum length a name has 252 bytes: 10 for the priority, 2 around the tokens, 11, 11, 21, 15,
/// 1 and 21 for the tokens, 40 before the id.
pub(super) const MAX_ID: usize = 120;

/// The maximum date in a name, in the year 5138: all dates in names have at most 14 digits.
const MAX_DATE: u64 = 99_999_999_999_999;

/// The state of an item in its name: `entry-PPP-KEY`, or `entry-PPP-+dDcCrRtTfsS-KEY` with the
/// number of its deliveries and of its changes, its position, its date, `f` if a node has the
/// history of its failures, and its slot, as far as it has them.
///
/// A name identifies one item, and one delivery of it with one data. It is never used again, so a
/// delete by path concerns that delivery. With each step of an item the number of changes grows, or
/// it stays and the number of deliveries grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ItemName {
    /// The priority. A lower number is delivered earlier.
    pub(super) priority: u16,
    /// The number of deliveries.
    pub(super) delivered: u32,
    /// The number of changes of the data, and of returns that did not count the last delivery.
    changes: Option<u32>,
    /// The revision of the first node of the item: its position among the items of its priority.
    place: Option<Revision>,
    /// The date before which the item is not delivered, in milliseconds since the beginning of
    /// 1970.
    not_before: Option<u64>,
    /// True if a node has the history of the failed deliveries of the item.
    pub(super) has_failures: bool,
    /// The slot of a bounded queue that the item fills.
    pub(super) slot: Option<u64>,
    /// The part that no delivery and no change of the data replaces.
    key: String,
}

/// Returns `true` if a node of a listing has the name of an item of a queue, or of a queue of
/// kazoo.
///
/// The listing may be of [names only](synod_core::store::Query): a program can search a tree for
/// queues.
///
/// # Examples
///
/// ```rust
/// use synod_core::path;
/// use synod_core::store::Node;
/// use synod_recipes::queue::is_item;
///
/// assert!(is_item(&Node::new(path!("/mails/items/entry-100-0000000007"))));
/// assert!(!is_item(&Node::new(path!("/mails/items/entry"))));
/// ```
pub fn is_item(node: &Node) -> bool {
    ItemName::parse(node.path.name()).is_some()
}

/// The position of an item. A lower rank is delivered earlier. No two names have the same rank.
///
/// In each priority the dated items come first, by their dates, and then the others, in the order
/// of their puts: the clock that wrote a date and the revision of a put cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    priority: u16,
    /// The date of the item, or the greatest number if it has none.
    date: u64,
    place: Revision,
    key: String,
    delivered: u32,
    changes: Option<u32>,
}

impl Rank {
    /// Returns true if an item of this priority, with a date or without one, of which only the name
    /// is known, may precede this one. Such an item is younger than each item without a date that
    /// is known by its first node, but not than one that was delivered or changed before.
    pub(super) fn may_follow(&self, priority: u16, is_dated: bool) -> bool {
        let has_named_place = self.delivered > 0 || self.changes.is_some();
        let may_be_older = is_dated || self.date == u64::MAX && has_named_place;
        priority < self.priority || priority == self.priority && may_be_older
    }
}

impl ItemName {
    /// Creates the name of an item with a unique key.
    pub(super) fn unique(priority: Option<u16>, key: String) -> Self {
        let priority = priority.unwrap_or(DEFAULT_PRIORITY);
        let (changes, place, not_before, slot) = (None, None, None, None);
        let (delivered, has_failures) = (0, false);
        Self { priority, delivered, changes, place, not_before, has_failures, slot, key }
    }

    /// Creates the name of an item with an id of the application. Returns `None` if the id is too
    /// long.
    pub(super) fn with_id(priority: Option<u16>, unique: &str, id: &str) -> Result<Option<Self>> {
        let id = Name::encode(id)?;
        let is_short = id.as_str().len() <= MAX_ID;
        Ok(is_short.then(|| Self::unique(priority, format!("{unique}{ID_SEPARATOR}{id}"))))
    }

    /// Parses a name. Returns `None` if it is not the name of an item.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (priority, rest) = name.strip_prefix(ENTRY)?.split_once('-')?;
        let is_number = priority.len() == 3 && priority.bytes().all(|it| it.is_ascii_digit());
        let priority = priority.parse().ok().filter(|_| is_number)?;
        let plain = Self::unique(Some(priority), rest.into());
        let Some(changing) = rest.strip_prefix(TOKENS_START) else { return Some(plain) };
        let (tokens, key) = changing.split_once('-')?;
        let (delivered, rest) = token(tokens, 'd')?;
        let (changes, rest) = token(rest, 'c')?;
        let changes = changes.map(u32::try_from).transpose().ok()?;
        let (place, rest) = token(rest, 'r')?;
        let (not_before, rest) = token(rest, 't')?;
        let (has_failures, rest) = match rest.strip_prefix(HAS_FAILURES) {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let (slot, rest) = token(rest, 's')?;
        let delivered = u32::try_from(delivered.filter(|_| rest.is_empty())?).ok()?;
        let place = place.map(Revision::new);
        let key = key.into();
        Some(Self { delivered, changes, place, not_before, has_failures, slot, key, ..plain })
    }

    /// Returns true if the name contains the position of the item, so that its node need not be
    /// read.
    pub(super) fn shows_place(&self) -> bool {
        self.place.is_some()
    }

    /// Returns the name of the item for its next delivery. It keeps its date, and so its position.
    /// `created` is the revision of the node with this name.
    pub(super) fn next_delivery(&self, created: Revision) -> Self {
        let place = Some(self.place.unwrap_or(created));
        let delivered = self.delivered.saturating_add(1);
        Self { delivered, place, ..self.clone() }
    }

    /// Returns the name of the item with other data, or after it was taken and put back without a
    /// delivery. `created` is the revision of the node with this name.
    pub(super) fn changed(&self, created: Revision) -> Self {
        let place = Some(self.place.unwrap_or(created));
        Self { place, ..self.changed_once_more() }
    }

    /// Returns the name of the item if its last claim was not a delivery.
    pub(super) fn undelivered(&self) -> Self {
        let delivered = self.delivered.saturating_sub(1);
        Self { delivered, ..self.changed_once_more() }
    }

    fn changed_once_more(&self) -> Self {
        let changes = Some(self.changes.unwrap_or(0).saturating_add(1));
        Self { changes, ..self.clone() }
    }

    /// Returns true if the item has a date before which it is not delivered.
    pub(super) fn is_dated(&self) -> bool {
        self.not_before.is_some()
    }

    /// Returns the name of the item with the date before which it is not delivered.
    pub(super) fn not_before(self, date: Duration) -> Self {
        let millis = u64::try_from(date.as_millis()).unwrap_or(MAX_DATE).min(MAX_DATE);
        Self { not_before: Some(millis), ..self }
    }

    /// Returns the name of the item with no deliveries, at the end of its priority.
    pub(super) fn anew(&self) -> Self {
        let (delivered, place, not_before) = (0, None, None);
        Self { delivered, place, not_before, ..self.changed_once_more() }.with_failures(false)
    }

    /// Returns the name of the item with a node of its failures, or without one.
    pub(super) fn with_failures(self, has_failures: bool) -> Self {
        Self { has_failures, ..self }
    }

    /// Returns the name of the item without its id or, if it has none, with another key.
    pub(super) fn without_id(&self, unique: impl FnOnce() -> String) -> Self {
        let own = named(&self.key).map(|_id| self.key[..UNIQUE_LENGTH].to_owned());
        Self { key: own.unwrap_or_else(unique), ..self.clone() }
    }

    /// Returns the name of the item with this slot, or with none.
    pub(super) fn in_slot(self, slot: Option<u64>) -> Self {
        Self { slot, ..self }
    }

    /// The date before which the item is not delivered.
    pub(super) fn date(&self) -> Option<Duration> {
        self.not_before.map(Duration::from_millis)
    }

    /// Returns the position of the item. `created` is the revision of its node.
    pub(super) fn rank(&self, created: Revision) -> Rank {
        let Self { priority, delivered, changes, not_before, ref key, .. } = *self;
        let (date, place) = (not_before.unwrap_or(u64::MAX), self.place.unwrap_or(created));
        Rank { priority, date, place, key: key.clone(), delivered, changes }
    }

    /// The time of the put, by the clock of the producer, if the producer wrote it.
    pub(super) fn since(&self) -> Option<SystemTime> {
        since_of_id(&self.key)
    }

    /// The parts of the name that stay the same while the item is in the queue. Other programs may
    /// use one key for several priorities.
    pub(super) fn identity(&self) -> (u16, String) {
        (self.priority, self.key.clone())
    }

    /// The id that the application chose.
    pub(super) fn id(&self) -> Option<String> {
        Name::new(named(&self.key)?).ok()?.decode()
    }

    /// The node of the slot that the item fills.
    pub(super) fn slot_node(&self, slots: &Path) -> Option<Path> {
        slots.join(&self.slot?.to_string()).ok()
    }

    /// The node of the failures of the item while it is in the queue. Other programs may use a key
    /// again: with the position of the item it is unique.
    pub(super) fn failures_node(&self, failures: &Path) -> Option<Path> {
        let place = self.place.filter(|_| self.has_failures)?;
        failures.join(&format!("{:03}-r{place}-{}", self.priority, self.key)).ok()
    }

    /// The node that marks the id of the item as used.
    pub(super) fn id_node(&self, ids: &Path) -> Option<Path> {
        ids.join(named(&self.key)?).ok()
    }
}

impl fmt::Display for ItemName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes = self.changes.map(u64::from);
        let others = [changes, self.place.map(Revision::get), self.not_before, self.slot];
        write!(f, "{ENTRY}{:03}-", self.priority)?;
        if self.delivered > 0 || others != [None; 4] || self.has_failures {
            write!(f, "{TOKENS_START}d{}", self.delivered)?;
            self.changes.map_or(Ok(()), |changes| write!(f, "c{changes}"))?;
            self.place.map_or(Ok(()), |place| write!(f, "r{place}"))?;
            self.not_before.map_or(Ok(()), |date| write!(f, "t{date}"))?;
            f.write_str(if self.has_failures { HAS_FAILURES } else { "" })?;
            self.slot.map_or(Ok(()), |slot| write!(f, "s{slot}"))?;
            f.write_str("-")?;
        }
        f.write_str(&self.key)
    }
}

/// Returns the id in a key. Only a key with the format of this library has one: other programs
/// choose their keys freely.
fn named(key: &str) -> Option<&str> {
    let (unique, rest) = key.split_at_checked(UNIQUE_LENGTH)?;
    let is_unique = unique.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    rest.strip_prefix(ID_SEPARATOR).filter(|_id| is_unique)
}

/// Parses the number after this letter, if the text begins with it. Returns the number and the
/// rest.
fn token(text: &str, letter: char) -> Option<(Option<u64>, &str)> {
    let Some(rest) = text.strip_prefix(letter) else { return Some((None, text)) };
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some((Some(rest[..end].parse().ok()?), &rest[end..]))
}
