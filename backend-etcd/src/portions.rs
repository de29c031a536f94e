//! [`Portions`]: divides a large range, so that no request reaches much further than its answer.
//!
//! For every answer etcd scans all keys of the requested range, even beyond the limit, because it
//! reports their number. So reading a range in pages that each request the whole rest takes
//! quadratic time: with a million keys 5.7 s in pages of 26,000, where a third of that is enough
//! (etcd 3.4.23). Here each request ends at the key where, according to the answers so far, two
//! pages should end.
//!
//! That end is an estimate: keys are interpreted as numbers that are spread evenly. The number of
//! keys that etcd reports corrects it. A wrong estimate costs another request or a longer scan, but
//! never loses a key.

use std::iter::zip;

use etcd_client::proto::PbRangeResponse;

use crate::key::Range;

/// A range with no more pages than these is not divided.
const FEW: i64 = 4;
/// The pages that a portion should have.
const AIM: i64 = 2;
/// The maximum growth from one portion to the next, as a factor.
const GROWTH: i64 = 16;
/// The number of portions without keys after which the next ones grow faster.
const GAPS: usize = 16;

/// A range that is read in order, and the progress.
#[derive(Debug)]
pub(crate) struct Portions {
    /// The end of the whole range.
    end: Vec<u8>,
    /// The range to request next. Empty when everything is read.
    next: Range,
    /// The length of the current portion. `None` while the range is not divided.
    reach: Option<Distance>,
    /// The keys that were read of the current portion.
    read: i64,
    /// The number of keys left in the whole range, as etcd counts them.
    left: i64,
    /// The number of successive portions without keys.
    empty: usize,
}

/// The distance between two keys, as numbers: in units of the byte at one position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Distance {
    place: usize,
    units: u128,
}

impl Portions {
    /// Creates the rest of a range after the first answer. The next answer has at most `page` keys.
    pub(crate) fn new(whole: &Range, first: &PbRangeResponse, page: i64) -> Self {
        let (end, next) = (whole.end.clone(), whole.clone());
        let mut portions = Self { end, next, reach: None, read: 0, left: first.count, empty: 0 };
        portions.answered(first, page);
        portions
    }

    /// The range to request next. `None` when everything is read.
    pub(crate) fn next(&self) -> Option<&Range> {
        (self.next.key < self.next.end).then_some(&self.next)
    }

    /// The number of keys that are left, as etcd counted them when the read began.
    pub(crate) fn left(&self) -> i64 {
        self.left
    }

    /// Records the answer for [`Portions::next`]. The next answer has at most `page` keys.
    pub(crate) fn answered(&mut self, answer: &PbRangeResponse, page: i64) {
        let came = i64::try_from(answer.kvs.len()).unwrap_or(i64::MAX);
        self.read += came;
        self.left -= came;
        match &answer.kvs[..] {
            [first, .., last] | [first @ last] if answer.more => {
                self.next.key = [last.key.as_slice(), &[0]].concat();
                if answer.count - came > page * FEW {
                    let spread = Distance::between(&first.key, &last.key);
                    self.divide(spread.times(page * AIM, came));
                }
            }
            _ => {
                self.next.key = std::mem::replace(&mut self.next.end, self.end.clone());
                self.empty = if self.read == 0 { self.empty + 1 } else { 0 };
                if let Some(reach) = self.reach.filter(|_| self.left > page * FEW) {
                    let places = self.empty.saturating_sub(GAPS).max(1);
                    self.divide(match self.read {
                        0 => reach.beyond(places),
                        read => reach.times((page * AIM).clamp(1, read * GROWTH), read),
                    });
                }
            }
        }
    }

    /// Starts a portion that ends at this distance from its first key, or at the end of the range.
    fn divide(&mut self, reach: Distance) {
        (self.reach, self.read) = (Some(reach), 0);
        if let Some(end) = reach.after(&self.next.key).filter(|end| *end < self.next.end) {
            self.next.end = end;
        }
    }
}

impl Distance {
    /// By the first two bytes that differ.
    fn between(first: &[u8], last: &[u8]) -> Self {
        let same = zip(first, last).take_while(|(one, other)| one == other).count();
        let byte = |key: &[u8], place| u128::from(key.get(place).copied().unwrap_or_default());
        let number = |key| byte(key, same) << 8 | byte(key, same + 1);
        Self { place: same + 1, units: number(last).saturating_sub(number(first)).max(1) }
    }

    /// This distance times a fraction.
    fn times(self, by: i64, of: i64) -> Self {
        let number = |count: i64| u128::try_from(count).unwrap_or_default().max(1);
        let (mut place, mut units) = (self.place + 2, (self.units << 16) * number(by) / number(of));
        while units > 0xffff && place > 0 {
            (place, units) = (place - 1, units.div_ceil(256));
        }
        Self { place, units: units.clamp(1, 0xffff) }
    }

    /// A larger distance: two units at the position that is `places` bytes earlier.
    fn beyond(self, places: usize) -> Self {
        let place = if self.units > 0xff { self.place.saturating_sub(1) } else { self.place };
        Self { place: place.saturating_sub(places), units: 2 }
    }

