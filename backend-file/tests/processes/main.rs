//! Real processes on one directory: killed, stopped, and at the end of their disk; and what a loss
//! of power leaves.
//!
//! With `SYNOD_CUTS=1` a process is killed at each of its calls, and not at each fourth, and more
//! choices are made of what a loss of power leaves.

use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use synod_servers::required;
use synod_testkit::limit::limited;

mod apart;
mod child;
mod ends;
mod history;
mod journal;
mod kills;
mod power;
mod sums;
mod traced;

/// The limit of a test, on a busy machine too.
const LIMIT: Duration = Duration::from_secs(120);

/// The limit of forty writes in each of two processes that wait for each other.
const WAKES: Duration = Duration::from_secs(20);

/// The limit of a test that opens thousands of stores.
const LONG_LIMIT: Duration = Duration::from_secs(3_600);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == child::MARK) {
        return child::main(&arguments[1..]);
    }
    let trial = |name: &'static str, run: fn()| {
        Trial::test(name, move || limited(LIMIT, run).map_err(Into::into))
    };
    // Many machines allow no namespaces, or no clocks of their own: nothing else is missing there.
    let apart = |name: &'static str, run: fn()| {
        let trial = trial(name, run);
        let Some(why) = apart::missing() else { return trial };
        trial.with_ignored_flag(true).with_kind(format!("cannot run: {why}"))
    };
    let traced = |name: &'static str, run: fn()| {
        let trial = Trial::test(name, move || limited(LONG_LIMIT, run).map_err(Into::into));
        let Some(why) = traced::missing() else { return trial };
        // Some machines forbid to trace: only a missing program is an error there.
        assert!(!required() || traced::is_installed(), "{why}");
        trial.with_ignored_flag(true).with_kind(format!("cannot run: {why}"))
    };
    let trials = vec![
        trial("a_killed_process_loses_its_session_at_once", ends::a_killed_process),
        trial("a_session_that_lingers_ends_in_time", ends::a_lingering_session),
        trial("a_stopped_process_loses_its_session_in_time", ends::a_stopped_process),
        trial("no_process_believes_in_a_session_that_is_being_ended", ends::a_judged_process),
        Trial::test("each_write_wakes_who_waits_for_it", || {
            limited(WAKES, ends::a_wake).map_err(Into::into)
        }),
        trial("a_waiting_writer_names_the_process_that_has_the_turn", ends::a_taken_turn),
        trial("processes_that_are_killed_count_to_an_exact_sum", sums::under_kills),
        trial("what_was_answered_is_there_after_the_disk_was_full", sums::at_the_end_of_the_disk),
        trial(
            "a_program_that_outlives_its_process_keeps_nothing",
            apart::a_program_of_a_dead_process,
        ),
        apart("processes_in_other_namespaces_are_told_apart", apart::in_namespaces),
        apart("a_node_ends_in_time_by_the_clock_of_another_namespace", apart::by_another_clock),
        traced("a_process_may_be_killed_at_any_call_of_the_system", kills::alone),
        traced("an_observer_misses_nothing_of_a_process_that_is_killed", kills::observed),
        traced("a_new_store_survives_a_loss_of_power_at_any_write", power::of_a_new_store),
        traced("a_store_survives_a_loss_of_power_at_any_write", power::of_an_old_store),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
