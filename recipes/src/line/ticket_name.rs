//! The time of a request, as a part of the name of its ticket.
//!
//! Not every store keeps the time at which a node was created, and the data of a ticket is its owner's. So the id in
//! the name, which has the form of a UUID, is of version 8 (RFC 9562: its meaning is defined by the implementation).
//! Its last 48 bits are the milliseconds since 1970. The others are random, and come first, so that the order of
//! names means nothing.

use std::time::{Duration, SystemTime};

use crate::mutant::mistake;

/// The version of a UUID that contains the time; [`UNTOLD`] is the version of a UUID that does not.
const TOLD: char = '8';
const UNTOLD: char = '4';

/// An id of 32 digits as a UUID that contains the time `now`, if it is known.
pub(crate) fn dated(id: &str, now: Option<SystemTime>) -> String {
    mistake!(SinceUntold: let now = None);
    let since_1970 = now.and_then(|now| now.duration_since(SystemTime::UNIX_EPOCH).ok());
    let millis = since_1970.and_then(|time| u64::try_from(time.as_millis()).ok());
    let (version, last) = match millis.filter(|millis| millis >> 48 == 0) {
        Some(millis) => (TOLD, format!("{millis:012x}")),
        None => (UNTOLD, id[20..].to_owned()),
    };
    format!("{}-{}-{version}{}-a{}-{last}", &id[..8], &id[8..12], &id[13..16], &id[17..20])
}

/// The time in the name of a ticket, by the clock of its owner. `None` if the ticket is of a program that does not
/// write the time there.
pub(crate) fn since(name: &str) -> Option<SystemTime> {
    since_of_id(name.strip_prefix("_c_")?)
}

/// The time in an id that a text begins with.
pub(crate) fn since_of_id(text: &str) -> Option<SystemTime> {
    let id = text.get(..36)?;
    let mut parts = id.split('-');
    let lengths = [8, 4, 4, 4, 12].map(|length| parts.next().filter(|part| part.len() == length));
    let [Some(_), Some(_), Some(version), Some(_), Some(last)] = lengths else { return None };
    let millis = version.starts_with(TOLD).then(|| u64::from_str_radix(last, 16).ok())??;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis))
}

/// Whether the name of a ticket has a time of the last minute. False if it has no time, or one that is yet to come.
pub(super) fn is_recent(name: &str, now: SystemTime) -> bool {
    const MINUTE: Duration = Duration::from_secs(60);
    since(name).is_some_and(|since| now.duration_since(since).is_ok_and(|age| age < MINUTE))
}

/// Whether the name of a ticket has this time, to the second. True if the name has no time, or `now` is not known.
pub(super) fn is_of_second(name: &str, now: Option<SystemTime>) -> bool {
    const SECOND: Duration = Duration::from_secs(1);
    let (Some(since), Some(now)) = (since(name), now) else { return true };
    now.duration_since(since).is_ok_and(|age| age < SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef";

    fn at(millis: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
    }

    #[test]
    fn a_name_encodes_when_it_was_chosen() {
        for time in [at(0), at(1_795_301_389_123), at((1 << 48) - 1)] {
            let id = dated(ID, Some(time));
            assert_eq!(since(&format!("_c_{id}-lock-0000000007")), Some(time), "{id}");
        }
        assert_eq!(dated(ID, Some(at(0xabc))), "01234567-89ab-8def-a123-000000000abc");
    }

    #[test]
    fn a_name_is_of_its_own_second() {
        let name = format!("_c_{}-lock-", dated(ID, Some(at(5_000))));
        for (now, tells_it) in [(4_999, false), (5_000, true), (5_999, true), (6_000, false)] {
            assert_eq!(is_of_second(&name, Some(at(now))), tells_it, "{now}");
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
    fn a_name_without_a_time_is_not_read_as_one() {
        let long_ago = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        for untold in [None, Some(long_ago), Some(at(1 << 48))] {
            let id = dated(ID, untold);
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
}
