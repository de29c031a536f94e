//! Checks whether some order of the calls on one value explains every answer (linearizability).
//!
//! The specification of a value is one pure function, [`step`]. The search is that of Wing and
//! Gong, with Lowe's cache of failed states. The order must also explain the last value of the
//! store's log. So if each amount differs from every sum of other amounts, the check is exact: the
//! value is the sum of exactly the additions that happened, each once.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A value. An absent value counts as 0.
pub(super) type State = Option<i64>;

/// The action of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Get,
    Add(i64),
    Set(i64),
    Swap { from: i64, to: i64 },
    Initialize(i64),
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// The value.
    Found(i64),
    /// The values before and after the change.
    Changed(i64, i64),
    /// The call was applied, or not.
    Done(bool),
    /// The call certainly never happens.
    Failed,
    /// The call happens at most once, now or later.
    Unknown,
}

/// Limit of the calls that are judged: each is one bit.
pub(super) const MOST: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Call {
    process: u64,
    act: Act,
    called: u64,
    returned: u64,
    told: Told,
}

/// The calls of one history. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    now: u64,
    calls: Vec<Call>,
}

/// A call that has not returned. If it never returns, its effect is unknown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open(usize);

impl Calls {
    /// Records the start of a call; `None` if there are enough.
    pub(super) fn call(&self, process: u64, act: Act) -> Option<Open> {
        let mut book = self.book();
        if book.calls.len() >= MOST {
            return None;
        }
        book.now += 1;
        let (called, returned, told) = (book.now, u64::MAX, Told::Unknown);
        book.calls.push(Call { process, act, called, returned, told });
        Some(Open(book.calls.len() - 1))
    }

    /// Records its return.
    pub(super) fn returned(&self, open: Open, told: Told) {
        let mut book = self.book();
        book.now += 1;
        let now = book.now;
        let call = &mut book.calls[open.0];
        call.told = told;
        if told != Told::Unknown {
            call.returned = now;
        }
    }

    /// Returns the number of additions so far.
    pub(super) fn additions(&self) -> u32 {
        let adds = self.book().calls.iter().filter(|call| matches!(call.act, Act::Add(_))).count();
        u32::try_from(adds).unwrap_or(u32::MAX)
    }

    /// Searches for an order that explains all answers, and leads from the first value to the last.
    ///
    /// # Errors
    ///
    /// The calls, if there is no such order.
    pub(super) fn explain(&self, first: State, last: State) -> Result<(), String> {
        let mut calls = self.book().calls.clone();
        calls.retain(|call| call.told != Told::Failed);
        if Search::new(&calls, first, last).succeeds() {
            return Ok(());
        }
        let all: Vec<_> = calls.iter().map(ToString::to_string).collect();
        Err(format!("no order explains {last:?} after {}", all.join("; ")))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the value after a call, and the result of the call.
fn step(state: State, act: Act) -> (State, Told) {
    let value = state.unwrap_or(0);
    match act {
        Act::Add(amount) => (Some(value + amount), Told::Changed(value, value + amount)),
        Act::Set(to) => (Some(to), Told::Done(true)),
        Act::Swap { from, to } if from == value => (Some(to), Told::Done(true)),
        Act::Get | Act::Swap { .. } => (state, Told::Found(value)),
        Act::Initialize(to) => (state.or(Some(to)), Told::Done(state.is_none())),
    }
}

struct Search<'a> {
    calls: &'a [Call],
    first: State,
    last: State,
    seen: BTreeSet<(u64, State)>,
    /// Number of further states to try. A history that takes more is not judged.
    steps: usize,
}

impl<'a> Search<'a> {
    fn new(calls: &'a [Call], first: State, last: State) -> Self {
        Self { calls, first, last, seen: BTreeSet::new(), steps: 200_000 }
    }

