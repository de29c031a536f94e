//! Histories to test the checkers: written by hand, and random ones of a correct register.

use proptest::prelude::*;
use synod_core::random::Random;

use crate::check::{order, registers};
use crate::history::{Action, Answer, Call, History, Value};

pub(super) fn write(value: Value) -> Action {
    Action::Write(Some(value))
}

pub(super) fn swap(from: Option<Value>, to: Value) -> Action {
    Action::Swap { from, to: Some(to) }
}

fn call(action: Action, span: (u64, u64), answer: Answer) -> Call {
    Call::new(0, (0, action), span, answer)
}

pub(super) fn done(action: Action, called: u64, returned: u64) -> Call {
    call(action, (called, returned), Answer::Done { revision: None })
}

pub(super) fn at(revision: u64, action: Action, called: u64, returned: u64) -> Call {
    call(action, (called, returned), Answer::Done { revision: Some(revision) })
}

pub(super) fn found(value: Option<Value>, called: u64, returned: u64) -> Call {
    call(Action::Read, (called, returned), Answer::Found { value, revision: None })
}

pub(super) fn found_at(revision: u64, value: Option<Value>, called: u64, returned: u64) -> Call {
    call(Action::Read, (called, returned), Answer::Found { value, revision: Some(revision) })
}

pub(super) fn refused(action: Action, called: u64, returned: u64) -> Call {
    call(action, (called, returned), Answer::Refused)
}

pub(super) fn failed(action: Action, called: u64, returned: u64) -> Call {
    call(action, (called, returned), Answer::Failed)
}

pub(super) fn unknown(action: Action, called: u64, returned: u64) -> Call {
    call(action, (called, returned), Answer::Unknown)
}

/// A history of correct registers, one call at a time; the calls begin before and end after their
/// effect, so that they overlap.
fn legal_history(random: &Random, length: u64) -> History {
    const REGISTERS: usize = 2;
    let mut held: [Option<(Value, u64)>; REGISTERS] = [None; REGISTERS];
    let mut calls = Vec::new();
    for n in 1..=length {
        let time = n * 100;
        let register = usize::from(random.below(4) == 0);
        let now = held[register];
        let value = now.map(|(value, _)| value);
        let action = match random.below(8) {
            0..3 => Action::Read,
            3 | 4 => write(n),
            5 => Action::Swap { from: value, to: Some(n) },
            6 => swap(Some(random.below(n) + 1).filter(|_| random.below(4) > 0), n),
            _ => Action::Write(None),
        };
        let fate = random.below(12);
        let happens = fate > 1;
        let done = Answer::Done { revision: Some(n) };
        let answer = match action {
            Action::Read => Answer::Found { value, revision: now.map(|(_, revision)| revision) },
            Action::Swap { from, .. } if from != value => Answer::Refused,
            Action::Write(to) | Action::Swap { to, .. } => {
                if happens {
                    held[register] = to.map(|to| (to, n));
                }
                done
            }
        };
        let answer = match (fate, action) {
            (_, Action::Read) => answer,
            (0, _) => Answer::Failed,
            (1 | 2, _) => Answer::Unknown,
            _ => answer,
        };
        let span = (time.saturating_sub(random.below(250)), time + random.below(250));
        calls.push(Call::new(0, (register, action), span, answer));
    }
    History::new(calls)
}

/// Makes one answer wrong, or possibly wrong.
fn spoil(history: &History, random: &Random) -> History {
    let mut calls = history.calls().to_vec();
    for _ in 0..100 {
        let place = usize::try_from(random.below(calls.len() as u64)).expect("it is an index");
        let spoiled = &mut calls[place];
        let answer = match (spoiled.action, spoiled.answer) {
            (Action::Read, Answer::Found { value, .. }) => {
                let earlier = Some(random.below(calls.len() as u64) + 1);
                Answer::Found {
                    value: if value == earlier { None } else { earlier },
                    revision: None,
                }
            }
            (Action::Swap { .. }, Answer::Refused) => {
                Answer::Done { revision: Some(place as u64 + 1) }
            }
            (Action::Swap { .. }, Answer::Done { .. }) => Answer::Refused,
            (Action::Write(Some(_)), Answer::Done { .. }) => Answer::Failed,
            _ => continue,
        };
        calls[place].answer = answer;
        break;
    }
    History::new(calls)
}

proptest! {
    #[test]
    fn what_a_working_register_answers_is_accepted(seed: u64, length in 1_u64..60) {
        let history = legal_history(&Random::seeded(seed), length);
        prop_assert_eq!(order::check(&history).err(), None);
        prop_assert_eq!(registers::check(&history, 1_000_000), registers::Verdict::Legal);
    }
}

#[test]
fn a_wrong_answer_is_mostly_noticed_and_by_both() {
    let (mut wrong, mut both) = (0, 0);
    for seed in 0..1_000 {
        let random = Random::seeded(seed);
        let history = spoil(&legal_history(&random, 40), &random);
        if matches!(registers::check(&history, 1_000_000), registers::Verdict::Illegal { .. }) {
            wrong += 1;
            both += usize::from(order::check(&history).is_err());
        }
    }
    assert!(wrong > 700, "the search found {wrong} of 1,000 wrong");
    assert!(both * 100 > wrong * 90, "of {wrong} wrong ones, the order finds {both}");
}
