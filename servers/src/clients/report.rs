//! The reports of a process to its controller: the format of a line, and the interval of the
//! checks.

use std::io::{self, Write as _};
use std::panic;
use std::process;
use std::time::Duration;

use crate::clients::entry::{Entry, What, now};

/// The interval at which a process checks its sessions and locks.
pub(super) const GLANCE: Duration = Duration::from_millis(1);
/// The number of checks without a change after which it reports.
pub(super) const GLANCES: u32 = 20;

/// Writes a line. If that fails, the reader has ended.
pub(super) fn report(p: usize, s: Option<u64>, id: Option<u64>, what: What) {
    let entry = Entry { t: now(), p, s, id, what };
    let mut line = serde_json::to_string(&entry).expect("an entry is plain");
    line.push('\n');
    let _gone = io::stdout().lock().write_all(line.as_bytes()).is_err();
}

/// Ends the process when a task panics, and reports the panic: a runtime catches a panic, and the
/// process would continue without the task and without a report.
pub(super) fn ends_with_a_panic(p: usize) {
    const FAILURE: i32 = 101;
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        usual(info);
        report(p, None, None, What::Panic { why: info.to_string() });
        process::exit(FAILURE);
    }));
}
