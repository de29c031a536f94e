//! [`History`]: the calls of several clients to one register each, with their times and answers.
//!
//! A register is a path: it holds a value or nothing. Time is a counter that every call and every
//! return raises, so that the order of two calls that did not overlap is exact.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The values of registers. Each write has one of its own.
pub type Value = u64;

/// What a call asks of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "checkers must know each of them")]
pub enum Action {
    /// What does it hold?
    Read,
    /// Shall hold this, or nothing, whatever it holds.
    Write(Option<Value>),
    /// Shall hold `to` if it holds `from`.
    Swap {
        /// What it must hold.
        from: Option<Value>,
        /// What it shall hold.
        to: Option<Value>,
    },
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "checkers must know each of them")]
pub enum Answer {
    /// A write or a swap happened, at this revision if the store reports it.
    Done {
        /// When in the store's own order.
        revision: Option<u64>,
    },
    /// A read found this.
    Found {
        /// What the register holds.
        value: Option<Value>,
        /// The revision of the write that wrote it.
        revision: Option<u64>,
    },
    /// A swap found another value than it expected.
    Refused,
    /// It certainly never happens.
    Failed,
    /// It happens at most once, now or later.
    Unknown,
}

/// One call, from its beginning to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// The client.
    pub client: usize,
    /// Which register.
    pub register: usize,
    /// What for.
    pub action: Action,
    /// When it was called.
    pub called: u64,
    /// When it returned.
    pub returned: u64,
    /// The answer.
    pub answer: Answer,
}

/// Calls and what became of them, in the order of their returns.
#[derive(Clone, Debug, Default)]
pub struct History {
    calls: Vec<Call>,
}

/// Takes down a history while it happens. Clones write the same one.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    now: u64,
    open: usize,
    calls: Vec<Call>,
}

/// A call that did not return yet. One that never does is [`Answer::Unknown`].
#[derive(Debug)]
#[must_use = "a call that is dropped may have happened"]
pub struct Pending {
    recorder: Recorder,
    call: Option<Call>,
}

impl Call {
    /// A call of its six facts.
    pub fn new(
        client: usize,
        (register, action): (usize, Action),
        (called, returned): (u64, u64),
        answer: Answer,
    ) -> Self {
        Self { client, register, action, called, returned, answer }
    }

    /// The value that it writes, if it writes and may have happened.
    #[expect(clippy::option_option, reason = "to write nothing is to write")]
    pub(crate) fn written(&self) -> Option<Option<Value>> {
        match (self.action, self.answer) {
            (_, Answer::Failed | Answer::Refused) | (Action::Read, _) => None,
            (Action::Write(value) | Action::Swap { to: value, .. }, _) => Some(value),
        }
    }
}

impl History {
    /// A history of these calls.
    pub fn new(calls: Vec<Call>) -> Self {
        Self { calls }
    }

    /// All calls.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// The calls of each register.
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
    /// A client calls.
    pub fn call(&self, client: usize, register: usize, action: Action) -> Pending {
        let mut state = self.lock();
        state.open += 1;
        let called = state.tick();
        let answer = Answer::Unknown;
        let call = Call { client, register, action, called, returned: u64::MAX, answer };
        drop(state);
        Pending { recorder: self.clone(), call: Some(call) }
    }

    /// What was taken down.
    ///
    /// # Panics
    ///
    /// If a call did not end yet: the history would lack it.
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
    /// It returned.
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
