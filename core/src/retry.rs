//! The number of retries and the delays between them, [`Retry`].

use std::num::NonZeroU32;
use std::time::Duration;

use crate::clock::{self, Instant};
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::mutant::mistake;
use crate::random::Random;

/// The shortest first delay. It limits the traffic of a client whose store is unreachable.
const MIN_DELAY: Duration = Duration::from_millis(1);

/// The longest delay.
const MAX_DELAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A policy that decides when to stop retrying a failed call.
///
/// It does not decide which calls may be retried: see [`Session`](crate::session::Session). The
/// deadline of a call also ends its retries.
///
/// # Examples
///
/// The policy of a client, and a policy from a configuration file:
///
/// ```
/// use std::time::Duration;
///
/// use synod_core::client::ClientOptions;
/// use synod_core::retry::Retry;
///
/// let options = ClientOptions::default().retry(Retry::until_elapsed(Duration::from_secs(3)));
/// # assert!(options.validate().is_ok());
///
/// let retry: Retry = serde_json::from_str(
///     r#"{ "policy": "times", "times": 3, "backoff": { "first": "50ms", "cap": "2s" } }"#,
/// )?;
/// assert!(matches!(retry, Retry::Times { .. }));
/// assert!(serde_json::from_str::<Retry>(r#"{ "policy": "times", "times": 0 }"#).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "policy", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Retry {
    /// No retries.
    Never,
    /// A maximum number of retries, after the first attempt.
    Times {
        /// The maximum number of retries.
        times: NonZeroU32,
        /// The delays between the attempts.
        #[serde(default)]
        backoff: Backoff,
    },
    /// Retries until this much time has passed since the first attempt.
    UntilElapsed {
        /// The maximum time.
        #[serde(serialize_with = "humantime_serde::serialize", deserialize_with = "positive")]
        limit: Duration,
        /// The delays between the attempts.
        #[serde(default)]
        backoff: Backoff,
    },
    /// Retries without a limit.
    Forever {
        /// The delays between the attempts.
        #[serde(default)]
        backoff: Backoff,
    },
}

/// Delays that grow from the first to a cap.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Draft")]
#[non_exhaustive]
pub struct Backoff {
    /// The first delay: at least a millisecond.
    #[serde(with = "humantime_serde")]
    pub first: Duration,
    /// The ratio of each delay to the one before: at least 1.
    pub factor: f32,
    /// The longest delay: at most a day.
    #[serde(with = "humantime_serde")]
    pub cap: Duration,
    /// The share of each delay, from 0 to 1, of which a random part is subtracted, so that clients
    /// that failed together do not retry together.
    pub jitter: f32,
}

/// The delays between the attempts of one call, in order. The iterator ends with the last retry.
#[derive(Debug)]
pub struct Delays {
    grow: Option<ExponentialBackoff>,
    jitter: f32,
    end: Option<Instant>,
    random: Random,
}

impl Retry {
    /// Creates a policy with at most `times` retries, and the default delays.
    pub fn times(times: NonZeroU32) -> Self {
        Self::Times { times, backoff: Backoff::default() }
    }

    /// Creates a policy that retries until `limit` has passed, with the default delays.
    pub fn until_elapsed(limit: Duration) -> Self {
        Self::UntilElapsed { limit, backoff: Backoff::default() }
    }

    /// Creates a policy that retries without a limit, with the default delays.
    pub fn forever() -> Self {
        Self::Forever { backoff: Backoff::default() }
    }

    /// Creates a policy that retries without a limit, with random delays from zero up to a limit,
    /// which grows from 10 milliseconds to a second: for clients that would otherwise all retry at
    /// the same time.
    pub fn contended() -> Self {
        Self::spread(100)
    }

    /// Creates a policy as [`Retry::contended`], with a limit that grows only to 100 milliseconds:
    /// for writes that expect the version that was read. Such writes exclude each other only while
    /// they are in flight. So a client that waits longer leaves the store idle, while others
    /// overtake it repeatedly; and the version that was read before a delay is outdated after it.
    pub fn optimistic() -> Self {
        Self::spread(10)
    }

    fn spread(growth: u32) -> Self {
        const FIRST: Duration = Duration::from_millis(10);
        Self::Forever { backoff: Backoff::default().first(FIRST).cap(growth * FIRST).jitter(1.0) }
    }

    /// Validates the policy. A deserialised policy is valid.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if a delay is out of its bounds, or the limit is zero.
    pub fn validate(&self) -> Result<()> {
        let why = match self {
            Self::Never => None,
            Self::UntilElapsed { limit, .. } if limit.is_zero() => Some(ZERO_LIMIT),
            Self::Times { backoff, .. }
            | Self::UntilElapsed { backoff, .. }
            | Self::Forever { backoff } => backoff.fault(),
        };
        why.map_or(Ok(()), |why| {
            Err(Error::new(ErrorKind::Invalid, "reading a retry policy").because(why))
        })
    }

