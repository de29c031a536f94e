//! [`time`]: a time as people write it. [`date`]: a date as people read it.

use std::time::{Duration, SystemTime};

/// A time with a unit, or a plain number of seconds as for flock.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time; say 30, 30s, 1.5 or 2m");
    match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|_| wrong()),
        Err(_) => humantime::parse_duration(text).map_err(|_| wrong()),
    }
}

/// A date with a year of four digits, to the second.
pub(crate) fn date(date: SystemTime) -> String {
    humantime::format_rfc3339_seconds(date).to_string()
}
