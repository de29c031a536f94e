//! Runs the command with the arguments that a user types.

use std::process::{Command, Output};

pub(crate) fn synod(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_synod"));
    command.env_remove("SYNOD_STORE").env_remove("SYNOD_PROFILE").args(arguments);
    // The tests do not read the configuration file of their user.
    command.env("XDG_CONFIG_HOME", "/nowhere/at/all");
    command.output().expect("the command starts")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The error output of a command that fails, which is one line.
#[track_caller]
pub(crate) fn failing(arguments: &[&str]) -> String {
    failing_with(1, arguments)
}

/// The error output of a command that fails with this exit code.
#[track_caller]
pub(crate) fn failing_with(code: i32, arguments: &[&str]) -> String {
    let output = synod(arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    assert!(said.starts_with("error: "), "{said}");
    said
}
