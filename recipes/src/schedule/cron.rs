//! [`Cron`]: the dates of a cron expression in a time zone. Pure.

use std::fmt;

use croner::parser::{CronParser, Year};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use synod_core::error::{Error, ErrorKind, Result};

/// The action that errors name.
const DOING: &str = "reading a cron expression";

/// The maximum length of an expression, and of the name of a time zone, in bytes.
pub(super) const MAX_EXPRESSION: usize = 255;

/// A cron expression, and the time zone that it is in.
#[derive(Clone)]
pub(super) struct Cron {
    text: String,
    dates: croner::Cron,
    zone: TimeZone,
}

impl Cron {
    pub(super) fn utc(expression: &str) -> Result<Self> {
        Self::new(expression, expression.trim().to_owned(), TimeZone::UTC)
    }

    pub(super) fn of_zone(expression: &str, name: &str) -> Result<Self> {
        check_length(name)?;
        let zone = TimeZone::get(name).or_else(|_unknown| TimeZone::posix(name));
        let zone = zone.map_err(|_neither| {
            // The error of the rule does not help with the name of a zone.
            invalid(
                "no such time zone on this machine (is tzdata installed?), and no rule of POSIX",
            )
        })?;
        Self::new(expression, format!("{} in {name}", expression.trim()), zone)
    }

    fn new(expression: &str, text: String, zone: TimeZone) -> Result<Self> {
        check_length(expression)?;
        // A year that is over would be a schedule without a date.
        let parser = CronParser::builder().year(Year::Disallowed).build();
        let dates = parser.parse(expression);
        let dates = dates.map_err(|error| invalid("no cron expression").caused_by(error))?;
        Ok(Self { text, dates, zone })
    }

    /// Returns the first date after this one, in milliseconds since the beginning of 1970.
    pub(super) fn after(&self, date: u64) -> Option<u64> {
        let next = self.dates.find_next_occurrence(&self.zoned(date)?, false);
        in_millis(&next.ok()?)
    }

    /// Returns the last date that is not after this one.
    pub(super) fn last_until(&self, date: u64) -> Option<u64> {
        let last = self.dates.find_previous_occurrence(&self.zoned(date)?, true);
        in_millis(&last.ok()?)
    }

    fn zoned(&self, date: u64) -> Option<Zoned> {
        // Expressions have whole seconds.
        let second = i64::try_from(date / 1_000).ok()?;
        Some(Timestamp::from_second(second).ok()?.to_zoned(self.zone.clone()))
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn in_millis(date: &Zoned) -> Option<u64> {
    u64::try_from(date.timestamp().as_millisecond()).ok()
}

fn check_length(text: &str) -> Result<()> {
    let max = MAX_EXPRESSION;
    if text.len() <= max {
        return Ok(());
    }
    Err(invalid(format!("{} bytes, and the limit is {max}", text.len())))
}

fn invalid(why: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Invalid, DOING).because(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The clocks of Central Europe, without the database of the system.
    const CET: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

    fn at(date: &str) -> u64 {
        let date: Timestamp = date.parse().expect("a date");
        u64::try_from(date.as_millisecond()).expect("after 1970")
    }

    /// The dates between two dates, forward and backward.
    fn dates(cron: &Cron, from: &str, until: &str) -> Vec<String> {
        let (from, until) = (at(from), at(until));
        let shown = |date: &u64| {
            let date = i64::try_from(*date).expect("a date");
            Timestamp::from_millisecond(date).expect("a date").to_string()
        };
        let forward = std::iter::successors(Some(from), |date| cron.after(*date));
        let forward: Vec<_> = forward.skip(1).take_while(|date| *date <= until).collect();
        let backward =
            std::iter::successors(cron.last_until(until), |date| cron.last_until(date - 1));
        let mut backward: Vec<_> = backward.take_while(|date| *date > from).collect();
        backward.reverse();
        assert_eq!(forward, backward, "{cron}");
        forward.iter().map(shown).collect()
    }

    #[test]
    fn the_dates_of_an_expression_are_in_utc() {
        let nightly = Cron::utc(" 0 3 * * * ").expect("an expression");
        assert_eq!(nightly.to_string(), "0 3 * * *");
        assert_eq!(
            dates(&nightly, "2026-02-27T03:00:00Z", "2026-03-01T03:00:00Z"),
            ["2026-02-28T03:00:00Z", "2026-03-01T03:00:00Z"]
        );
        let by_second = Cron::utc("*/20 59 23 31 12 *").expect("an expression");
        assert_eq!(
            dates(&by_second, "2026-01-01T00:00:00Z", "2026-12-31T23:59:59Z"),
            ["2026-12-31T23:59:00Z", "2026-12-31T23:59:20Z", "2026-12-31T23:59:40Z"]
        );
        assert_eq!(nightly.after(at("2026-02-27T03:00:00.001Z")), Some(at("2026-02-28T03:00:00Z")));
        assert_eq!(
            nightly.last_until(at("2026-02-27T03:00:00.999Z")),
            Some(at("2026-02-27T03:00:00Z"))
        );
        assert_eq!(Cron::utc("0 0 30 2 *").expect("an expression").after(0), None, "no such day");
    }

    #[test]
    fn a_change_of_the_clocks_leaves_out_no_run_and_repeats_none() {
        let nightly = Cron::of_zone("30 2 * * *", CET).expect("an expression");
        assert_eq!(
            dates(&nightly, "2026-03-28T00:00:00Z", "2026-03-30T12:00:00Z"),
            ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
        );
        assert_eq!(
            dates(&nightly, "2026-10-24T00:00:00Z", "2026-10-26T12:00:00Z"),
            ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
        );
        let half_hourly = Cron::of_zone("*/30 * * * *", CET).expect("an expression");
        assert_eq!(dates(&half_hourly, "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z").len(), 4);
    }

    #[test]
    fn text_that_is_no_expression_is_an_error() {
        let long = format!("{} 3 * * *", "0,".repeat(130));
        for text in ["", "x", "* * * *", "61 * * * *", "0 0 0 1 1 * 2020", &long] {
            let error = Cron::utc(text).err().expect("no expression");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
        }
        for zone in ["", "Nowhere/Town", "../etc/passwd", &"x".repeat(256)] {
            let error = Cron::of_zone("* * * * *", zone).err().expect("no zone");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{zone}");
        }
    }
}
