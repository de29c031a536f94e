//! Eight real processes with locks, a counter, a queue and a crew in one directory: killed and
//! stopped again and again, until all work is done.
//!
//! `SYNOD_KILLS=1000` kills that many processes instead of the usual number.

use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use synod_testkit::limit::limited;

mod process;
mod totals;
mod worker;

/// The first argument of a process of the test.
const MARK: &str = "--as-a-process";

/// The time limit: enough for a thousand kills on a slow machine.
const LIMIT: Duration = Duration::from_secs(3_600);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mark, directory, name] = &arguments[..]
        && mark == MARK
    {
        return worker::main(directory, name);
    }
    let trial = Trial::test("processes_that_are_killed_and_stopped_get_exact_totals", || {
        limited(LIMIT, totals::under_kills).map_err(Into::into)
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}
