//! [`Filter`]: the changes that the watches of a seat cover, in 512 bytes that all processes read;
//! and [`Wakes`], the seats that a transaction must wake.
//!
//! A filter is a set of bits, as of Bloom. A watch sets the bits of the paths that it names, and a
//! change tests the bits of all watches that may cover it. So a seat may be woken for nothing, and
//! is never left asleep: with too many watches all bits are set, which means every change.
//!
//! A seat writes its filter before it reads the view of a watch, and a writer reads the filters
//! after its commit: so a change that is not in the view finds the bits of the watch. While a
//! filter is written, a reader may see a part of it; the bits of older watches are set before and
//! after.

use std::collections::BTreeSet;

use synod_core::path::Path;
use synod_core::store::{Query, Scope};

use crate::seat_id::SeatId;

/// The size of a filter in bytes.
pub(crate) const SIZE: usize = 512;

/// The number of bits of a filter.
const BITS: u64 = 8 * SIZE as u64;

/// The number of bits that each path sets.
const HASHES: usize = 2;

/// The number of paths of one transaction above which it wakes every seat.
const MAX_PATHS: usize = 128;

/// The bits of one path in one role. All of them are set in a filter that has it.
type Key = [u16; HASHES];

/// The watches of a seat, as the number of those that set each bit.
#[derive(Debug)]
pub(crate) struct Filter(Vec<u32>);

/// The bits of a filter, as they are in the file.
pub(crate) type FilterBits = [u8; SIZE];

/// The seats that a transaction must wake after its commit.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    /// The paths that it has changed.
    paths: BTreeSet<Path>,
    /// Seats whose sessions it has ended.
    seats: BTreeSet<SeatId>,
    every_seat: bool,
}

/// The bits for which a transaction tests the filters.
#[derive(Debug)]
pub(crate) struct Probes {
    keys: Vec<Key>,
    seats: BTreeSet<SeatId>,
    every_seat: bool,
}

impl Default for Filter {
    fn default() -> Self {
        Self(vec![0; 8 * SIZE])
    }
}

impl Filter {
    /// Adds a watch.
    pub(crate) fn add(&mut self, query: &Query) {
        self.change(query, |count| count.saturating_add(1));
    }

    /// Removes a watch that was added.
    pub(crate) fn remove(&mut self, query: &Query) {
        self.change(query, |count| count.saturating_sub(1));
    }

    pub(crate) fn bits(&self) -> FilterBits {
        let mut bits = [0; SIZE];
        for (index, _) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            bits[index / 8] |= 1 << (index % 8);
        }
        bits
    }

    /// Returns `true` if a watch may cover one of the changes.
    pub(crate) fn may_be_concerned(&self, probes: &Probes) -> bool {
        probes.any(|bit| self.0[usize::from(bit)] > 0)
    }

    fn change(&mut self, query: &Query, change: impl Fn(u32) -> u32) {
        let role = match query.scope {
            Scope::Node => Role::Node,
            Scope::Children => Role::Children,
            Scope::Subtree => Role::Subtree,
        };
        for bit in query.nodes_asked().flat_map(|path| key(role, path.as_str())) {
            let count = &mut self.0[usize::from(bit)];
            *count = change(*count);
        }
    }
}

impl Wakes {
    /// Records that a node was changed.
    pub(crate) fn changed(&mut self, path: &Path) {
        if self.paths.len() < MAX_PATHS {
            self.paths.insert(path.clone());
        } else {
            self.every_seat = true;
        }
    }

    /// Records that a session of this seat has ended.
    pub(crate) fn ended(&mut self, seat: SeatId) {
        self.seats.insert(seat);
    }

    /// Wakes every seat.
    pub(crate) fn every_seat() -> Self {
        Self { every_seat: true, ..Self::default() }
    }

    pub(crate) fn into_probes(self) -> Probes {
        let mut keys = BTreeSet::new();
        for path in self.paths.iter().filter(|_| !self.every_seat) {
            keys.insert(key(Role::Node, path.as_str()));
            keys.insert(key(Role::Subtree, path.as_str()));
            keys.extend(path.parent_str().map(|parent| key(Role::Children, parent)));
            keys.extend(path.above().map(|above| key(Role::Subtree, above)));
        }
        let keys = keys.into_iter().collect();
        Probes { keys, seats: self.seats, every_seat: self.every_seat }
    }
}

impl Probes {
    /// Returns `true` if the seat must be woken whatever its filter is.
    pub(crate) fn names(&self, seat: SeatId) -> bool {
        self.every_seat || self.seats.contains(&seat)
    }

    /// Returns `true` if a watch in the filter may cover one of the changes.
    pub(crate) fn may_concern(&self, bits: &FilterBits) -> bool {
        self.any(|bit| bits[usize::from(bit) / 8] & (1 << (bit % 8)) != 0)
    }

    /// Returns `true` if no filter concerns these probes.
    pub(crate) fn is_empty(&self) -> bool {
        !self.every_seat && self.keys.is_empty()
    }

