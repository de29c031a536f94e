//! [`Trace`]: the events of a simulated world, in order.

use std::time::Duration;

use synod_core::random::mix;

/// The events of a history: always their hash, and their lines on request.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    lines: Option<Vec<Line>>,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Line {
    /// The time since the beginning, by a correct clock.
    pub at: Duration,
    /// The number of the actor: 0 is the world, then the processes from 1, then the servers from
    /// 100.
    pub actor: u64,
    /// The kind of event.
    pub what: What,
    /// The call or session that it belongs to; 0 if none.
    pub id: u64,
    /// A description.
    pub text: String,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum What {
    /// A process sends a request.
    Sent,
    /// A request arrives at a server.
    Arrived,
    /// A server answers; the line belongs to the server.
    Answered,
    /// An answer arrives.
    Returned,
    /// A call ends without an answer.
    Failed,
    /// A process is notified of a change.
    Told,
    /// The leader commits.
    Committed,
    /// A session or a connection begins or ends.
    Session,
    /// A fault happens.
    Fault,
    /// A note of a workload.
    Note,
    /// A state of a process begins, for example holding a lock.
    Begun,
    /// The end of that state.
    Over,
    /// A phase of the simulation starts.
    Phase,
}

impl Trace {
    pub(super) fn new(wants_lines: bool) -> Self {
        Self { hash: 0, lines: wants_lines.then(Vec::new) }
    }

    /// Records an event. The text is built only if lines are kept, so two different events must
    /// differ in more than the text.
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

    /// A hash of all events.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The lines so far; empty if they are not kept.
    pub fn take(&mut self) -> Vec<Line> {
        self.lines.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
