//! [`TaskTerms`]: the terms of the assignment of a task, as its nodes hold them.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The terms of the assignment of a task. They move with the task from node to node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct TaskTerms {
    /// The priority. A lower number is assigned earlier.
    pub(super) priority: i32,
    /// The maximum number of retries after failed attempts.
    pub(super) retries: u32,
    /// The properties that a worker must have.
    pub(super) needs: BTreeMap<String, String>,
    /// The properties that a worker should have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) prefers: BTreeMap<String, String>,
    /// The deadline, in milliseconds since the beginning of 1970, by the wall clock of the
    /// submitter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) deadline: Option<u64>,
    /// The pauses after failed attempts.
    #[serde(skip_serializing_if = "TaskBackoff::is_default")]
    pub(super) backoff: TaskBackoff,
    /// The time limit of each attempt, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) attempt_timeout: Option<u64>,
    /// The date of the last assignment, in milliseconds since the beginning of 1970, by the wall
    /// clock of the master.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) assigned: Option<u64>,
    /// The pause after the last attempt, which failed, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pause: Option<u64>,
    /// The end of that pause, in milliseconds since the beginning of 1970, by the wall clock of the
    /// worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<u64>,
}

/// The first and the longest pause after a failed attempt, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TaskBackoff {
    first: u64,
    longest: u64,
}

impl TaskBackoff {
    pub(super) fn new(first: Duration, longest: Duration) -> Self {
        Self { first: millis(first), longest: millis(longest) }
    }

