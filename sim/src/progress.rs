//! [`ProgressLines`]: lines on standard error for a person who waits for a hunt.
//!
//! A test harness keeps the output of a test until the test is over, so these lines bypass it.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
#[expect(clippy::disallowed_types, reason = "a person waits in real time")]
use std::time::Instant;

use crate::case::Case;

/// The shortest time between two lines about the same step.
const PAUSE: Duration = Duration::from_secs(1);

/// Reports the steps of a hunt, at most one line per second. A failure is reported immediately.
pub(crate) struct ProgressLines {
    hunt: String,
    pause: Duration,
    output: Mutex<Output>,
}

#[expect(clippy::disallowed_types, reason = "a person waits in real time")]
struct Output {
    lines: Box<dyn Write + Send>,
    last: Instant,
}

impl ProgressLines {
    /// Lines on standard error about the hunt of this name.
    pub(crate) fn new(hunt: &str) -> Self {
        Self::with(hunt, PAUSE, Box::new(io::stderr()))
    }

    #[expect(
        clippy::disallowed_types,
        clippy::disallowed_methods,
        reason = "a person waits in real time"
    )]
    fn with(hunt: &str, pause: Duration, lines: Box<dyn Write + Send>) -> Self {
        let output = Mutex::new(Output { lines, last: Instant::now() });
        Self { hunt: hunt.to_owned(), pause, output }
    }

    /// Reports the number of finished histories.
    pub(crate) fn histories(&self, done: u64, of: u64) {
        self.step(format_args!("{done} of {of} histories"));
    }

    /// Reports a history that failed, before it is reduced.
    pub(crate) fn failed(&self, case: &Case, again: &str) {
        let Case { seed, personality, .. } = case;
        let law = case.law.as_deref().unwrap_or("a law");
        self.line(format_args!(
            "seed {seed:#x} on {personality} breaks: {law}\n  again: {again}\n  It is being reduced."
        ));
    }

    /// Reports the state of the reduction.
    pub(crate) fn reduced(&self, runs: usize, faults: usize) {
        self.step(format_args!("reduced to {faults} faults in {runs} histories"));
    }

    /// Writes a line, unless the last one was written less than [`PAUSE`] ago.
    fn step(&self, text: fmt::Arguments<'_>) {
        let is_due = {
            let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
            output.last.elapsed() >= self.pause
        };
        if is_due {
            self.line(text);
        }
    }

    #[expect(
        clippy::disallowed_types,
        clippy::disallowed_methods,
        reason = "a person waits in real time"
    )]
    fn line(&self, text: fmt::Arguments<'_>) {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        output.last = Instant::now();
        // If standard error is closed, the hunt continues.
        let _written_or_not = writeln!(output.lines, "{}: {text}", self.hunt);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use super::*;

    /// The lines that were written.
    #[derive(Clone, Default)]
    pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Lines {
        pub(crate) fn progress(&self, pause: Duration) -> ProgressLines {
            ProgressLines::with("test", pause, Box::new(self.clone()))
        }

        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn steps_wait_for_their_pause_and_a_failure_does_not() {
        let lines = Lines::default();
        let progress = lines.progress(Duration::MAX);
        progress.histories(1, 2);
        progress.reduced(3, 4);
        assert_eq!(lines.text(), "");
        let case = Case::new("test", crate::cluster::Personality::Zk, 0x2f);
        progress.failed(&case, "again");
        assert!(lines.text().starts_with("test: seed 0x2f on zk breaks"), "{}", lines.text());

        let lines = Lines::default();
        let progress = lines.progress(Duration::ZERO);
        progress.histories(1, 2);
        progress.reduced(3, 4);
        assert_eq!(
            lines.text(),
            "test: 1 of 2 histories\ntest: reduced to 4 faults in 3 histories\n"
        );
    }
}