    fn succeeds(mut self) -> bool {
        let mut open = vec![(0, self.first)];
        while let Some((done, state)) = open.pop() {
            if self.steps == 0 || self.is_end(done, state) {
                return true;
            }
            self.steps -= 1;
            let first = self.pending(done).map(|(_, call)| call.returned).min();
            for (index, call) in self.pending(done) {
                if first.is_some_and(|first| call.called > first) {
                    continue;
                }
                let (after, told) = step(state, call.act);
                let next = (done | 1 << index, after);
                if (call.told == Told::Unknown || call.told == told) && !self.seen.contains(&next) {
                    open.push(next);
                }
            }
            self.seen.extend(&open);
        }
        false
    }

    /// Returns `true` if the rest may never happen.
    fn is_end(&self, done: u64, state: State) -> bool {
        state.unwrap_or(0) == self.last.unwrap_or(0)
            && self.pending(done).all(|(_, call)| call.told == Told::Unknown)
    }

    fn pending(&self, done: u64) -> impl Iterator<Item = (usize, &'a Call)> + use<'a> {
        self.calls.iter().enumerate().filter(move |(index, _)| done & 1 << index == 0)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, act, called, returned, told } = self;
        write!(f, "{process}: {act:?} = {told:?} from {called} to ")?;
        if *returned == u64::MAX { f.write_str("the end") } else { write!(f, "{returned}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records calls as `(act, called, returned, told)`.
    fn explains(last: State, calls: &[(Act, u64, u64, Told)]) -> bool {
        let book = Calls::default();
        let calls = calls.iter().map(|(act, called, returned, told)| {
            let returned = if *told == Told::Unknown { u64::MAX } else { *returned };
            Call { process: 1, act: *act, called: *called, returned, told: *told }
        });
        book.book().calls.extend(calls);
        book.explain(None, last).is_ok()
    }

    #[test]
    fn a_value_is_the_sum_of_what_happened_and_of_nothing_else() {
        let one = (Act::Add(1), 1, 2, Told::Changed(0, 1));
        assert!(explains(Some(1), &[one]) && explains(None, &[]));
        assert!(!explains(Some(2), &[one]), "it was added twice");
        assert!(!explains(None, &[one]), "it was lost");
        assert!(!explains(Some(5), &[one, (Act::Add(4), 3, 4, Told::Failed)]), "it did not fail");
    }

    #[test]
    fn an_unknown_addition_happened_once_or_not_at_all() {
        let one = (Act::Add(1), 1, 2, Told::Changed(0, 1));
        let four = (Act::Add(4), 3, 4, Told::Unknown);
        assert!(explains(Some(1), &[one, four]) && explains(Some(5), &[one, four]));
        assert!(!explains(Some(9), &[one, four]));
        assert!(explains(Some(5), &[four, (Act::Get, 5, 6, Told::Found(5)), one]), "before it");
        assert!(!explains(Some(4), &[four, (Act::Get, 1, 2, Told::Found(4))]), "too early");
        assert!(!explains(
            Some(5),
            &[one, four, (Act::Get, 5, 6, Told::Found(5)), (Act::Get, 7, 8, Told::Found(1))],
        ));
    }

    #[test]
    fn answers_fit_into_one_order() {
        let swap = |from, to| Act::Swap { from, to };
        let first = (Act::Initialize(7), 1, 9, Told::Done(true));
        let late = (Act::Initialize(8), 2, 8, Told::Done(false));
        assert!(explains(Some(7), &[first, late]));
        assert!(!explains(Some(7), &[first, (Act::Initialize(8), 2, 8, Told::Done(true))]));
        assert!(explains(Some(2), &[first, (swap(7, 2), 10, 11, Told::Done(true))]));
        assert!(explains(Some(7), &[first, (swap(5, 2), 10, 11, Told::Found(7))]));
        assert!(!explains(Some(7), &[first, (swap(7, 2), 10, 11, Told::Found(7))]), "it fits");
        let both =
            [(Act::Add(1), 1, 9, Told::Changed(0, 1)), (Act::Add(4), 2, 8, Told::Changed(0, 4))];
        assert!(!explains(Some(5), &both), "both were first");
        let both =
            [(Act::Add(1), 1, 9, Told::Changed(4, 5)), (Act::Add(4), 2, 8, Told::Changed(0, 4))];
        assert!(explains(Some(5), &both));
    }
}