    /// Returns the delays between the attempts of a call whose first attempt is made now.
    pub fn delays(&self, random: &Random) -> Delays {
        let (backoff, times, end) = match self {
            Self::Never => (None, None, None),
            Self::Times { times, backoff } => (Some(backoff), Some(times.get()), None),
            // A limit that exceeds the range of the clock has no effect.
            Self::UntilElapsed { limit, backoff } => {
                (Some(backoff), None, clock::now().checked_add(*limit))
            }
            Self::Forever { backoff } => (Some(backoff), None, None),
        };
        Delays {
            grow: backoff.map(|backoff| backoff.grow(times)),
            jitter: backoff.map_or(0.0, |backoff| backoff.jitter),
            end,
            random: random.clone(),
        }
    }
}

impl Default for Retry {
    /// Retries without a limit: the deadline of a call ends its retries.
    fn default() -> Self {
        Self::forever()
    }
}

impl Backoff {
    /// Sets the first delay.
    pub fn first(mut self, first: Duration) -> Self {
        self.first = first;
        self
    }

    /// Sets the ratio of each delay to the one before.
    pub fn factor(mut self, factor: f32) -> Self {
        self.factor = factor;
        self
    }

    /// Sets the longest delay.
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// Sets the share of a delay that is random.
    pub fn jitter(mut self, jitter: f32) -> Self {
        self.jitter = jitter;
        self
    }

    /// Returns the first invalid value.
    fn fault(&self) -> Option<&'static str> {
        // Written so that NaN is rejected too.
        let fits = |number: f32, low: f32, high: f32| (low..=high).contains(&number);
        if self.first < MIN_DELAY {
            Some("the first delay is at least a millisecond")
        } else if self.cap < self.first {
            Some("the cap is not below the first delay")
        } else if self.cap > MAX_DELAY {
            Some("the cap is at most a day")
        } else if !fits(self.factor, 1.0, f32::MAX) {
            Some("the factor is a number of at least 1")
        } else if !fits(self.jitter, 0.0, 1.0) {
            Some("the jitter is a share from 0 to 1")
        } else {
            None
        }
    }

    /// Does not panic, and returns no delay below the minimum, even if the policy was not
    /// validated.
    fn grow(&self, times: Option<u32>) -> ExponentialBackoff {
        let cap = self.cap.clamp(MIN_DELAY, MAX_DELAY);
        let growing = ExponentialBuilder::new()
            .with_min_delay(self.first.clamp(MIN_DELAY, cap))
            .with_max_delay(cap)
            .with_factor(if self.factor >= 1.0 { self.factor } else { 1.0 });
        match times.and_then(|times| usize::try_from(times).ok()) {
            Some(times) => growing.with_max_times(times),
            None => growing.without_max_times(),
        }
        .build()
    }
}

impl Default for Backoff {
    /// From 50 ms to 5 s, doubling, half of it random.
    fn default() -> Self {
        Self {
            first: Duration::from_millis(50),
            factor: 2.0,
            cap: Duration::from_secs(5),
            jitter: 0.5,
        }
    }
}

impl Iterator for Delays {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        const PARTS: u32 = 1 << 20;
        let whole = self.grow.as_mut()?.next()?;
        let part = u32::try_from(self.random.below(PARTS.into())).unwrap_or(0);
        let share = f64::from(part) / f64::from(PARTS) * f64::from(self.jitter);
        // A share that is NaN or out of its bounds subtracts nothing.
        let off = if (0.0..=1.0).contains(&share) { whole.mul_f64(share) } else { Duration::ZERO };
        let delay = whole.saturating_sub(off).max(MIN_DELAY);
        mistake!(RetriesInAStorm: let delay = MIN_DELAY);
        let in_time = self.end.is_none_or(|end| delay < end - clock::now());
        in_time.then_some(delay)
    }
}

const ZERO_LIMIT: &str = "the limit is more than zero; the policy without retries is `never`";

fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let limit: Duration = humantime_serde::deserialize(deserializer)?;
    if limit.is_zero() {
        return Err(serde::de::Error::custom(ZERO_LIMIT));
    }
    Ok(limit)
}

/// A [`Backoff`] before validation.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Draft {
    #[serde(with = "humantime_serde")]
    first: Duration,
    factor: f32,
    #[serde(with = "humantime_serde")]
    cap: Duration,
    jitter: f32,
}

impl Default for Draft {
    fn default() -> Self {
        let Backoff { first, factor, cap, jitter } = Backoff::default();
        Self { first, factor, cap, jitter }
    }
}

impl TryFrom<Draft> for Backoff {
    type Error = &'static str;

