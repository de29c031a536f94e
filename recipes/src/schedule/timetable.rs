//! [`Timetable`]: the dates of a schedule. Pure.

use std::fmt;
use std::time::{Duration, SystemTime};

use synod_core::error::{Error, ErrorKind, Result};

#[cfg(feature = "cron")]
use crate::schedule::cron::{Cron, MAX_EXPRESSION};

/// The last date, in milliseconds since the beginning of 1970: that of the year 9999. So all dates
/// have the same number of digits in the store.
pub(super) const LAST_DATE: u64 = 253_402_300_799_999;

/// The dates of a [`Schedule`](crate::schedule::Schedule).
#[derive(Clone)]
pub struct Timetable {
    dates: Dates,
}

/// Dates are in milliseconds since the beginning of 1970.
#[derive(Clone)]
enum Dates {
    Every(u64),
    At(u64),
    #[cfg(feature = "cron")]
    Cron(Box<Cron>),
}

impl Timetable {
    /// Creates a timetable with a date at each multiple of `period` since the beginning of 1970,
    /// UTC: every hour is on the hour, on all machines. The period has at least one millisecond;
    /// fractions of a millisecond are cut off.
    pub fn every(period: Duration) -> Self {
        Self { dates: Dates::Every(millis(period)) }
    }

    /// Creates a timetable with one date. A date in the past is due at once: so
    /// [`SystemTime::UNIX_EPOCH`] is a run at the first opportunity, once and never again.
    pub fn at(date: SystemTime) -> Self {
        let date = date.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // Not before the date, and after "no date".
        let date = date.saturating_add(Duration::from_nanos(999_999));
        Self { dates: Dates::At(millis(date).clamp(1, LAST_DATE)) }
    }

    /// Creates a timetable of the dates of a cron expression, in UTC: minute, hour, day of the
    /// month, month, day of the week, such as `0 3 * * *`. A sixth field before them is the second.
    /// `@hourly` and the like are accepted, and so are `L`, `W` and `#` of the crate `croner`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if `expression` is not a cron expression, or is longer than
    /// [`Timetable::MAX_EXPRESSION`].
    #[cfg(feature = "cron")]
    pub fn cron(expression: &str) -> Result<Self> {
        Ok(Self { dates: Dates::Cron(Box::new(Cron::utc(expression)?)) })
    }

    /// Creates a timetable as [`Timetable::cron`] does, in a time zone: the name of a zone in the
    /// database of the system, such as `Europe/Berlin`, or the rule of a zone in the format of
    /// POSIX, such as `CET-1CEST,M3.5.0,M10.5.0/3`.
    ///
    /// A run at a time of day that a change of the clocks leaves out begins right after the change,
    /// and one at a time that comes twice begins at the first of them. An expression with a `*` in
    /// its minutes or hours has the dates of both.
    ///
    /// # Errors
    ///
    /// As [`Timetable::cron`], and [`ErrorKind::Invalid`] if this machine does not have the zone.
    #[cfg(feature = "cron")]
    pub fn cron_in(expression: &str, zone: &str) -> Result<Self> {
        Ok(Self { dates: Dates::Cron(Box::new(Cron::of_zone(expression, zone)?)) })
    }

    /// The maximum length of a cron expression, and of the name of a time zone, in bytes.
    #[cfg(feature = "cron")]
    pub const MAX_EXPRESSION: usize = MAX_EXPRESSION;

    /// Returns the first date after `date`; `None` if there is none before the year 10000.
    pub fn next_after(&self, date: SystemTime) -> Option<SystemTime> {
        // A date before 1970 is before all dates.
        let after = date.duration_since(SystemTime::UNIX_EPOCH).map_or(0, millis);
        self.after(after).map(as_date)
    }

    /// Returns an error if there is no such timetable.
    pub(super) fn check(&self) -> Result<()> {
        if matches!(self.dates, Dates::Every(0)) {
            let text = "the period of a timetable has at least one millisecond";
            return Err(Error::new(ErrorKind::Invalid, "reading a timetable").because(text));
        }
        Ok(())
    }

