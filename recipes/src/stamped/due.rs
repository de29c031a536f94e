//! [`Due`]: the end of a delay. Pure.

use std::time::Duration;

use synod_core::clock::Instant;

/// The longest part of a delay. A clock takes no time that is much longer.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The end of a delay, as the clock of this process counts. A long delay is counted in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    at: Instant,
    /// The rest of the delay after that.
    more: Duration,
}

impl Due {
    /// After this delay from now.
    pub(crate) fn after(delay: Duration, now: Instant) -> Self {
        let part = delay.min(LONGEST);
        Self { at: now + part, more: delay.saturating_sub(part) }
    }

    /// The time of the next look at it.
    pub(crate) fn at(self) -> Instant {
        self.at
    }

    /// The rest of the delay. `None` if it is over.
    pub(crate) fn left(self, now: Instant) -> Option<Self> {
        if self.at > now {
            return Some(self);
        }
        (!self.more.is_zero()).then(|| Self::after(self.more, now))
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

        let (begun, two_years) = (now, LONGEST * 2 + second);
        let mut due = Some(Due::after(two_years, now));
        while let Some(left) = due {
            now = left.at();
            due = left.left(now);
        }
        assert_eq!(now, begun + two_years);
        assert_eq!(Due::after(Duration::MAX, now).at(), now + LONGEST);
    }
}
