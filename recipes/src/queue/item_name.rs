//! [`ItemName`]: what the name of an item says of it. Pure.

use std::fmt;
use std::time::{Duration, SystemTime};

use synod_core::error::Result;
use synod_core::name::Name;
use synod_core::path::Path;
use synod_core::store::Revision;

use crate::line::ticket_name::since_of_id;

#[cfg(test)]
mod tests;

/// The start of the names of items, which is that of kazoo's queues.
const ENTRY: &str = "entry-";

/// What begins the part of a name that changes with each delivery.
const TOKENS: char = '+';

/// What comes before the id that the application chose, in the key of an item that has one. Before it is what makes the key unique:
/// the id may be used again when its item is done.
const NAMED: &str = "-id-";

/// The priority of an item that has none of its own: that of kazoo.
const USUAL: u16 = 100;

/// The length of a [unique id](super::place::QueuePlace::unique_id).
const UNIQUE: usize = 36;

/// The most bytes of an id, percent-encoded as it is in names. With all tokens at their longest a name then has 255 bytes at most: 10
/// for the priority, 2 around the tokens, 11, 11, 21, 15 and 21 for the tokens, 40 before the id.
pub(super) const MAX_ID: usize = 120;

/// The latest date that a name has, which is in the year 5138: all dates in names have 14 digits at most.
const LATEST: u64 = 99_999_999_999_999;

/// What is known of an item by its name: `entry-PPP-KEY`, and `entry-PPP-+dDcCrRtTsS-KEY` with the number of its deliveries and
/// of its changes, its place, its time and its slot, as far as it has them.
///
/// A name means one item, and one delivery of it with one data: it is never used again. So a delete by path means that delivery.
/// With each step of an item the number of its changes grows, or it stays and that of its deliveries grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ItemName {
    /// A lower one is delivered earlier.
    pub(super) priority: u16,
    /// How often it was delivered.
    pub(super) delivered: u32,
    /// The number of changes of its data, and of returns that did not count its last delivery.
    changes: Option<u32>,
    /// The revision of its first node: its place among those of its priority.
    place: Option<Revision>,
    /// Before this time, in milliseconds since the beginning of 1970, it is not to be delivered.
    not_before: Option<u64>,
    /// The slot of a bounded queue that it fills.
    pub(super) slot: Option<u64>,
    /// What no delivery and no change of the data replaces.
    key: String,
}

/// The place of an item: a lower one is delivered earlier. No two names have the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    priority: u16,
    place: Revision,
    key: String,
    delivered: u32,
    changes: Option<u32>,
    not_before: Option<u64>,
}

impl Rank {
    /// Whether an item of this priority whose place is not known may be before this one. It came later than what is known by its
    /// node, and not than an item that was delivered or changed before.
    pub(super) fn may_follow(&self, priority: u16) -> bool {
        let has_named_place = self.delivered > 0 || self.changes.is_some();
        priority < self.priority || priority == self.priority && has_named_place
    }
}

impl ItemName {
    /// The name of an item with a key that no other one has.
    pub(super) fn unique(priority: Option<u16>, key: String) -> Self {
        let priority = priority.unwrap_or(USUAL);
        let (changes, place, not_before, slot) = (None, None, None, None);
        Self { priority, delivered: 0, changes, place, not_before, slot, key }
    }

    /// The name of an item whose id the application chose. `None` if the id is too long.
    pub(super) fn with_id(priority: Option<u16>, unique: &str, id: &str) -> Result<Option<Self>> {
        let id = Name::encode(id)?;
        let is_short = id.as_str().len() <= MAX_ID;
        Ok(is_short.then(|| Self::unique(priority, format!("{unique}{NAMED}{id}"))))
    }

