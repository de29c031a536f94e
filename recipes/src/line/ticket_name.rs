//! Ticket names: the claim of a ticket, the time of its request, and the reuse of names.
//!
//! # Suffixes
//!
//! The end of a node's name, in front of the digits that some stores append, identifies it as a
//! ticket. Other libraries use the same suffixes, and so can share the queue:
//!
//! | suffix | used by | claim |
//! |---|---|---|
//! | `lock-`, `latch-` | Curator's mutex and leader latch, and synod | exclusive |
//! | `__WRIT__`, `__READ__` | Curator's read-write lock, and synod | exclusive, shared |
//! | `__lock__`, `__rlock__` | kazoo's locks | exclusive, shared |
//! | `lease-` | Curator's semaphore, and synod | one permit |
//! | `x3-lease-`, `x3of5-lease-` | synod | three permits; of five, according to its owner |
//! | the session's id alone | etcd's own locks and elections | exclusive |
//!
//! A node with any other name is not a ticket, and is ignored.
//!
//! # The time of a request
//!
//! Not every store keeps the time at which a node was created, and the data of a ticket belongs to
//! its owner. So the name contains the time, in an id that has the form of a UUID of version 8 (RFC
//! 9562: its meaning is defined by the implementation). The last 48 bits of the id are the
//! milliseconds since 1970. The other bits are random, and come first, so that the order of names
//! has no meaning.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use synod_core::path::Path;
use synod_core::store::Sequence;

use crate::mutant::mistake;

/// The claim of a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Claim {
    /// Exclusive: to be the only holder.
    Alone,
    /// Shared: to hold together with others of the same claim.
    Shared,
    /// This number of permits.
    Permits(u32),
}

/// The number of contenders or permits that a queue grants together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capacity {
    /// One exclusive contender, or all shared ones.
    One,
    /// This number of permits.
    Permits(u32),
    /// The number of permits in the name of a node in the same directory.
    Posted,
}

const SUFFIXES: &[(&str, Claim)] = &[
    ("lock-", Claim::Alone),
    ("latch-", Claim::Alone),
    ("__WRIT__", Claim::Alone),
    ("__READ__", Claim::Shared),
    ("__lock__", Claim::Alone),
    ("__rlock__", Claim::Shared),
];

impl Claim {
    /// The claim of a ticket whose name ends in this suffix.
    pub(crate) fn of_suffix(suffix: &str) -> Self {
        claim(suffix).unwrap_or(Self::Alone)
    }
}

/// Returns a name without the digits that the store appended: the sequence, with at least ten
/// digits.
pub(super) fn without_digits(name: &str, sequence: Sequence) -> Option<&str> {
    let (mut stem, mut left, mut digits) = (name, sequence.get(), 0);
    while digits < 10 || left > 0 {
        let digit = char::from_digit(u32::try_from(left % 10).ok()?, 10)?;
        stem = stem.strip_suffix(digit)?;
        (left, digits) = (left / 10, digits + 1);
    }
    Some(stem)
}

/// The claim of a ticket with this name, from which the digits of the store were removed.
pub(super) fn claim(stem: &str) -> Option<Claim> {
    let ends_in = |suffix: &str| {
        let before = stem.strip_suffix(suffix);
        // `block-` is not a lock.
        before.is_some_and(|it| suffix.starts_with('_') || it.is_empty() || it.ends_with('-'))
    };
    if let Some((_, claim)) = SUFFIXES.iter().find(|(suffix, _)| ends_in(suffix)) {
        return Some(*claim);
    }
    stem.strip_suffix("lease-").map(|before| Claim::Permits(permits(before).0))
}

/// The suffix of a ticket for this number of permits.
pub(crate) fn permits_suffix(permits: u32, capacity: Capacity) -> String {
    match capacity {
        Capacity::Permits(all) => format!("x{permits}of{all}-lease-"),
        _ if permits == 1 => "lease-".to_owned(),
        _ => format!("x{permits}-lease-"),
    }
}

