//! [`ScheduleRecord`]: the content of the node of a schedule, and the decision on the next run.
//! Pure: a date is an argument.

use std::num::NonZeroU32;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::value::decode;

use crate::schedule::timetable::{LAST_DATE, Timetable};

/// The time by which a date may be ahead of the clock of a machine. A date further ahead was begun
/// by a clock that was wrong.
pub(super) const MAX_AHEAD: u64 = 5 * 60 * 1_000;

/// The number of gaps that are kept.
const MAX_GAPS: usize = 4;

/// The maximum length of a label and of a failure in the record, in bytes.
pub(super) const MAX_TEXT: usize = 255;

/// The content of the node. Dates are in milliseconds since the beginning of 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ScheduleRecord {
    /// The text of the timetable of the last leader.
    pub(super) timetable: String,
    /// The date up to which no run begins any more: that of the last run, or the date from which
    /// the timetable counts. It only grows.
    pub(super) over: u64,
    /// The next date, for readers without the timetable. Zero if there is none.
    pub(super) next: u64,
    /// The date of the last run that succeeded. Zero if there is none.
    pub(super) succeeded: u64,
    /// The last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<RunRecord>,
    /// Pairs of dates between which no run began, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) gaps: Vec<(u64, u64)>,
}

/// The last attempt at the run of a date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunRecord {
    pub(super) due: u64,
    pub(super) attempt: u32,
    /// The date of the run before. Zero if there is none.
    pub(super) previous: u64,
    /// The label of the process that began the attempt.
    pub(super) by: String,
    pub(super) begun: u64,
    /// Zero until the attempt ends.
    pub(super) ended: u64,
    /// The text of the error of an attempt that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<String>,
}

/// The rules of a schedule, in milliseconds.
#[derive(Clone, Debug)]
pub(super) struct ScheduleRules {
    pub(super) timetable: Timetable,
    /// The number of missed dates that are run, the latest ones.
    pub(super) catch_up: NonZeroU32,
    /// The time after its date within which an attempt begins.
    pub(super) start_within: Option<u64>,
    /// The maximum number of attempts at the run of a date.
    pub(super) attempts: NonZeroU32,
    /// The pause after an attempt that failed.
    pub(super) pause: u64,
}

/// The next step of a leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ScheduleStep {
    /// Writes the record: the schedule begins, or has another timetable.
    Adopt(ScheduleRecord),
    /// Writes the record, and begins the run in it.
    Begin(ScheduleRecord),
    /// Waits until this date.
    Wait(u64),
    /// Nothing is due any more.
    Finish,
}

impl ScheduleRules {
    /// Returns the next step of the leader with this label.
    pub(super) fn next(&self, record: Option<&ScheduleRecord>, by: &str, now: u64) -> ScheduleStep {
        let text = self.timetable.to_string();
        // A schedule without a run that begins far ahead was started by a clock that was wrong.
        let has_begun = |it: &&ScheduleRecord| it.run.is_some() || !is_ahead(it.over, now);
        let adopted = record.filter(|it| it.timetable == text).filter(has_begun);
        let Some(record) = adopted else {
            return ScheduleStep::Adopt(self.adopted(record, text, now));
        };
        let unfinished = record.run.as_ref().filter(|run| self.has_attempt_left(run, now));
        if let Some(run) = unfinished {
            let again = self.attempt_after(run, now);
            if again > now {
                return ScheduleStep::Wait(again);
            }
            let attempt = run.attempt.saturating_add(1);
            let run = RunRecord { attempt, ..begun(run.due, run.previous, by, now) };
            return ScheduleStep::Begin(ScheduleRecord { run: Some(run), ..record.clone() });
        }
        self.next_date(record, by, now)
    }

    /// The first record, or that of another timetable: earlier dates do not count, so a new
    /// timetable runs nothing at once.
    fn adopted(
        &self,
        last: Option<&ScheduleRecord>,
        timetable: String,
        now: u64,
    ) -> ScheduleRecord {
        let start = if self.timetable.includes_past() { 0 } else { now };
        let last = last.filter(|last| last.run.is_some());
        let (run, succeeded) = last.map_or((None, 0), |last| (last.run.clone(), last.succeeded));
        let over = last.map_or(start, |last| last.over.max(start));
        let next = self.timetable.after(over).unwrap_or_default();
        let later = |&(after, before): &(u64, u64)| {
            let after = after.max(start);
            (after < before).then_some((after, before))
        };
        let gaps = last.map_or(&[][..], |last| &last.gaps).iter().filter_map(later);
        // The clock of this machine may be the wrong one.
        let gap = last.map(|last| (last.over, over)).filter(|(before, over)| before < over);
        let gaps = bounded(gaps.chain(gap).collect());
        ScheduleRecord { timetable, over, next, succeeded, run, gaps }
    }