    fn try_from(Draft { first, factor, cap, jitter }: Draft) -> Result<Self, &'static str> {
        let backoff = Self { first, factor, cap, jitter };
        backoff.fault().map_or(Ok(backoff), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Retry, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    fn millis(backoff: Backoff, seed: u64, count: usize) -> Vec<u128> {
        let delays = Retry::Forever { backoff }.delays(&Random::seeded(seed));
        delays.take(count).map(|delay| delay.as_millis()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn delays_grow_to_the_cap_and_stay_there() {
        let backoff = Backoff::default().jitter(0.0).cap(Duration::from_millis(300));
        assert_eq!(millis(backoff, 1, 5), [50, 100, 200, 300, 300]);
        assert!(millis(backoff, 1, 100_000).iter().all(|delay| *delay <= 300));
    }

    #[tokio::test(start_paused = true)]
    async fn chance_only_shortens_and_a_seed_repeats() {
        let drawn = millis(Backoff::default(), 7, 40);
        assert_eq!(drawn, millis(Backoff::default(), 7, 40));
        assert_ne!(drawn, millis(Backoff::default(), 8, 40));
        let whole = millis(Backoff::default().jitter(0.0), 7, 40);
        assert!(drawn.iter().zip(&whole).all(|(some, all)| some <= all && *some >= all / 2 - 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_lost_a_race_waits_a_tenth_of_a_second_at_most() {
        let longest = Retry::optimistic().delays(&Random::seeded(1)).take(1_000).max();
        let tenth = Duration::from_millis(100);
        assert!(longest.is_some_and(|it| it <= tenth && it > tenth / 2), "{longest:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn policies_end_when_they_say() {
        let random = Random::seeded(1);
        assert_eq!(Retry::Never.delays(&random).count(), 0);
        let three = NonZeroU32::new(3).expect("not zero");
        assert_eq!(Retry::times(three).delays(&random).count(), 3);

        let started = clock::now();
        for delay in Retry::until_elapsed(Duration::from_secs(60)).delays(&random) {
            clock::sleep(delay).await;
        }
        let took = clock::elapsed(started);
        assert!(took < Duration::from_secs(60) && took > Duration::from_secs(50), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_overflows_and_nothing_storms_unchecked() {
        let numbers = [f32::NAN, f32::INFINITY, f32::MAX, -1.0, 0.0];
        for (first, cap) in [(Duration::ZERO, Duration::ZERO), (Duration::MAX, Duration::MAX)] {
            for (factor, jitter) in numbers.into_iter().flat_map(|a| numbers.map(|b| (a, b))) {
                let backoff =
                    Backoff::default().first(first).cap(cap).factor(factor).jitter(jitter);
                assert!(Retry::Forever { backoff }.validate().is_err());
                let retry = Retry::UntilElapsed { limit: Duration::MAX, backoff };
                let mut delays = retry.delays(&Random::seeded(1)).take(100);
                assert!(delays.all(|delay| (MIN_DELAY..=MAX_DELAY).contains(&delay)));
            }
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let backoff = Backoff::default().first(Duration::from_millis(10)).factor(1.7);
        let policies = [
            Retry::Never,
            Retry::Times { times: NonZeroU32::MIN, backoff },
            Retry::UntilElapsed { limit: Duration::from_secs(90), backoff },
            Retry::Forever { backoff },
        ];
        for retry in policies {
            let text = serde_json::to_string(&retry).expect("serialisable");
            assert_eq!(read(&text), Ok(retry), "{text}");
        }
        assert_eq!(read(r#"{"policy":"forever"}"#), Ok(Retry::default()));
        assert_eq!(
            read(r#"{"policy":"until-elapsed","limit":"1m 30s"}"#),
            Ok(Retry::until_elapsed(Duration::from_secs(90)))
        );
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_the_reason() {
        let table = [
            (r#"{"policy":"often"}"#, "often"),
            (r#"{"policy":"times","times":0}"#, "nonzero"),
            (r#"{"policy":"times","times":-1}"#, "-1"),
            (r#"{"policy":"until-elapsed","limit":"0s"}"#, "more than zero"),
            (r#"{"policy":"until-elapsed","limit":"soon"}"#, "soon"),
            (r#"{"policy":"forever","backoff":{"first":"0s"}}"#, "millisecond"),
            (r#"{"policy":"forever","backoff":{"first":"10s"}}"#, "cap"),
            (r#"{"policy":"forever","backoff":{"cap":"2days"}}"#, "day"),
            (r#"{"policy":"forever","backoff":{"factor":0.5}}"#, "factor"),
            (r#"{"policy":"forever","backoff":{"factor":-2}}"#, "factor"),
            (r#"{"policy":"forever","backoff":{"factor":1e300}}"#, "factor"),
            (r#"{"policy":"forever","backoff":{"jitter":1.5}}"#, "jitter"),
            (r#"{"policy":"forever","backoff":{"jiter":0.5}}"#, "jiter"),
        ];
        for (text, word) in table {
            let error = read(text).expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
        let none = Retry::until_elapsed(Duration::ZERO);
        assert!(none.validate().is_err());
    }
}