/// The permits and the limit in a name: `...-x3of5-` is three permits of five, `...-x3-` three, any
/// other name one.
pub(super) fn permits(before: &str) -> (u32, Option<u32>) {
    let part = before.strip_suffix('-').and_then(|rest| rest.rsplit_once('-'));
    let Some(text) = part.and_then(|(_, part)| part.strip_prefix('x')) else { return (1, None) };
    let (wanted, all) = text.split_once("of").map_or((text, None), |(it, all)| (it, Some(all)));
    (wanted.parse().unwrap_or(1), all.and_then(|all| all.parse().ok()))
}

/// The version of a UUID that contains the time.
const WITH_TIME: char = '8';
/// The version of a UUID that does not.
const WITHOUT_TIME: char = '4';

/// An id of 32 digits as a UUID that contains the time `now`, if it is known.
pub(crate) fn dated(id: &str, now: Option<SystemTime>) -> String {
    mistake!(SinceUntold: let now = None);
    let since_1970 = now.and_then(|now| now.duration_since(SystemTime::UNIX_EPOCH).ok());
    let millis = since_1970.and_then(|time| u64::try_from(time.as_millis()).ok());
    let (version, last) = match millis.filter(|millis| millis >> 48 == 0) {
        Some(millis) => (WITH_TIME, format!("{millis:012x}")),
        None => (WITHOUT_TIME, id[20..].to_owned()),
    };
    format!("{}-{}-{version}{}-a{}-{last}", &id[..8], &id[8..12], &id[13..16], &id[17..20])
}

/// The time in the name of a ticket, by the clock of its owner. `None` if the ticket is of a
/// program that does not write the time there.
pub(crate) fn since(name: &str) -> Option<SystemTime> {
    since_of_id(name.strip_prefix("_c_")?)
}

/// The time in the id at the beginning of a text.
pub(crate) fn since_of_id(text: &str) -> Option<SystemTime> {
    let id = text.get(..36)?;
    let mut parts = id.split('-');
    let lengths = [8, 4, 4, 4, 12].map(|length| parts.next().filter(|part| part.len() == length));
    let [Some(_), Some(_), Some(version), Some(_), Some(last)] = lengths else { return None };
    let millis = version.starts_with(WITH_TIME).then(|| u64::from_str_radix(last, 16).ok())??;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis))
}

/// Returns `true` if the name of a ticket has a time within the last minute. False if it has no
/// time, or a time in the future.
pub(super) fn is_recent(name: &str, now: SystemTime) -> bool {
    const MINUTE: Duration = Duration::from_secs(60);
    since(name).is_some_and(|since| now.duration_since(since).is_ok_and(|age| age < MINUTE))
}

/// Returns `true` if the name of a ticket has this time, to the second. Also returns `true` if the
/// name has no time, or `now` is not known.
pub(super) fn is_of_second(name: &str, now: Option<SystemTime>) -> bool {
    const SECOND: Duration = Duration::from_secs(1);
    let (Some(since), Some(now)) = (since(name), now) else { return true };
    now.duration_since(since).is_ok_and(|age| age < SECOND)
}

/// The maximum number of free names. At the limit, all of them are dropped; a dropped name is not
/// reused.
const MAX_NAMES: usize = 1_024;

/// The names that a session gave to tickets and that are free again: the ticket is gone, and no
/// request that creates or removes it is in flight.
///
/// A store with a history keeps every name that ever existed, and scans all of them when it lists a
/// queue. So a session that acquires repeatedly reuses a name where that is safe: the revision of
/// the create distinguishes a ticket from earlier tickets of the same name.
#[derive(Debug, Default)]
pub(super) struct FreeNames(Mutex<NamesState>);

/// The free names of each directory.
#[derive(Debug, Default)]
struct NamesState {
    by_dir: BTreeMap<Path, Vec<Path>>,
    count: usize,
}

impl FreeNames {
    /// Takes a name that ends in this suffix. No other caller gets the same name.
    pub(super) fn take(&self, dir: &Path, suffix: &str) -> Option<Path> {
        let mut state = self.state();
        let names = state.by_dir.get_mut(dir)?;
        let place = names.iter().rposition(|name| name.as_str().ends_with(suffix))?;
        let name = names.swap_remove(place);
        if names.is_empty() {
            state.by_dir.remove(dir);
        }
        state.count -= 1;
        Some(name)
    }

