//! [`NewTask`]: a task as it is submitted. [`TaskTerms`]: how it is assigned, as its nodes hold it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A task to be submitted: its data, and how it is assigned. Data alone is a task, too.
#[derive(Clone, PartialEq, Eq)]
pub struct NewTask {
    pub(super) data: Bytes,
    pub(super) terms: TaskTerms,
    /// The time that it has from its submission on.
    pub(super) time: Option<Duration>,
}

/// How a task is assigned. It goes with the task from place to place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct TaskTerms {
    /// Tasks of a higher one are assigned first.
    pub(super) priority: i32,
    /// How many attempts may fail before the last one.
    pub(super) retries: u32,
    /// The properties that a worker must have.
    pub(super) needs: BTreeMap<String, String>,
    /// The properties that a worker should have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) prefers: BTreeMap<String, String>,
    /// When it expires, in milliseconds since the beginning of 1970, by the wall clock of its submitter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) deadline: Option<u64>,
    /// When it was assigned last, in milliseconds since the beginning of 1970, by the wall clock of that master.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) assigned: Option<u64>,
}

impl NewTask {
    /// A task with this data: priority zero, no other attempt after one that failed, for any worker.
    pub fn new(data: impl Into<Bytes>) -> Self {
        Self { data: data.into(), terms: TaskTerms::default(), time: None }
    }

    /// Sets the priority. Of the tasks that wait, those of the highest priority are assigned first, and of these those that
    /// have waited the longest.
    pub fn priority(mut self, priority: i32) -> Self {
        self.terms.priority = priority;
        self
    }

    /// Lets the task end as [expired](crate::TaskEnd::Expired) if it is not over when so much time has passed since its
    /// submission, by the wall clocks of the submitter and of the master. Once it has expired no result is accepted.
    pub fn deadline(mut self, time: Duration) -> Self {
        self.time = Some(time);
        self
    }

    /// Sets how often the task is tried again after an attempt that failed. An attempt whose worker was lost does not count:
    /// its task is always assigned again.
    pub fn retries(mut self, retries: u32) -> Self {
        self.terms.retries = retries;
        self
    }

    /// Lets only workers have it that have [this property](crate::CrewWorker::property).
    pub fn needs(mut self, property: impl Into<String>, value: impl Into<String>) -> Self {
        self.terms.needs.insert(property.into(), value.into());
        self
    }

    /// Names a worker with [this property](crate::CrewWorker::property) as the better one. It counts if the policy of the master
    /// is [this property](crate::CrewPolicy::Property) or a function.
    pub fn prefers(mut self, property: impl Into<String>, value: impl Into<String>) -> Self {
        self.terms.prefers.insert(property.into(), value.into());
        self
    }
}

impl TaskTerms {
    /// With the deadline of a task that is submitted at this date, since the beginning of 1970, and has so much time.
    pub(super) fn submitted(self, date: Duration, time: Option<Duration>) -> Self {
        let until = time.map(|time| date.saturating_add(time).as_millis());
        let deadline = until.map(|until| u64::try_from(until).unwrap_or(u64::MAX));
        Self { deadline, ..self }
    }

    /// When the task was assigned last, since the beginning of 1970.
    pub(super) fn assigned(&self) -> Option<Duration> {
        self.assigned.map(Duration::from_millis)
    }
}

/// What precedes the date of an assignment in the terms.
const ASSIGNED: &str = "\"assigned\":";

/// Terms as they are stored, with the date of an assignment in place of that of an earlier one. All others stay as they are,
/// also those that only later versions know.
pub(super) fn assigned_at(stored: &Bytes, date: Duration) -> Bytes {
    let terms = std::str::from_utf8(stored).ok().and_then(|text| text.strip_prefix('{'));
    let Some(terms) = terms else { return stored.clone() };
    let others = match terms.strip_prefix(ASSIGNED) {
        // Only this function writes it.
        Some(dated) => dated.trim_start_matches(|it: char| it == ',' || it.is_ascii_digit()),
        None => terms,
    };
    let comma = if others.starts_with('}') { "" } else { "," };
    format!("{{{ASSIGNED}{}{comma}{others}", date.as_millis()).into()
}

impl<T: Into<Bytes>> From<T> for NewTask {
    fn from(data: T) -> Self {
        Self::new(data)
    }
}

/// Shows no data: it is the application's.
impl fmt::Debug for NewTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewTask")
            .field("terms", &self.terms)
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use synod_core::path;
    use synod_core::value::{decode, encode};

    use super::*;

    #[test]
    fn terms_are_as_before_unless_something_new_is_asked_for() {
        let stored = br#"{"priority":1,"retries":2,"needs":{"disk":"big"}}"#;
        let new = NewTask::new("").priority(1).retries(2).needs("disk", "big");
        let at = path!("/crew/todo/a");

        assert_eq!(decode::<TaskTerms>(&at, stored).expect("terms"), new.terms);
        assert_eq!(&encode(&at, &new.terms).expect("JSON")[..], stored);
        let asked = new.prefers("rack", "red").terms.submitted(Duration::from_secs(2), None);
        let asked = asked.submitted(Duration::from_secs(2), Some(Duration::from_secs(3)));
        assert_eq!(asked.deadline, Some(5_000));
        let again = encode(&at, &asked).expect("JSON");
        assert_eq!(decode::<TaskTerms>(&at, &again).expect("terms"), asked);
    }

    #[test]
    fn an_assignment_has_the_terms_of_its_task_and_its_own_date() {
        let at = path!("/crew/assigned/w/a");
        let of = |text: &'static str| Bytes::from_static(text.as_bytes());
        for stored in [of("{}"), of(r#"{"priority":1,"of a later version":[1]}"#)] {
            let terms: TaskTerms = decode(&at, &stored).expect("terms");
            let once = assigned_at(&stored, Duration::from_secs(5));
            let twice = assigned_at(&once, Duration::from_secs(6));
            let again: TaskTerms = decode(&at, &twice).expect("terms");
            assert_eq!(again.assigned(), Some(Duration::from_secs(6)));
            assert_eq!(TaskTerms { assigned: None, ..again }, terms);
            assert!(stored.len() == 2 || twice.ends_with(&stored[1..]), "{twice:?}");
        }
        assert_eq!(assigned_at(&of("other"), Duration::ZERO), "other");
    }

    #[test]
    fn a_time_that_no_date_can_have_is_the_last_date() {
        let terms = TaskTerms::default().submitted(Duration::from_secs(1), Some(Duration::MAX));
        assert_eq!(terms.deadline, Some(u64::MAX));
    }
}