    /// Returns `true` if another attempt at the date of this run may begin.
    fn has_attempt_left(&self, run: &RunRecord, now: u64) -> bool {
        let has_succeeded = run.ended > 0 && run.failure.is_none();
        let is_in_time = self.start_within.is_none_or(|limit| now <= run.due.saturating_add(limit));
        !has_succeeded && run.attempt < self.attempts.get() && is_in_time
    }

    /// The date of the next attempt. The wait is never longer than the pause, even if the clock
    /// differs from that of the machine that failed. Nobody reported the end of an attempt whose
    /// leader is gone: there is no pause.
    fn attempt_after(&self, run: &RunRecord, now: u64) -> u64 {
        if run.ended == 0 {
            return now;
        }
        run.ended.saturating_add(self.pause).min(now.saturating_add(self.pause))
    }

    /// The run of the next date that no run began for.
    fn next_date(&self, record: &ScheduleRecord, by: &str, now: u64) -> ScheduleStep {
        // Dates that are further ahead than clocks differ were begun by a clock that was wrong. The
        // dates that it passed over are not missed: they follow at their time.
        let is_ahead = is_ahead(record.over, now);
        let is_open = |&(after, before): &(u64, u64)| after <= now && now < before;
        let gap = record.gaps.iter().position(is_open).filter(|_| is_ahead);
        let (after, before) = gap.map_or((record.over, u64::MAX), |at| record.gaps[at]);

        let next = self.timetable.after(after).filter(|next| *next < before);
        let next = next.or_else(|| self.timetable.after(record.over));
        let Some(first) = next else { return ScheduleStep::Finish };
        if first > now {
            return ScheduleStep::Wait(first);
        }
        let Some(due) = self.due(first, now) else { return ScheduleStep::Finish };
        if due > now {
            return ScheduleStep::Wait(due);
        }
        let mut gaps = record.gaps.clone();
        if let Some(at) = gap {
            gaps.remove(at);
            gaps.push((due, before));
        }
        if due > first {
            gaps.push((after, due));
        }
        let gaps = bounded(gaps);
        let next = self.timetable.after(due).unwrap_or_default();
        let previous = record.run.as_ref().map(|run| run.due).filter(|last| *last < due);
        let previous = previous.unwrap_or_default();
        let (over, run) = (record.over.max(due), Some(begun(due, previous, by, now)));
        ScheduleStep::Begin(ScheduleRecord { over, next, run, gaps, ..record.clone() })
    }

    /// The date that is run next, of those from `first` until now: the earliest of the latest
    /// `catch_up` that is not too late. A date after now if all are too late.
    fn due(&self, first: u64, now: u64) -> Option<u64> {
        let mut due = self.timetable.last_until(now).filter(|last| *last >= first)?;
        for _ in 1..self.catch_up.get() {
            let before = due.checked_sub(1).and_then(|date| self.timetable.last_until(date));
            let Some(before) = before.filter(|before| *before >= first) else { break };
            due = before;
        }
        let Some(limit) = self.start_within else { return Some(due) };
        let earliest = now.saturating_sub(limit);
        if due >= earliest { Some(due) } else { self.timetable.after(earliest - 1) }
    }
}

/// Returns true if a date is further ahead than clocks differ.
fn is_ahead(date: u64, now: u64) -> bool {
    date > now.saturating_add(MAX_AHEAD)
}

/// The latest gaps.
fn bounded(mut gaps: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    gaps.drain(..gaps.len().saturating_sub(MAX_GAPS));
    gaps
}

/// The first attempt at the run of a date.
fn begun(due: u64, previous: u64, by: &str, now: u64) -> RunRecord {
    let (by, begun) = (by.to_owned(), now);
    RunRecord { due, attempt: 1, previous, by, begun, ended: 0, failure: None }
}