    /// Records that this name is free from now on.
    pub(super) fn give(&self, name: &Path) {
        let Some(dir) = name.parent() else { return };
        let mut state = self.state();
        if state.count >= MAX_NAMES {
            *state = NamesState::default();
        }
        state.by_dir.entry(dir).or_default().push(name.clone());
        state.count += 1;
    }

    fn state(&self) -> MutexGuard<'_, NamesState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef";

    fn at(millis: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
    }

    #[test]
    fn a_name_contains_the_time_at_which_it_was_chosen() {
        for time in [at(0), at(1_795_301_389_123), at((1 << 48) - 1)] {
            let id = dated(ID, Some(time));
            assert_eq!(since(&format!("_c_{id}-lock-0000000007")), Some(time), "{id}");
        }
        assert_eq!(dated(ID, Some(at(0xabc))), "01234567-89ab-8def-a123-000000000abc");
    }

    #[test]
    fn a_name_is_of_its_own_second() {
        let name = format!("_c_{}-lock-", dated(ID, Some(at(5_000))));
        for (now, expected) in [(4_999, false), (5_000, true), (5_999, true), (6_000, false)] {
            assert_eq!(is_of_second(&name, Some(at(now))), expected, "{now}");
        }
        assert!(is_of_second(&name, None) && is_of_second("lock-0000000007", Some(at(0))));
    }

    #[test]
    fn a_name_is_recent_for_a_minute() {
        let name = format!("_c_{}-lock-", dated(ID, Some(at(5_000))));
        for (now, recent) in [(4_999, false), (5_000, true), (64_999, true), (65_000, false)] {
            assert_eq!(is_recent(&name, at(now)), recent, "{now}");
        }
        assert!(!is_recent("lock-0000000007", at(5_000)));
        assert!(!is_recent(&format!("_c_{}-lock-", dated(ID, None)), at(5_000)));
    }

    #[test]
    fn a_name_without_a_time_has_none() {
        let long_ago = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        for unusable in [None, Some(long_ago), Some(at(1 << 48))] {
            let id = dated(ID, unusable);
            assert_eq!(id, "01234567-89ab-4def-a123-456789abcdef");
            assert_eq!(since(&format!("_c_{id}-lock-")), None);
        }
        for strange in [
            "",
            "_c_",
            "lock-0000000007",
            "_c_0123456789abcdef0123456789abcdef-lock-",
            "_c_01234567-89ab-8def-a123-00000000zabc-lock-",
            "_c_0123456789-ab-8def-a123-000000000abc-lock-",
            "_c_01234567-89ab-8def-a123-0000000ä-lock-",
            "01234567-89ab-8def-a123-000000000abc-lock-",
        ] {
            assert_eq!(since(strange), None, "{strange}");
        }
    }

    fn path(text: &str) -> Path {
        Path::new(text).expect("valid")
    }

    #[test]
    fn a_name_is_taken_once_in_its_directory_and_under_its_suffix() {
        let names = FreeNames::default();
        names.give(&path("/q/a-lock-"));
        names.give(&path("/q/b-lease-"));
        assert_eq!(names.take(&path("/p"), "lock-"), None);
        assert_eq!(names.take(&path("/q"), "lease-"), Some(path("/q/b-lease-")));
        assert_eq!(names.take(&path("/q"), "lease-"), None);
        assert_eq!(names.take(&path("/q"), "lock-"), Some(path("/q/a-lock-")));
        assert_eq!(names.take(&path("/q"), "lock-"), None);
        assert!(names.state().by_dir.is_empty() && names.state().count == 0);
    }

    #[test]
    fn all_free_names_are_forgotten_at_the_limit() {
        let names = FreeNames::default();
        for number in 0..=MAX_NAMES {
            names.give(&path(&format!("/q{number}/lock-")));
        }
        assert_eq!(names.state().count, 1);
        assert!(names.take(&path(&format!("/q{MAX_NAMES}")), "lock-").is_some());
    }
}
