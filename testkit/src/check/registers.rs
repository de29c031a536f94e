//! Searches for an order of the calls that explains every answer (Wing and Gong's search, with
//! Lowe's cache of failed states).

use rustc_hash::FxHashSet;

use crate::history::{Action, Answer, Call, History, Value};

/// The result of a search for an order that explains a history.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "there is one, there is none, or the search took too long"
)]
pub enum Verdict {
    /// There is an order.
    Legal,
    /// There is no order for the calls of this register.
    Illegal {
        /// The register.
        register: usize,
        /// The call at which the search stopped, for the longest order.
        stuck: Box<Call>,
    },
    /// No order was found within the maximum number of steps.
    Unknown {
        /// The register.
        register: usize,
    },
}

/// Checks each register separately: a history is linearizable if each of its registers is.
///
/// Failed calls are omitted, ambiguous ones may take effect at any time after they were called, or
/// never. The search is exponential for illegal histories with many ambiguous calls, so it stops
/// after `steps`.
pub fn check(history: &History, steps: usize) -> Verdict {
    for (register, calls) in history.registers().into_iter().enumerate() {
        match search(calls, steps) {
            Ok(()) => {}
            Err(Some(stuck)) => return Verdict::Illegal { register, stuck: Box::new(stuck) },
            Err(None) => return Verdict::Unknown { register },
        }
    }
    Verdict::Legal
}

/// A list of calls and returns whose entries can be removed and inserted again.
struct Timeline {
    next: Vec<usize>,
    previous: Vec<usize>,
}

/// The entry `2 * n + 1` is the start of the call `n`, `2 * n + 2` its return; 0 is the head and
/// the end.
impl Timeline {
    fn new(calls: &[Call]) -> Self {
        let mut entries: Vec<(u64, usize)> = Vec::with_capacity(2 * calls.len());
        for (n, call) in calls.iter().enumerate() {
            entries.push((call.called, 2 * n + 1));
            if call.answer != Answer::Unknown {
                entries.push((call.returned, 2 * n + 2));
            }
        }
        // At the same time, calls come before returns, which is the weaker condition.
        entries.sort_by_key(|(time, entry)| (*time, entry % 2 == 0, *entry));
        let mut timeline =
            Self { next: vec![0; 2 * calls.len() + 1], previous: vec![0; 2 * calls.len() + 1] };
        let mut last = 0;
        for (_, entry) in entries {
            timeline.next[last] = entry;
            timeline.previous[entry] = last;
            last = entry;
        }
        timeline.next[last] = 0;
        timeline.previous[0] = last;
        timeline
    }

    fn take(&mut self, entry: usize) {
        let (before, after) = (self.previous[entry], self.next[entry]);
        self.next[before] = after;
        self.previous[after] = before;
    }

    fn put_back(&mut self, entry: usize) {
        let (before, after) = (self.previous[entry], self.next[entry]);
        self.next[before] = entry;
        self.previous[after] = entry;
    }
}

/// `Err` is the call at which the search stopped, or `None` if it took too many steps.
fn search(mut calls: Vec<Call>, steps: usize) -> Result<(), Option<Call>> {
    calls.retain(|call| {
        let idle = call.action == Action::Read && call.answer == Answer::Unknown;
        call.answer != Answer::Failed && !idle
    });
    let returns = |n: usize| calls[n].answer != Answer::Unknown;
    let mut open = (0..calls.len()).filter(|n| returns(*n)).count();
    let mut timeline = Timeline::new(&calls);
    let mut seen = FxHashSet::default();
    let mut done = Done::none(calls.len());
    let mut path: Vec<(usize, Option<Value>)> = Vec::new();
    let (mut value, mut best, mut stuck) = (None, usize::MAX, None);
    let mut entry = timeline.next[0];
    let mut taken = 0;

    while open > 0 {
        taken += 1;
        if taken > steps {
            return Err(None);
        }
        if entry % 2 == 1 {
            let n = entry / 2;
            if let Some(after) = step(&calls[n], value) {
                done.set(n, true);
                if seen.insert((done.clone(), after)) {
                    path.push((n, value));
                    value = after;
                    timeline.take(entry);
                    if returns(n) {
                        timeline.take(entry + 1);
                        open -= 1;
                    }
                    entry = timeline.next[0];
                    continue;
                }
                done.set(n, false);
            }
            entry = timeline.next[entry];
            continue;
        }
        // A return of a call without a place: go back to the last choice.
        if entry != 0 && open < best {
            (best, stuck) = (open, Some(calls[entry / 2 - 1]));
        }
        let Some((n, before)) = path.pop() else { return Err(stuck.or(calls.first().copied())) };
        done.set(n, false);
        value = before;
        if returns(n) {
            timeline.put_back(2 * n + 2);
            open += 1;
        }
        timeline.put_back(2 * n + 1);
        entry = timeline.next[2 * n + 1];
    }
    Ok(())
}

