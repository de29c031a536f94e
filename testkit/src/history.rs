//! The calls of several clients to one register each, with their times and answers: [`History`].
//!
//! A register is a path with a value or without one. Time is a counter that every call and every
//! return increments, so that the order of two calls that did not overlap is exact.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The value of a register. Each write has a unique one.
pub type Value = u64;

/// The action of a call on a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "checkers must know each of them")]
pub enum Action {
    /// Reads the value.
    Read,
    /// Writes this value, or nothing.
    Write(Option<Value>),
    /// Writes `to` if the value is `from`.
    Swap {
        /// The expected value.
        from: Option<Value>,
        /// The new value.
        to: Option<Value>,
    },
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "checkers must know each of them")]
pub enum Answer {
    /// A write or a swap was applied, at this revision if the store reports it.
    Done {
        /// The revision.
        revision: Option<u64>,
    },
    /// The result of a read.
    Found {
        /// The value of the register.
        value: Option<Value>,
        /// The revision of the write of that value.
        revision: Option<u64>,
    },
    /// A swap found another value than it expected.
    Refused,
    /// The call certainly never happens.
    Failed,
    /// The call happens at most once, now or later.
    Unknown,
}

/// One call, from its beginning to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// The client.
    pub client: usize,
    /// The register.
    pub register: usize,
    /// The action.
    pub action: Action,
    /// The time of the call.
    pub called: u64,
    /// The time of the return.
    pub returned: u64,
    /// The answer.
    pub answer: Answer,
}

/// Calls with their answers, in the order of their returns.
#[derive(Clone, Debug, Default)]
pub struct History {
    calls: Vec<Call>,
}

/// Records a history during a run. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    now: u64,
    open: usize,
    calls: Vec<Call>,
}

/// A call that has not returned yet. If it never returns it is [`Answer::Unknown`].
#[derive(Debug)]
#[must_use = "a call that is dropped may have happened"]
pub struct Pending {
    recorder: Recorder,
    call: Option<Call>,
}

impl Call {
    /// Creates a call from its six fields.
    pub fn new(
        client: usize,
        (register, action): (usize, Action),
        (called, returned): (u64, u64),
        answer: Answer,
    ) -> Self {
        Self { client, register, action, called, returned, answer }
    }

    /// Returns the value that the call writes, if it writes and may have been applied.
    #[expect(clippy::option_option, reason = "to write nothing is to write")]
    pub(crate) fn written(&self) -> Option<Option<Value>> {
        match (self.action, self.answer) {
            (_, Answer::Failed | Answer::Refused) | (Action::Read, _) => None,
            (Action::Write(value) | Action::Swap { to: value, .. }, _) => Some(value),
        }
    }
}

impl History {
    /// Creates a history of these calls.
    pub fn new(calls: Vec<Call>) -> Self {
        Self { calls }
    }

    /// Returns all calls.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// Returns the calls of each register.
    pub fn registers(&self) -> Vec<Vec<Call>> {
        let count = self.calls.iter().map(|call| call.register + 1).max().unwrap_or(0);
        let mut registers = vec![Vec::new(); count];
        for call in &self.calls {
            registers[call.register].push(*call);
        }
        registers
    }
}

impl Recorder {
    /// Records the start of a call.
    pub fn call(&self, client: usize, register: usize, action: Action) -> Pending {
        let mut state = self.lock();
        state.open += 1;
        let called = state.tick();
        let answer = Answer::Unknown;
        let call = Call { client, register, action, called, returned: u64::MAX, answer };
        drop(state);
        Pending { recorder: self.clone(), call: Some(call) }
    }

    /// Returns the recorded history.
    ///
    /// # Panics
    ///
    /// If a call has not returned yet: the history would be incomplete.
    pub fn history(&self) -> History {
        let state = self.lock();
        assert_eq!(state.open, 0, "a history is read when every call has ended");
        History::new(state.calls.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }
}

impl Pending {
    /// Records the return.
    pub fn returned(mut self, answer: Answer) {
        self.end(answer);
    }

    fn end(&mut self, answer: Answer) {
        if let Some(mut call) = self.call.take() {
            let mut state = self.recorder.lock();
            call.answer = answer;
            call.returned = state.tick();
            state.open -= 1;
            state.calls.push(call);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.end(Answer::Unknown);
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, register, action, called, returned, answer } = self;
        write!(
            f,
            "client {client} register {register} [{called}, {returned}] {action:?} -> {answer:?}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_spans_all_that_was_recorded_while_it_ran() {
        let recorder = Recorder::default();
        let long = recorder.call(0, 0, Action::Write(Some(1)));
        let short = recorder.call(1, 1, Action::Read);
        short.returned(Answer::Found { value: None, revision: None });
        long.returned(Answer::Done { revision: Some(1) });
        drop(recorder.call(2, 0, Action::Write(Some(2))));

        let history = recorder.history();
        let spans: Vec<_> =
            history.calls().iter().map(|call| (call.called, call.returned)).collect();
        assert_eq!(spans, [(2, 3), (1, 4), (5, 6)]);
        assert_eq!(history.calls()[2].answer, Answer::Unknown);
        assert_eq!(history.registers().iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    }
}
