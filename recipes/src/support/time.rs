//! Times: the date in names and data of nodes, and the ends of long delays.

use std::time::{Duration, SystemTime};

use synod_core::clock::{self, Instant};

/// Returns the time since the beginning of 1970, by the wall clock of this machine.
pub(crate) fn date() -> Duration {
    clock::date().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// The longest part of a delay. An [`Instant`] cannot represent a much longer one.
const MAX_PART: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The end of a delay of any length, by the clock of this process. A long delay is divided into
/// parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    at: Instant,
    /// The rest of the delay after this part.
    rest: Duration,
}

impl Due {
    /// Returns the end of a delay that begins now.
    pub(crate) fn after(delay: Duration, now: Instant) -> Self {
        let part = delay.min(MAX_PART);
        Self { at: now + part, rest: delay.saturating_sub(part) }
    }

    /// The end of this part of the delay.
    pub(crate) fn at(self) -> Instant {
        self.at
    }

    /// Returns the rest of the delay; `None` if the delay is over.
    pub(crate) fn left(self, now: Instant) -> Option<Self> {
        if self.at > now {
            return Some(self);
        }
        (!self.rest.is_zero()).then(|| Self::after(self.rest, now))
    }
}

#[cfg(test)]
mod tests {
    use synod_core::clock;

    use super::*;

    #[test]
    fn a_delay_of_any_length_is_over_at_its_end_and_not_before() {
        let (mut now, second) = (clock::now(), Duration::from_secs(1));
        assert_eq!(Due::after(Duration::ZERO, now).left(now), None);
        let soon = Due::after(second, now);
        assert_eq!((soon.left(now), soon.left(now + second)), (Some(soon), None));

        let (begun, two_years) = (now, MAX_PART * 2 + second);
        let mut due = Some(Due::after(two_years, now));
        while let Some(left) = due {
            now = left.at();
            due = left.left(now);
        }
        assert_eq!(now, begun + two_years);
        assert_eq!(Due::after(Duration::MAX, now).at(), now + MAX_PART);
    }
}
