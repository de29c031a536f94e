//! Real processes on one directory: killed, stopped, and at the end of their disk.

use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use synod_testkit::limit::limited;

mod child;
mod ends;
mod sums;

/// The limit of a test, on a busy machine too.
const LIMIT: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == child::MARK) {
        return child::main(&arguments[1..]);
    }
    let trial = |name: &'static str, run: fn()| {
        Trial::test(name, move || limited(LIMIT, run).map_err(Into::into))
    };
    let trials = vec![
        trial("a_killed_process_loses_its_session_at_once", ends::a_killed_process),
        trial("a_session_that_lingers_ends_in_time", ends::a_lingering_session),
        trial("a_stopped_process_loses_its_session_in_time", ends::a_stopped_process),
        trial("a_waiting_writer_names_the_process_that_has_the_turn", ends::a_taken_turn),
        trial("processes_that_are_killed_count_to_an_exact_sum", sums::under_kills),
        trial("what_was_answered_is_there_after_the_disk_was_full", sums::at_the_end_of_the_disk),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