    /// Returns the pause after a failed attempt that was preceded by this number of failed ones.
    pub(super) fn pause(self, failed: u32) -> Duration {
        let factor = 1_u64.checked_shl(failed).unwrap_or(u64::MAX);
        Duration::from_millis(self.first.saturating_mul(factor).min(self.longest))
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for TaskBackoff {
    /// From one second to five minutes.
    fn default() -> Self {
        Self::new(Duration::from_secs(1), Duration::from_secs(5 * 60))
    }
}

impl TaskTerms {
    /// Returns the terms with the deadline of a task that is submitted at this date, since the
    /// beginning of 1970, and may take this time.
    pub(super) fn submitted(self, date: Duration, time: Option<Duration>) -> Self {
        Self { deadline: time.map(|time| millis(date.saturating_add(time))), ..self }
    }

    /// Sets the time limit of each attempt. It is not shorter than `limit`.
    pub(super) fn set_attempt_timeout(&mut self, limit: Duration) {
        self.attempt_timeout = Some(millis(limit.saturating_add(Duration::from_nanos(999_999))));
    }

    /// The time limit of each attempt.
    pub(super) fn attempt_timeout(&self) -> Option<Duration> {
        self.attempt_timeout.map(Duration::from_millis)
    }

    /// The date of the last assignment, since the beginning of 1970.
    pub(super) fn assigned(&self) -> Option<Duration> {
        self.assigned.map(Duration::from_millis)
    }

    /// Returns the rest of the pause after the last attempt, as of this date. It is never longer
    /// than the pause, even if the clock differs from that of the worker.
    pub(super) fn pause_left(&self, date: Duration) -> Duration {
        let pause = Duration::from_millis(self.pause.unwrap_or_default());
        let until = self.until.map_or(Duration::MAX, Duration::from_millis);
        pause.min(until.saturating_sub(date))
    }
}

const ASSIGNED: &str = "\"assigned\":";
const PAUSE: &str = "\"pause\":";
const UNTIL: &str = "\"until\":";

/// Returns stored terms with the date of an assignment.
pub(super) fn assigned_at(stored: &Bytes, date: Duration) -> Bytes {
    dated(stored, &format!("{ASSIGNED}{}", millis(date)))
}

/// Returns stored terms with the pause of a task whose attempt failed at this date.
pub(super) fn paused_at(stored: &Bytes, pause: Duration, date: Duration) -> Bytes {
    let until = millis(date.saturating_add(pause));
    dated(stored, &format!("{PAUSE}{},{UNTIL}{until}", millis(pause)))
}

/// Returns stored terms with these dates in place of earlier ones. All other terms are unchanged,
/// including those of later versions.
fn dated(stored: &Bytes, dates: &str) -> Bytes {
    let terms = std::str::from_utf8(stored).ok().and_then(|text| text.strip_prefix('{'));
    let Some(mut others) = terms else { return stored.clone() };
    // The dates come first: only this function writes them.
    while let Some(dated) =
        [ASSIGNED, PAUSE, UNTIL].into_iter().find_map(|name| others.strip_prefix(name))
    {
        others = dated.trim_start_matches(|it: char| it.is_ascii_digit());
        others = others.strip_prefix(',').unwrap_or(others);
    }
    let comma = if others.starts_with('}') { "" } else { "," };
    format!("{{{dates}{comma}{others}").into()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use synod_core::path;
    use synod_core::value::{decode, encode};

    use super::*;
    use crate::crew::submitting::NewTask;

    fn read(stored: &[u8]) -> TaskTerms {
        decode(&path!("/crew/todo/a"), stored).expect("terms")
    }

    #[test]
    fn terms_are_stored_as_by_earlier_versions_unless_new_ones_are_set() {
        let stored = br#"{"priority":1,"retries":2,"needs":{"disk":"big"}}"#;
        let new = NewTask::new("").priority(1).retries(2).needs("disk", "big");
        let at = path!("/crew/todo/a");

        assert_eq!(read(stored), new.terms);
        assert_eq!(&encode(&at, &new.terms).expect("JSON")[..], stored);
        let second = Duration::from_secs(1);
        let new = new.prefers("rack", "red").backoff(second, second);
        let terms = new.attempt_timeout(second).terms;
        let terms = terms.submitted(2 * second, None).submitted(2 * second, Some(3 * second));
        assert_eq!(terms.deadline, Some(5_000));
        assert_eq!(read(&encode(&at, &terms).expect("JSON")), terms);
    }

    #[test]
    fn an_assignment_has_the_terms_of_its_task_and_its_own_date() {
        let of = |text: &'static str| Bytes::from_static(text.as_bytes());
        let second = Duration::from_secs(1);
        for stored in [of("{}"), of(r#"{"priority":1,"of a later version":[1]}"#)] {
            let terms = read(&stored);
            let once = assigned_at(&stored, 5 * second);
            let failed = paused_at(&once, 2 * second, 6 * second);
            let again = assigned_at(&failed, 9 * second);
            assert_eq!(read(&once), TaskTerms { assigned: Some(5_000), ..terms.clone() });
            let paused = TaskTerms { pause: Some(2_000), until: Some(8_000), ..terms.clone() };
            assert_eq!(read(&failed), paused);
            assert_eq!(read(&again), TaskTerms { assigned: Some(9_000), ..terms });
            assert!(stored.len() == 2 || again.ends_with(&stored[1..]), "{again:?}");
        }
        assert_eq!(assigned_at(&of("other"), Duration::ZERO), "other");
    }

    #[test]
    fn a_pause_doubles_up_to_the_longest_and_no_clock_extends_it() {
        let second = Duration::from_secs(1);
        let backoff = TaskBackoff::new(second, 5 * second);
        let pauses = [0, 1, 2, 3, 63, 64, u32::MAX].map(|failed| backoff.pause(failed).as_secs());
        assert_eq!(pauses, [1, 2, 4, 5, 5, 5, 5]);
        assert_eq!(TaskBackoff::new(Duration::ZERO, second).pause(9), Duration::ZERO);
        let endless = TaskBackoff::new(Duration::MAX, Duration::MAX);
        assert_eq!(endless.pause(9), Duration::from_millis(u64::MAX));

        let stored = paused_at(&Bytes::from_static(b"{}"), 4 * second, 100 * second);
        let left = [0, 100, 103, 104, 999].map(|now| read(&stored).pause_left(now * second));
        assert_eq!(left.map(|left| left.as_secs()), [4, 4, 1, 0, 0]);
        assert_eq!(TaskTerms::default().pause_left(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn an_attempt_has_at_least_the_time_of_its_task() {
        let nanos = Duration::from_nanos;
        for (limit, expected) in [
            (Duration::ZERO, Duration::ZERO),
            (nanos(1), Duration::from_millis(1)),
            (Duration::from_millis(1), Duration::from_millis(1)),
            (nanos(1_000_001), Duration::from_millis(2)),
            (Duration::MAX, Duration::from_millis(u64::MAX)),
        ] {
            let terms = NewTask::new("").attempt_timeout(limit).terms;
            assert_eq!(terms.attempt_timeout(), Some(expected), "{limit:?}");
        }
        assert_eq!(TaskTerms::default().attempt_timeout(), None);
    }

    #[test]
    fn a_date_out_of_range_is_the_last_date() {
        let terms = TaskTerms::default().submitted(Duration::from_secs(1), Some(Duration::MAX));
        assert_eq!(terms.deadline, Some(u64::MAX));
        let stored = Bytes::from_static(b"{}");
        let longest = paused_at(&assigned_at(&stored, Duration::MAX), Duration::MAX, Duration::MAX);
        assert_eq!(read(&longest).until, Some(u64::MAX));
    }
}