    fn any(&self, is_set: impl Fn(u16) -> bool) -> bool {
        self.every_seat || self.keys.iter().any(|key| key.iter().all(|bit| is_set(*bit)))
    }
}

/// The part of a path in a watch.
#[derive(Clone, Copy, Debug)]
enum Role {
    Node,
    Children,
    Subtree,
}

/// Hashes a path in its role, by FNV-1a: processes with another version of the standard library
/// must find the same bits.
fn key(role: Role, path: &str) -> Key {
    let start = 0xCBF2_9CE4_8422_2325_u64 ^ role as u64;
    let hash = path
        .bytes()
        .fold(start.wrapping_mul(PRIME), |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    // The low bits of FNV-1a depend on few bits of the text.
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    [48, 32].map(|shift| u16::try_from((mixed >> shift) % BITS).unwrap_or_default())
}

const PRIME: u64 = 0x0100_0000_01B3;

#[cfg(test)]
mod tests {
    use synod_core::store::Kind;

    use super::*;

    const KINDS: [Kind; 3] = [Kind::Created, Kind::Updated, Kind::Deleted];

    fn path(text: &str) -> Path {
        Path::new(text).expect("valid")
    }

    fn bits<'a>(queries: impl IntoIterator<Item = &'a Query>) -> FilterBits {
        let mut filter = Filter::default();
        queries.into_iter().for_each(|query| filter.add(query));
        filter.bits()
    }

    fn probes(changed: &Path) -> Probes {
        let mut wakes = Wakes::default();
        wakes.changed(changed);
        wakes.into_probes()
    }

    /// All paths of up to three names of two letters, and the root.
    fn paths() -> Vec<Path> {
        let mut all = vec![String::new()];
        for _ in 0..3 {
            let below = |above: &String| ["a", "b"].map(|name| format!("{above}/{name}"));
            let next: Vec<String> = all.iter().flat_map(below).collect();
            all.extend(next);
        }
        all.sort();
        all.dedup();
        all.iter().map(|text| path(if text.is_empty() { "/" } else { text })).collect()
    }

    fn queries() -> Vec<Query> {
        let of = |at: &Path| {
            let node = Query::node(at.clone());
            [node.clone(), node.once(), Query::children(at.clone()), Query::subtree(at.clone())]
        };
        let two = Query::nodes(path("/a"), [path("/b/a")]);
        paths().iter().flat_map(of).chain([two]).collect()
    }

    #[test]
    fn a_change_that_a_watch_covers_is_found_in_its_filter() {
        for query in queries() {
            let mut filter = Filter::default();
            filter.add(&query);
            let bits = filter.bits();
            for changed in paths() {
                let covered = KINDS.iter().any(|kind| query.covers(&changed, *kind));
                let probes = probes(&changed);
                let found = probes.may_concern(&bits);
                assert_eq!(filter.may_be_concerned(&probes), found);
                assert!(found || !covered, "{query:?} covers {changed}");
            }
        }
    }

    #[test]
    fn a_filter_finds_little_else() {
        let (mut found, mut all) = (0, 0);
        for watched in 0..64 {
            let bits = bits(
                &[0, 1, 2, 3]
                    .map(|waiter| Query::node(path(&format!("/locks/{watched}/ticket-{waiter}")))),
            );
            for changed in 0..64 {
                all += 1;
                let probes = probes(&path(&format!("/locks/{changed}/other")));
                found += usize::from(probes.may_concern(&bits));
            }
        }
        assert!(found * 100 < all, "{found} of {all}");
        assert!(!probes(&path("/a")).may_concern(&bits([])));
    }

    #[test]
    fn a_watch_that_was_removed_leaves_the_others() {
        let (one, other) = (Query::node(path("/a")), Query::subtree(path("/a")));
        let mut filter = Filter::default();
        for query in [&one, &one, &other] {
            filter.add(query);
        }
        filter.remove(&one);
        assert_eq!(filter.bits(), bits([&one, &other]));
        filter.remove(&one);
        filter.remove(&other);
        assert_eq!(filter.bits(), [0; SIZE]);
    }

    #[test]
    fn too_many_watches_and_too_many_changes_mean_everything() {
        let many: Vec<Query> =
            (0..40_000).map(|number| Query::node(path(&format!("/{number}")))).collect();
        assert_eq!(bits(&many), [0xFF; SIZE]);

        let mut wakes = Wakes::default();
        (0..=MAX_PATHS).for_each(|number| wakes.changed(&path(&format!("/{number}"))));
        let probes = wakes.into_probes();
        assert!(probes.may_concern(&bits([])));
        assert!(probes.names(SeatId::new(1)));
    }

    #[test]
    fn the_end_of_a_session_wakes_the_seat_of_its_owner_alone() {
        let mut wakes = Wakes::default();
        wakes.ended(SeatId::new(1));
        let probes = wakes.into_probes();
        assert!(probes.names(SeatId::new(1)));
        assert!(!probes.names(SeatId::new(2)));
        assert!(!probes.may_concern(&[0xFF; SIZE]), "nothing was changed");
    }
}