    /// What a name says. `None` if it is not that of an item.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (priority, rest) = name.strip_prefix(ENTRY)?.split_once('-')?;
        let is_number = priority.len() == 3 && priority.bytes().all(|it| it.is_ascii_digit());
        let priority = priority.parse().ok().filter(|_| is_number)?;
        let plain = Self::unique(Some(priority), rest.into());
        let Some(changing) = rest.strip_prefix(TOKENS) else { return Some(plain) };
        let (tokens, key) = changing.split_once('-')?;
        let (delivered, rest) = token(tokens, 'd')?;
        let (changes, rest) = token(rest, 'c')?;
        let changes = changes.map(u32::try_from).transpose().ok()?;
        let (place, rest) = token(rest, 'r')?;
        let (not_before, rest) = token(rest, 't')?;
        let (slot, rest) = token(rest, 's')?;
        let delivered = u32::try_from(delivered.filter(|_| rest.is_empty())?).ok()?;
        let place = place.map(Revision::new);
        Some(Self { delivered, changes, place, not_before, slot, key: key.into(), ..plain })
    }

    /// Whether the name says at which place the item is, so that its node need not be read.
    pub(super) fn shows_place(&self) -> bool {
        self.place.is_some()
    }

    /// The name of the same item for its next delivery. This name belongs to a node that was `created` then.
    pub(super) fn next(&self, created: Revision) -> Self {
        let place = Some(self.place.unwrap_or(created));
        let delivered = self.delivered.saturating_add(1);
        Self { delivered, place, not_before: None, ..self.clone() }
    }

    /// The same item with other data, or taken and put back, which is no delivery. This name belongs to a node that was `created`
    /// then.
    pub(super) fn changed(&self, created: Revision) -> Self {
        let place = Some(self.place.unwrap_or(created));
        Self { place, ..self.changed_once_more() }
    }

    /// The same item, whose last claim was no delivery.
    pub(super) fn undelivered(&self) -> Self {
        let delivered = self.delivered.saturating_sub(1);
        Self { delivered, ..self.changed_once_more() }
    }

    fn changed_once_more(&self) -> Self {
        let changes = Some(self.changes.unwrap_or(0).saturating_add(1));
        Self { changes, ..self.clone() }
    }

    /// The same item, not to be delivered before this date.
    pub(super) fn not_before(self, date: Duration) -> Self {
        let millis = u64::try_from(date.as_millis()).unwrap_or(LATEST).min(LATEST);
        Self { not_before: Some(millis), ..self }
    }

    /// The same item, as if it had not been delivered before, at the end of those of its priority.
    pub(super) fn anew(&self) -> Self {
        Self { delivered: 0, place: None, not_before: None, ..self.changed_once_more() }
    }

    /// The same item without its id, or, if it has none, with another key.
    pub(super) fn without_id(&self, unique: impl FnOnce() -> String) -> Self {
        let own = named(&self.key).map(|_id| self.key[..UNIQUE].to_owned());
        Self { key: own.unwrap_or_else(unique), ..self.clone() }
    }

    /// The same item in this slot, or in none.
    pub(super) fn in_slot(self, slot: Option<u64>) -> Self {
        Self { slot, ..self }
    }

    /// The date before which it is not to be delivered.
    pub(super) fn date(&self) -> Option<Duration> {
        self.not_before.map(Duration::from_millis)
    }

    /// The place of the item, whose node was `created` then.
    pub(super) fn rank(&self, created: Revision) -> Rank {
        let Self { priority, delivered, changes, not_before, ref key, .. } = *self;
        let place = self.place.unwrap_or(created);
        Rank { priority, place, key: key.clone(), delivered, changes, not_before }
    }

    /// When it was put, by the clock of its producer, if that wrote it there.
    pub(super) fn since(&self) -> Option<SystemTime> {
        since_of_id(&self.key)
    }

    /// The parts of the name that stay the same for as long as the item is in the queue. Other programs may choose one key for several
    /// priorities.
    pub(super) fn identity(&self) -> (u16, String) {
        (self.priority, self.key.clone())
    }

    /// The id that the application chose.
    pub(super) fn id(&self) -> Option<String> {
        Name::new(named(&self.key)?).ok()?.decode()
    }

    /// The node of its slot, if it fills one.
    pub(super) fn slot_node(&self, slots: &Path) -> Option<Path> {
        slots.join(&self.slot?.to_string()).ok()
    }

    /// The node by which the id of the item is recognized, if it has one.
    pub(super) fn id_node(&self, ids: &Path) -> Option<Path> {
        ids.join(named(&self.key)?).ok()
    }
}

impl fmt::Display for ItemName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes = self.changes.map(u64::from);
        let others = [changes, self.place.map(Revision::get), self.not_before, self.slot];
        write!(f, "{ENTRY}{:03}-", self.priority)?;
        if self.delivered > 0 || others != [None; 4] {
            write!(f, "{TOKENS}d{}", self.delivered)?;
            self.changes.map_or(Ok(()), |changes| write!(f, "c{changes}"))?;
            self.place.map_or(Ok(()), |place| write!(f, "r{place}"))?;
            self.not_before.map_or(Ok(()), |date| write!(f, "t{date}"))?;
            self.slot.map_or(Ok(()), |slot| write!(f, "s{slot}"))?;
            f.write_str("-")?;
        }
        f.write_str(&self.key)
    }
}

/// The id in a key. Only a key that begins as those of this library has one: other programs choose their keys as they like.
fn named(key: &str) -> Option<&str> {
    let (unique, rest) = key.split_at_checked(UNIQUE)?;
    let is_unique = unique.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    rest.strip_prefix(NAMED).filter(|_id| is_unique)
}

/// The number after this letter, if the text begins with it, and the rest.
fn token(text: &str, letter: char) -> Option<(Option<u64>, &str)> {
    let Some(rest) = text.strip_prefix(letter) else { return Some((None, text)) };
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some((Some(rest[..end].parse().ok()?), &rest[end..]))
}