/// The state of the register after the call, if the call could have had this answer.
#[expect(clippy::option_option, reason = "a register that holds nothing is a register")]
fn step(call: &Call, value: Option<Value>) -> Option<Option<Value>> {
    match (call.action, call.answer) {
        (Action::Read, Answer::Found { value: found, .. }) => (found == value).then_some(value),
        (Action::Write(to), _) => Some(to),
        (Action::Swap { from, to }, Answer::Done { .. }) => (from == value).then_some(to),
        (Action::Swap { from, .. }, Answer::Refused) => (from != value).then_some(value),
        (Action::Swap { from, to }, _) => Some(if from == value { to } else { value }),
        (Action::Read, _) => Some(value),
    }
}

/// The calls already placed in the linearization.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Done(Box<[u64]>);

impl Done {
    fn none(calls: usize) -> Self {
        Self(vec![0; calls.div_ceil(64)].into_boxed_slice())
    }

    fn set(&mut self, n: usize, done: bool) {
        let bit = 1 << (n % 64);
        if done {
            self.0[n / 64] |= bit;
        } else {
            self.0[n / 64] &= !bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::generated::{done, found, refused, swap, unknown, write};

    #[track_caller]
    fn legal(calls: &[Call]) {
        assert_eq!(check(&History::new(calls.to_vec()), 100_000), Verdict::Legal, "{calls:?}");
    }

    #[track_caller]
    fn illegal(calls: &[Call]) {
        let verdict = check(&History::new(calls.to_vec()), 100_000);
        assert!(matches!(verdict, Verdict::Illegal { .. }), "{verdict:?}: {calls:?}");
    }

    #[test]
    fn what_one_after_the_other_could_explain_is_legal() {
        legal(&[]);
        legal(&[done(write(1), 1, 2), found(Some(1), 3, 4)]);
        legal(&[done(write(1), 1, 5), found(Some(1), 2, 3), found(Some(1), 6, 7)]);
        legal(&[done(write(1), 1, 9), found(None, 2, 3), found(Some(1), 4, 5)]);
        legal(&[
            done(swap(None, 1), 1, 2),
            refused(swap(None, 2), 3, 4),
            done(swap(Some(1), 3), 5, 6),
        ]);
        legal(&[
            done(write(1), 1, 2),
            done(write(2), 3, 9),
            done(write(3), 3, 9),
            found(Some(2), 10, 11),
        ]);
    }

    #[test]
    fn what_nothing_could_explain_is_illegal() {
        // A stale read; a lost update; a read of an unknown value; a read of the future.
        illegal(&[done(write(1), 1, 2), done(write(2), 3, 4), found(Some(1), 5, 6)]);
        illegal(&[done(swap(None, 1), 1, 9), done(swap(None, 2), 2, 8)]);
        illegal(&[found(Some(7), 1, 2)]);
        illegal(&[found(Some(1), 1, 2), done(write(1), 3, 4)]);
        // Two reads that disagree about the order; a swap that was applied although it was
        // rejected, or although it failed; a write that was undone.
        illegal(&[
            done(write(1), 1, 9),
            done(write(2), 1, 9),
            found(Some(1), 10, 11),
            found(Some(2), 12, 13),
        ]);
        illegal(&[done(write(1), 1, 2), refused(swap(Some(7), 2), 3, 4), found(Some(2), 5, 6)]);
        illegal(&[done(write(1), 1, 2), refused(swap(Some(1), 2), 3, 4)]);
        illegal(&[done(write(1), 1, 2), found(None, 3, 4)]);
    }

    #[test]
    fn an_ambiguous_call_happens_at_most_once_and_not_before_it_was_called() {
        legal(&[unknown(write(1), 1, 2), found(None, 3, 4), found(Some(1), 5, 6)]);
        legal(&[unknown(write(1), 1, 2), found(None, 3, 4)]);
        legal(&[done(write(1), 1, 2), unknown(swap(Some(7), 2), 3, 4), found(Some(1), 5, 6)]);
        illegal(&[found(Some(1), 1, 2), unknown(write(1), 3, 4)]);
        illegal(&[unknown(write(1), 1, 2), found(Some(1), 3, 4), found(None, 5, 6)]);
        illegal(&[
            unknown(write(1), 1, 2),
            found(Some(1), 3, 4),
            done(write(2), 5, 6),
            found(Some(2), 7, 8),
            found(Some(1), 9, 10),
        ]);
    }

    #[test]
    fn a_search_that_takes_too_long_is_not_a_verdict() {
        let mut calls: Vec<_> = (1..60).map(|value| unknown(write(value), value, value)).collect();
        calls.push(found(Some(99), 100, 101));
        assert_eq!(check(&History::new(calls), 1_000), Verdict::Unknown { register: 0 });
    }
}
