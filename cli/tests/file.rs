//! The command on a directory, which the processes of one machine share.

use std::process::Command;

use synod_servers::home::Home;

use crate::run::{failing, failing_with, synod, text};

mod run;

/// The URL of a store in a new directory, which is removed with it.
fn store() -> (Home, String) {
    let home = Home::new("cli-file").expect("a directory can be created");
    let url = format!("file://{}/store", home.path().display());
    (home, url)
}

#[track_caller]
fn succeeds(arguments: &[&str]) -> String {
    let output = synod(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_directory_keeps_what_a_command_has_written() {
    let (_home, url) = store();
    succeeds(&["put", "--store", &url, "/config/colour", "blue"]);
    assert_eq!(succeeds(&["get", "--store", &url, "/config/colour"]).trim_end(), "blue");
    assert!(succeeds(&["ls", "--store", &url, "/"]).contains("config"));
}

#[test]
fn a_directory_says_what_is_missing_or_wrong() {
    let (_home, url) = store();
    assert!(failing_with(66, &["get", "--store", &url, "/missing"]).contains("/missing"));
    let unknown = format!("{url}?owner=ann");
    assert!(failing(&["get", "--store", &unknown, "/a"]).contains("it knows"));
}

#[test]
fn a_lock_in_a_directory_excludes_other_commands_while_it_is_held() {
    let (_home, url) = store();
    let second = ["lock", "-w", "0.5", "--store", &url, "/lock", "true"];
    let first = ["lock", "--store", &url, "/lock", env!("CARGO_BIN_EXE_synod")];
    let both = synod(&[&first[..], &second].concat());
    assert!(!both.status.success(), "the second waits for the first, which waits for it");
    succeeds(&second);
}

#[test]
fn a_lock_of_a_killed_command_stays_locked_for_its_time_to_live() {
    let (_home, url) = store();
    let short = format!("{url}?session=2s");
    let mut holder = Command::new(env!("CARGO_BIN_EXE_synod"));
    holder.args(["lock", "--store", &short, "/lock", "sleep", "3600"]);
    let mut holder = holder.spawn().expect("the command starts");
    let try_lock = ["lock", "-w", "0.1", "--store", &url, "/lock", "true"];
    while synod(&try_lock).status.success() {}
    holder.kill().and_then(|()| holder.wait()).expect("it runs");
    // Its program may still run: it gets some time to end.
    assert!(!synod(&try_lock).status.success());
    // Commands that run for a moment each do notice.
    succeeds(&["lock", "-w", "60", "--store", &url, "/lock", "true"]);
}