    /// Returns `true` if a date before the first start of the schedule is due.
    pub(super) fn includes_past(&self) -> bool {
        matches!(self.dates, Dates::At(_))
    }

    /// Returns the first date after this one.
    pub(super) fn after(&self, date: u64) -> Option<u64> {
        let next = match &self.dates {
            Dates::Every(period) => date.checked_div(*period)?.checked_add(1)?.checked_mul(*period),
            Dates::At(at) => (*at > date).then_some(*at),
            #[cfg(feature = "cron")]
            Dates::Cron(cron) => cron.after(date).filter(|next| *next > date),
        };
        next.filter(|next| *next <= LAST_DATE)
    }

    /// Returns the last date that is not after this one.
    pub(super) fn last_until(&self, date: u64) -> Option<u64> {
        match &self.dates {
            Dates::Every(period) => date.checked_div(*period).map(|passed| passed * period),
            Dates::At(at) => (*at <= date).then_some(*at),
            #[cfg(feature = "cron")]
            Dates::Cron(cron) => cron.last_until(date).filter(|last| *last <= date),
        }
    }
}

/// Shows the period, the date or the expression, as [`ScheduleState`](super::ScheduleState) does.
impl fmt::Display for Timetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.dates {
            Dates::Every(period) => write!(f, "every {:?}", Duration::from_millis(*period)),
            Dates::At(at) => write!(f, "at {at}"),
            #[cfg(feature = "cron")]
            Dates::Cron(cron) => write!(f, "cron {cron}"),
        }
    }
}

impl fmt::Debug for Timetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timetable({self})")
    }
}

/// The milliseconds of a time, or the greatest number of them.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The date of these milliseconds since the beginning of 1970, which are not above [`LAST_DATE`].
pub(super) fn as_date(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    #[test]
    fn the_dates_of_a_period_are_its_multiples() {
        let hourly = Timetable::every(Duration::from_millis(HOUR));
        for (date, last, next) in
            [(0, 0, HOUR), (1, 0, HOUR), (HOUR - 1, 0, HOUR), (HOUR, HOUR, 2 * HOUR)]
        {
            assert_eq!((hourly.last_until(date), hourly.after(date)), (Some(last), Some(next)));
        }
        assert_eq!(hourly.after(LAST_DATE), None, "the year 10000 has none");
        assert_eq!(Timetable::every(Duration::MAX).after(0), None);
        for none in [Duration::ZERO, Duration::from_nanos(999_999)] {
            let none = Timetable::every(none);
            let error = none.check().expect_err("no period");
            assert_eq!((error.kind(), none.after(7)), (ErrorKind::Invalid, None));
        }
        let short = Timetable::every(Duration::from_nanos(1_999_999));
        assert_eq!((short.check().is_ok(), short.after(7)), (true, Some(8)));
    }

    #[test]
    fn one_date_is_due_once_and_not_early() {
        let date = SystemTime::UNIX_EPOCH + Duration::from_nanos(7_000_001);
        let once = Timetable::at(date);
        assert_eq!((once.after(7), once.after(8)), (Some(8), None));
        assert_eq!((once.last_until(7), once.last_until(8)), (None, Some(8)));
        for past in [SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH - Duration::from_secs(1)] {
            assert_eq!(Timetable::at(past).after(0), Some(1), "it is after no date");
        }
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(Timetable::at(far).after(0), Some(LAST_DATE));
        assert_eq!(once.next_after(SystemTime::UNIX_EPOCH), Some(as_date(8)));
        assert_eq!(once.next_after(date + Duration::from_millis(1)), None);
    }

    #[test]
    fn a_timetable_has_its_text() {
        let texts = [
            (Timetable::every(Duration::from_secs(90)), "every 90s"),
            (Timetable::at(as_date(8)), "at 8"),
        ];
        for (timetable, text) in texts {
            assert_eq!(timetable.to_string(), text);
        }
    }
}
