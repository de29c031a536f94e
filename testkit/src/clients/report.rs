//! How a process reports to its controller: the line that it writes, and how often it checks.

use std::io::{self, Write as _};
use std::panic;
use std::process;
use std::time::Duration;

use crate::clients::entry::{Entry, What, now};

/// How often a process checks what it believes.
pub(super) const GLANCE: Duration = Duration::from_millis(1);
/// After how many checks without a change it reports.
pub(super) const GLANCES: u32 = 20;

/// Writes a line. If it cannot be written, the reader has gone.
pub(super) fn report(p: usize, s: Option<u64>, id: Option<u64>, what: What) {
    let entry = Entry { t: now(), p, s, id, what };
    let mut line = serde_json::to_string(&entry).expect("an entry is plain");
    line.push('\n');
    let _gone = io::stdout().lock().write_all(line.as_bytes()).is_err();
}

/// Makes a panic of a task the end of the process, and reports it: a runtime catches it, and the process would go on without the
/// task and say nothing.
pub(super) fn ends_with_a_panic(p: usize) {
    const FAILURE: i32 = 101;
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        usual(info);
        report(p, None, None, What::Panic { why: info.to_string() });
        process::exit(FAILURE);
    }));
}
