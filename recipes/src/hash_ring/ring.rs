//! [`Ring`]: the assignment of keys to members. Pure.

use std::collections::BTreeMap;

use synod_core::random::mix;

use crate::mutant::mistake;

/// The number of points of a member for each unit of its weight.
const POINTS: u32 = 128;

/// A hash ring: a function of its members alone, and equal in every program that computes it.
///
/// Each member has 128 points for each unit of its weight. A key belongs to the member of the first
/// point at or after the place of the key; after the last point comes the first. If two members
/// have a point at the same place, the member with the lower name has it.
///
/// The place of some bytes is a number of 64 bits: [`Ring::place`]. The place of a key is the place
/// of its bytes, and point `i` of a member, counted from 0, is at the place of its name in UTF-8, a
/// zero byte, and `i` as four bytes, big-endian.
///
/// # Examples
///
/// ```
/// use synod_recipes::partition::Ring;
///
/// let ring = Ring::new([("ann", 1), ("bob", 1), ("cid", 2)]);
/// assert_eq!(ring.owner("user:1"), Some("cid"));
/// assert_eq!(ring.owners("user:1", 3), ["cid", "ann", "bob"]);
/// assert_eq!(Ring::place(b""), 0xC381_7C01_6BA4_FF30);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ring {
    /// Sorted by name.
    members: Vec<(String, u8)>,
    /// The points in their order, each with the index of its member.
    points: Vec<(u64, u32)>,
}

impl Ring {
    /// The ring of members with these names and weights. A member of weight 0 is responsible for no
    /// key. If names are equal, the last one is used.
    pub fn new(members: impl IntoIterator<Item = (impl Into<String>, u8)>) -> Self {
        let members: BTreeMap<String, u8> =
            members.into_iter().map(|(name, weight)| (name.into(), weight)).collect();
        let members: Vec<_> = members.into_iter().collect();
        let points = (0..).zip(&members).flat_map(|(index, (name, weight))| {
            (0..POINTS * u32::from(*weight)).map(move |number| (point(name, number), index))
        });
        let mut points: Vec<_> = points.collect();
        points.sort_unstable();
        Self { members, points }
    }

    /// The member that is responsible for a key. `None` if no member has a weight.
    pub fn owner(&self, key: impl AsRef<[u8]>) -> Option<&str> {
        let place = Self::place(key.as_ref());
        let index = self.from(place).next();
        mistake!(RingByRemainder: let index = {
            index.map(|_| u32::try_from(place % self.members.len() as u64).unwrap_or_default())
        });
        index.map(|index| self.name(index))
    }

    /// The members for a key and its copies: `count` members, or fewer if fewer have a weight. The
    /// first is the [owner](Self::owner). If a member is removed, the next one takes its place, and
    /// the order of the others is unchanged.
    pub fn owners(&self, key: impl AsRef<[u8]>, count: usize) -> Vec<&str> {
        let weighty = self.members.iter().filter(|(_, weight)| *weight > 0).count();
        let (count, mut found) = (count.min(weighty), Vec::new());
        for index in self.from(Self::place(key.as_ref())) {
            if found.len() == count {
                break;
            }
            if !found.contains(&index) {
                found.push(index);
            }
        }
        found.into_iter().map(|index| self.name(index)).collect()
    }

    /// The members by their names, each with its weight.
    pub fn members(&self) -> impl Iterator<Item = (&str, u8)> {
        self.members.iter().map(|(name, weight)| (&**name, *weight))
    }

    /// The place of some bytes: their FNV-1a hash of 64 bits, mixed by the last step of
    /// `SplitMix64`, so that similar keys are far from each other.
    ///
    /// In full, with all sums and products modulo 2^64: `h = 0xCBF29CE484222325`, and for each byte
    /// `h = (h xor byte) * 0x100000001B3`; then `z = h + 0x9E3779B97F4A7C15`,
    /// `z = (z xor z >> 30) * 0xBF58476D1CE4E5B9`, `z = (z xor z >> 27) * 0x94D049BB133111EB`, and
    /// the place is `z xor z >> 31`.
    pub fn place(bytes: &[u8]) -> u64 {
        const START: u64 = 0xCBF2_9CE4_8422_2325;
        const PRIME: u64 = 0x0100_0000_01B3;
        let hash = bytes.iter().fold(START, |h, byte| (h ^ u64::from(*byte)).wrapping_mul(PRIME));
        mix(hash)
    }

    /// The members of all points, starting at a place, once around the ring.
    fn from(&self, place: u64) -> impl Iterator<Item = u32> {
        let first = self.points.partition_point(|(point, _)| *point < place);
        let (before, after) = self.points.split_at(first);
        after.iter().chain(before).map(|(_, index)| *index)
    }

    fn name(&self, index: u32) -> &str {
        usize::try_from(index).ok().and_then(|index| self.members.get(index)).map_or("", |it| &it.0)
    }
}

fn point(name: &str, number: u32) -> u64 {
    let mut bytes = Vec::with_capacity(name.len() + 5);
    bytes.extend_from_slice(name.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(&number.to_be_bytes());
    Ring::place(&bytes)
}

#[cfg(test)]
mod tests;
