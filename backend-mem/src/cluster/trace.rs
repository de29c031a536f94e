//! [`Trace`]: what happened in a simulated world, in order.

use std::time::Duration;

use synod_core::chance::mix;

/// What happened. A hash of it always; the lines only if they are wanted.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    lines: Option<Vec<Line>>,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Line {
    /// When, since the beginning, by a clock that is right.
    pub at: Duration,
    /// To whom: 0 is the world, then the processes from 1, then the servers from 100.
    pub actor: u64,
    /// What kind of thing it is.
    pub what: What,
    /// Which call, or which session, it belongs to; 0 if to none.
    pub id: u64,
    /// In words.
    pub text: String,
}

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum What {
    /// A process sends a request.
    Sent,
    /// A request arrives at a server.
    Arrived,
    /// A server answers; the line is the server's.
    Answered,
    /// An answer arrives.
    Returned,
    /// A call ends without an answer.
    Failed,
    /// A process is told of a change.
    Told,
    /// The leader commits.
    Committed,
    /// A session begins or ends, or a connection.
    Session,
    /// Something goes wrong.
    Fault,
    /// What a workload has to say.
    Note,
    /// Something begins to be so for a process, as that it holds a lock.
    Begun,
    /// It is not so any more.
    Over,
    /// A phase of the simulation begins.
    Phase,
}

impl Trace {
    pub(super) fn new(wants_lines: bool) -> Self {
        Self { hash: 0, lines: wants_lines.then(Vec::new) }
    }

    /// Takes down what happened. The text is asked for only if lines are wanted, so it must not be
    /// all that tells two things apart.
    pub fn tell(
        &mut self,
        (at, actor): (Duration, u64),
        what: What,
        id: u64,
        text: impl FnOnce() -> String,
    ) {
        let at_nanos = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        self.stir(at_nanos ^ (actor << 48));
        self.stir((what as u64) << 56 ^ id);
        if let Some(lines) = &mut self.lines {
            lines.push(Line { at, actor, what, id, text: text() });
        }
    }

    /// Adds a number to the hash.
    pub fn stir(&mut self, number: u64) {
        self.hash = mix(self.hash ^ number);
    }

    /// A hash of all that happened.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The lines so far; none if they were not wanted.
    pub fn take(&mut self) -> Vec<Line> {
        self.lines.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