impl ScheduleRecord {
    /// The record after the end of its run.
    pub(super) fn ended(mut self, failure: Option<String>, now: u64) -> Self {
        let Some(run) = &mut self.run else { return self };
        if failure.is_none() {
            self.succeeded = run.due;
        }
        // Zero is not an end.
        run.ended = now.max(1);
        run.failure = failure.map(shortened);
        self
    }

    /// Reads the data of the node at `path`.
    pub(super) fn read(path: &Path, data: &Bytes) -> Result<Self> {
        let record: Self = decode(path, data)?;
        let run = record.run.iter().flat_map(|run| [run.due, run.previous, run.begun, run.ended]);
        let gaps = record.gaps.iter().flat_map(|(after, before)| [*after, *before]);
        let dates = [record.over, record.next, record.succeeded].into_iter().chain(run).chain(gaps);
        if dates.into_iter().all(|date| date <= LAST_DATE) {
            return Ok(record);
        }
        Err(Error::new(ErrorKind::Corrupt, "reading a schedule")
            .at(path)
            .because("the data is no schedule"))
    }
}

/// The beginning of a text, if it is long.
fn shortened(mut text: String) -> String {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or_default());
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HOUR: u64 = 3_600_000;

    fn hourly() -> ScheduleRules {
        ScheduleRules {
            timetable: Timetable::every(Duration::from_millis(HOUR)),
            catch_up: NonZeroU32::MIN,
            start_within: None,
            attempts: NonZeroU32::MIN,
            pause: 0,
        }
    }

    fn of(number: u32) -> NonZeroU32 {
        NonZeroU32::new(number).expect("not zero")
    }

    /// Adopts the timetable at this date.
    fn adopted(rules: &ScheduleRules, last: Option<&ScheduleRecord>, now: u64) -> ScheduleRecord {
        match rules.next(last, "ann", now) {
            ScheduleStep::Adopt(record) => record,
            other => panic!("{other:?}"),
        }
    }

    /// Begins a run at this date, and returns the record with its date and its attempt.
    fn begins(
        rules: &ScheduleRules,
        last: &ScheduleRecord,
        now: u64,
    ) -> (ScheduleRecord, u64, u32) {
        match rules.next(Some(last), "ann", now) {
            ScheduleStep::Begin(record) => {
                let run = record.run.as_ref().expect("a run");
                assert_eq!((&*run.by, run.begun, run.ended), ("ann", now, 0));
                let (due, attempt) = (run.due, run.attempt);
                (record, due, attempt)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Begins and ends a run at this date, and returns the record and the date of the run.
    fn runs(rules: &ScheduleRules, last: &ScheduleRecord, now: u64) -> (ScheduleRecord, u64) {
        let (record, due, _) = begins(rules, last, now);
        (record.ended(None, now), due)
    }

    fn waits(rules: &ScheduleRules, last: &ScheduleRecord, now: u64) -> u64 {
        match rules.next(Some(last), "ann", now) {
            ScheduleStep::Wait(until) => until,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_date_has_one_run_and_the_first_start_has_none() {
        let rules = hourly();
        let first = adopted(&rules, None, 10 * HOUR + 7);
        assert_eq!((first.over, first.next), (10 * HOUR + 7, 11 * HOUR));
        assert_eq!(waits(&rules, &first, 11 * HOUR - 1), 11 * HOUR);
        let (eleven, due) = runs(&rules, &first, 11 * HOUR);
        assert_eq!((due, eleven.next, eleven.succeeded), (11 * HOUR, 12 * HOUR, 11 * HOUR));
        // Also if the clock of the next leader is behind.
        for now in [0, 9 * HOUR, 11 * HOUR - 9, 11 * HOUR + 9] {
            assert_eq!(waits(&rules, &eleven, now), 12 * HOUR, "{now}");
        }
        let (twelve, due) = runs(&rules, &eleven, 12 * HOUR + 5);
        assert_eq!((due, &twelve.gaps[..]), (12 * HOUR, &[][..]));
        assert_eq!(twelve.run.expect("a run").previous, 11 * HOUR);
    }

    #[test]
    fn of_missed_dates_as_many_are_run_as_permitted() {
        let first = adopted(&hourly(), None, HOUR);
        let (latest, due) = runs(&hourly(), &first, 9 * HOUR + 1);
        assert_eq!((due, latest.gaps.last()), (9 * HOUR, Some(&(HOUR, 9 * HOUR))));

        let three = ScheduleRules { catch_up: of(3), ..hourly() };
        let (mut record, mut dates) = (first.clone(), Vec::new());
        while let ScheduleStep::Begin(next) = three.next(Some(&record), "ann", 9 * HOUR + 1) {
            record = next.ended(None, 9 * HOUR + 1);
            dates.push(record.over / HOUR);
        }
        assert_eq!(dates, [7, 8, 9]);
        let all = ScheduleRules { catch_up: NonZeroU32::MAX, ..hourly() };
        assert_eq!(runs(&all, &first, 9 * HOUR).1, 2 * HOUR);

        let soon = |limit| ScheduleRules { start_within: Some(limit), ..all.clone() };
        assert_eq!(runs(&soon(2 * HOUR), &first, 9 * HOUR).1, 7 * HOUR);
        assert_eq!(runs(&soon(u64::MAX), &first, 9 * HOUR).1, 2 * HOUR);
        assert_eq!(runs(&soon(5), &first, 9 * HOUR + 5).1, 9 * HOUR);
        assert_eq!(waits(&soon(5), &first, 9 * HOUR + 6), 10 * HOUR, "all are too late");
    }

    #[test]
    fn another_attempt_follows_a_failure_and_a_lost_leader_if_permitted() {
        let rules = ScheduleRules { attempts: of(3), pause: 10, ..hourly() };
        let first = adopted(&rules, None, HOUR);
        let (begun, due, attempt) = begins(&rules, &first, 2 * HOUR);
        assert_eq!((due, attempt), (2 * HOUR, 1));
        assert_eq!(waits(&hourly(), &begun, 2 * HOUR + 1), 3 * HOUR, "at most once");

        // Nobody reported the end of the first, and the second fails.
        let (begun, due, attempt) = begins(&rules, &begun, 2 * HOUR + 1);
        assert_eq!((due, attempt), (2 * HOUR, 2));
        let failed = begun.ended(Some("e\u{301}".repeat(200)), 2 * HOUR + 2);
        let text = failed.run.as_ref().and_then(|run| run.failure.clone()).expect("a failure");
        assert_eq!((text.len(), failed.succeeded), (MAX_TEXT, 0));
        assert_eq!(waits(&rules, &failed, 2 * HOUR + 3), 2 * HOUR + 12);
        // A clock that is behind does not extend the pause.
        assert_eq!(waits(&rules, &failed, HOUR), HOUR + 10);
        // It precedes the dates that are due meanwhile.
        let (last, due, attempt) = begins(&rules, &failed, 5 * HOUR);
        assert_eq!((due, attempt), (2 * HOUR, 3));
        let failed = last.ended(Some("again".to_owned()), 5 * HOUR);
        let (done, due) = runs(&rules, &failed, 5 * HOUR);
        assert_eq!((due, done.succeeded), (5 * HOUR, 5 * HOUR));

        let soon = ScheduleRules { start_within: Some(5), ..rules };
        let (begun, ..) = begins(&soon, &first, 2 * HOUR);
        assert_eq!(begins(&soon, &begun, 2 * HOUR + 5).2, 2);
        assert_eq!(waits(&soon, &begun, 2 * HOUR + 6), 3 * HOUR, "it is too late");
    }

    #[test]
    fn another_timetable_runs_no_date_that_has_passed() {
        let (rules, half) = (hourly(), Timetable::every(Duration::from_millis(HOUR / 2)));
        let half = ScheduleRules { timetable: half, ..hourly() };
        let (eleven, _) = runs(&rules, &adopted(&rules, None, 10 * HOUR), 11 * HOUR);
        let changed = adopted(&half, Some(&eleven), 11 * HOUR + HOUR / 2 + 1);
        assert_eq!((changed.over, changed.next), (11 * HOUR + HOUR / 2 + 1, 12 * HOUR));
        assert_eq!((&changed.run, changed.succeeded), (&eleven.run, 11 * HOUR));
        assert_eq!(runs(&half, &changed, 12 * HOUR).1, 12 * HOUR);
        // By a clock that is behind, no date begins again.
        let changed = adopted(&half, Some(&eleven), 10 * HOUR);
        assert_eq!(waits(&half, &changed, 10 * HOUR), 11 * HOUR + HOUR / 2);
    }

    #[test]
    fn one_date_runs_once_also_if_it_has_passed() {
        let at = |date: u64| {
            let date = crate::schedule::timetable::as_date(date);
            ScheduleRules { timetable: Timetable::at(date), ..hourly() }
        };
        let rules = at(HOUR);
        let first = adopted(&rules, None, 9 * HOUR);
        assert_eq!((first.over, first.next), (0, HOUR));
        let (done, due) = runs(&rules, &first, 9 * HOUR);
        assert_eq!((due, done.next), (HOUR, 0));
        assert_eq!(rules.next(Some(&done), "ann", 9 * HOUR), ScheduleStep::Finish);
        let later = adopted(&at(2 * HOUR), Some(&done), 9 * HOUR);
        assert_eq!(runs(&at(2 * HOUR), &later, 9 * HOUR).1, 2 * HOUR);
        let earlier = adopted(&at(7), Some(&done), 9 * HOUR);
        assert_eq!(at(7).next(Some(&earlier), "ann", 9 * HOUR), ScheduleStep::Finish);
        let far = adopted(&rules, None, 0);
        assert_eq!(waits(&rules, &far, 0), HOUR);
    }

    #[test]
    fn the_dates_that_a_wrong_clock_passed_over_run_at_their_time() {
        let rules = hourly();
        let (eleven, _) = runs(&rules, &adopted(&rules, None, 10 * HOUR), 11 * HOUR);
        // A clock that is days ahead runs two dates, and another one does so again.
        let (wrong, _) = runs(&rules, &eleven, 100 * HOUR);
        let (wrong, _) = runs(&rules, &wrong, 101 * HOUR);
        assert_eq!(waits(&rules, &wrong, 11 * HOUR + 1), 12 * HOUR);
        let (twelve, due) = runs(&rules, &wrong, 12 * HOUR);
        assert_eq!((due, twelve.over), (12 * HOUR, 101 * HOUR));
        let (twelve, due) = runs(&rules, &twelve, 200 * HOUR);
        assert_eq!(due, 200 * HOUR);
        let mut record = twelve;
        let mut dates = Vec::new();
        for hour in 13..210 {
            if let ScheduleStep::Begin(next) = rules.next(Some(&record), "ann", hour * HOUR) {
                record = next.ended(None, hour * HOUR);
                dates.push(record.run.as_ref().expect("a run").due / HOUR);
            }
        }
        let expected: Vec<_> = (13..210).filter(|hour| ![100, 101, 200].contains(hour)).collect();
        assert_eq!(dates, expected, "each date once");

        // So does a clock that is ahead at the first start.
        let first = adopted(&rules, None, 100 * HOUR);
        let first = adopted(&rules, Some(&first), 10 * HOUR + 1);
        assert_eq!(waits(&rules, &first, 10 * HOUR + 1), 11 * HOUR);
        // And one that has another timetable.
        let (eleven, _) = runs(&rules, &first, 11 * HOUR);
        let often = Timetable::every(Duration::from_millis(HOUR / 2));
        let often = ScheduleRules { timetable: often, ..hourly() };
        let changed = adopted(&often, Some(&eleven), 100 * HOUR);
        assert_eq!(waits(&often, &changed, 11 * HOUR + 1), 11 * HOUR + HOUR / 2);

        // Clocks that are apart by minutes miss no more than that.
        let often = Timetable::every(Duration::from_secs(60));
        let often = ScheduleRules { timetable: often, ..hourly() };
        let (ahead, _) = runs(&often, &adopted(&often, None, HOUR), HOUR + MAX_AHEAD);
        assert_eq!(waits(&often, &ahead, HOUR + 1), HOUR + MAX_AHEAD + 60_000);
    }

    #[test]
    fn data_that_is_no_record_is_an_error() {
        let far = format!(r#"{{"timetable":"","over":{},"next":0,"succeeded":0}}"#, LAST_DATE + 1);
        for data in ["", "7", "{}", &far] {
            let bytes = Bytes::copy_from_slice(data.as_bytes());
            let error = ScheduleRecord::read(&Path::root(), &bytes).expect_err("no record");
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{data}");
        }
    }
}
