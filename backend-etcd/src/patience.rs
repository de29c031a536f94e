//! [`Patience`]: the time that a member has to answer before another is called too, learnt from its
//! answers.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The minimum, and the time for a member without any answer so far.
const LEAST: Duration = Duration::from_millis(500);
/// The maximum number of doublings for a member that is silent.
const DOUBLINGS: u32 = 3;

/// The time to wait for one member, estimated as TCP estimates its retransmission timeout (RFC
/// 6298): the smoothed answer time plus four times its deviation, doubled for each silence since
/// the last answer. So a slow cluster does not receive the same request repeatedly, and each call
/// starts from the times of earlier calls.
#[derive(Debug, Default)]
pub(crate) struct Patience(Mutex<Learnt>);

#[derive(Debug, Default)]
struct Learnt {
    /// The smoothed answer time, and its deviation.
    answer: Option<(Duration, Duration)>,
    silences: u32,
}

impl Patience {
    pub(crate) fn now(&self) -> Duration {
        let learnt = self.learnt();
        let (smooth, deviation) = learnt.answer.unwrap_or_default();
        (smooth + deviation * 4).max(LEAST) * 2_u32.pow(learnt.silences)
    }

    /// Records an answer that took this long.
    pub(crate) fn answered(&self, took: Duration) {
        let mut learnt = self.learnt();
        learnt.silences = 0;
        learnt.answer = Some(match learnt.answer {
            None => (took, took / 2),
            Some((smooth, deviation)) => {
                ((smooth * 7 + took) / 8, (deviation * 3 + smooth.abs_diff(took)) / 4)
            }
        });
    }

    /// Records that the member did not answer in time.
    pub(crate) fn silent(&self) {
        let mut learnt = self.learnt();
        learnt.silences = (learnt.silences + 1).min(DOUBLINGS);
    }

    fn learnt(&self) -> MutexGuard<'_, Learnt> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn quick_answers_leave_it_at_the_least() {
        let patience = Patience::default();
        assert_eq!(patience.now(), LEAST);
        for _ in 0..100 {
            patience.answered(ms(1));
        }
        assert_eq!(patience.now(), LEAST);
    }

    #[test]
    fn slow_answers_are_waited_for_from_the_first_on() {
        let patience = Patience::default();
        patience.answered(ms(800));
        assert_eq!(patience.now(), ms(2_400));
        for _ in 0..40 {
            patience.answered(ms(800));
        }
        assert!((ms(800)..ms(820)).contains(&patience.now()), "{:?}", patience.now());
    }

    #[test]
    fn each_silence_doubles_it_until_an_answer_comes() {
        let patience = Patience::default();
        for millis in [1_000, 2_000, 4_000, 4_000] {
            patience.silent();
            assert_eq!(patience.now(), ms(millis));
        }
        patience.answered(ms(10));
        assert_eq!(patience.now(), LEAST);
    }

    #[test]
    fn a_member_that_becomes_quick_again_is_waited_for_less() {
        let patience = Patience::default();
        patience.answered(ms(4_000));
        for _ in 0..60 {
            patience.answered(ms(2));
        }
        assert_eq!(patience.now(), LEAST);
    }
}