    /// The key at this distance from another. `None` if there is none.
    fn after(self, key: &[u8]) -> Option<Vec<u8>> {
        let mut after = key.to_vec();
        after.resize(self.place + 1, 0);
        let mut carry = self.units;
        for byte in after.iter_mut().rev() {
            carry += u128::from(*byte);
            *byte = carry.to_le_bytes()[0];
            carry >>= 8;
        }
        (carry == 0).then_some(after)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use etcd_client::proto::PbKeyValue;

    use super::*;

    /// The cost of reading a range.
    #[derive(Debug)]
    struct Effort {
        requests: usize,
        /// The number of keys that the server scans.
        passed: usize,
    }

    fn number(count: usize) -> i64 {
        i64::try_from(count).expect("it is small")
    }

    /// Reads keys in pages, from a server that scans all keys of a range.
    fn read(keys: impl IntoIterator<Item = String>, page: usize) -> (usize, Effort) {
        let keys: BTreeSet<Vec<u8>> = keys.into_iter().map(String::into_bytes).collect();
        let mut effort = Effort { requests: 0, passed: 0 };
        let mut ask = |range: &Range, limit: usize| {
            let all = keys.range(range.key.clone()..range.end.clone());
            let (count, mut kvs) = (all.clone().count(), Vec::new());
            effort.requests += 1;
            effort.passed += count;
            for key in all.take(limit) {
                kvs.push(PbKeyValue { key: key.clone(), ..PbKeyValue::default() });
            }
            let more = kvs.len() < count;
            PbRangeResponse { count: number(count), kvs, more, ..PbRangeResponse::default() }
        };
        let whole = Range { key: b"/d/".to_vec(), end: b"/d0".to_vec() };
        let first = ask(&whole, 64);
        let mut limit = 256.min(page);
        let mut portions = Portions::new(&whole, &first, number(limit));
        let mut read: Vec<_> = first.kvs.into_iter().map(|kv| kv.key).collect();
        while let Some(range) = portions.next() {
            let answer = ask(range, limit);
            // Reads pages as one session does.
            limit = (limit * 4).min(page);
            portions.answered(&answer, number(limit));
            read.extend(answer.kvs.into_iter().map(|kv| kv.key));
            assert_eq!(portions.left(), number(keys.len() - read.len()));
        }
        assert!(read.iter().eq(&keys), "each key once, and in order");
        (keys.len(), effort)
    }

    const PAGE: usize = 800;
    const COUNT: usize = 50 * PAGE;

    /// The maximum cost of reading, in percent: of the fewest pages, and of the keys in the range.
    /// Pages that each request the whole rest would scan 2,500 percent of the keys.
    struct Most {
        pages: usize,
        passed: usize,
    }

    #[track_caller]
    fn takes(most: &Most, what: &str, keys: impl IntoIterator<Item = String>) {
        let (count, effort) = read(keys, PAGE);
        let (pages, passed) = (effort.requests * PAGE * 100 / count, effort.passed * 100 / count);
        assert!(pages <= most.pages, "{what}: {pages} percent of the pages, {effort:?}");
        assert!(passed <= most.passed, "{what}: {passed} percent of the keys, {effort:?}");
    }

    /// Digits that look random.
    fn scattered(number: usize) -> String {
        format!("{:016x}", (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    #[test]
    fn as_many_keys_are_passed_as_there_are_times_a_few() {
        let all = |key: fn(usize) -> String| (0..COUNT).map(key);
        let even = Most { pages: 150, passed: 365 };
        takes(&even, "numbers", all(|it| format!("/d//n{it:09}")));
        takes(&even, "scattered", all(|it| format!("/d//{}", scattered(it))));
        takes(&even, "tickets", all(|it| format!("/d//_c_{}-lock-{it:010}", scattered(it))));
        let short = Most { pages: 140, passed: 480 };
        takes(&short, "short numbers", all(|it| format!("/d//{it}")));
        let dirs = |size| move |it| format!("/d/dir{:06}//n{:06}", it / size, it % size);
        for (size, pages) in [(1, 150), (10, 150), (300, 150), (3 * PAGE, 260), (15 * PAGE, 180)] {
            let most = Most { pages, passed: 365 };
            takes(&most, &format!("directories of {size}"), (0..COUNT).map(dirs(size)));
        }
        let long = "long-".repeat(30);
        let long = |it| format!("/d/{}/{long}//{long}{:06}", it / 8_000, it % 8_000);
        takes(&Most { pages: 480, passed: 490 }, "long names", (0..COUNT).map(long));
        let deep =
            |it| format!("/d/{}/{}/{}//{}", it / 4_000, it / 400 % 10, it / 40 % 10, it % 40);
        takes(&Most { pages: 140, passed: 415 }, "deep", (0..COUNT).map(deep));
        let one = all(|it| format!("/d/one//n{it:06}"));
        let mixed = (0..COUNT / 2).map(dirs(3)).chain(one);
        takes(&Most { pages: 150, passed: 420 }, "a large one among small", mixed);
    }

    #[test]
    fn a_distance_of_more_than_a_byte_counts_from_the_byte_before() {
        let beyond = |units| Distance { place: 3, units }.beyond(1);
        assert_eq!(beyond(0xff), Distance { place: 2, units: 2 });
        assert_eq!(beyond(0x100), Distance { place: 1, units: 2 });
    }

    #[test]
    fn a_small_range_is_not_divided() {
        for count in [65, 300, 1_000] {
            let (_, effort) = read((0..count).map(|it| format!("/d//n{it:09}")), PAGE);
            assert!(effort.requests <= 4, "{count} keys: {effort:?}");
        }
    }
}
