//! `synod watch -- COMMAND` on real servers.

use std::fs;

use crate::{Running, Scene, Server, eventually, text};

/// Prints the event, the node and its data.
const SHOWS: &[&str] = &["sh", "-c", "echo $SYNOD_EVENT $SYNOD_PATH $(cat)"];

fn a_command_runs_for_each_node_and_for_each_change(on: &Server) {
    assert_eq!(on.code(&["put", "/runs/a", "one"]), Some(0));
    let mut all =
        Running::start(&mut on.synod(&[&["watch", "--subtree", "/runs", "--"], SHOWS].concat()));
    assert_eq!(all.line(), "found /runs/a one");
    let mut node = Running::start(&mut on.synod(&[&["watch", "/runs/b"], SHOWS].concat()));
    assert_eq!(on.code(&["put", "/runs/a", "two"]), Some(0));
    assert_eq!(all.line(), "updated /runs/a two");
    assert_eq!(on.code(&["put", "/runs/b", "x y"]), Some(0));
    assert_eq!(all.line(), "created /runs/b x y");
    // It may have started before or after.
    assert!(node.line().ends_with(" /runs/b x y"));
    assert_eq!(on.code(&["delete", "/runs/a"]), Some(0));
    assert_eq!(all.line(), "deleted /runs/a");
    assert_eq!(on.code(&["delete", "/runs/b"]), Some(0));
    assert_eq!([all.line(), node.line()], ["deleted /runs/b", "deleted /runs/b"]);
    for one in [all, node] {
        one.signal("TERM");
        one.ends_with(0);
    }
}

fn changes_during_a_run_are_one_change(on: &Server) {
    let name: String = on.url().chars().filter(char::is_ascii_alphanumeric).collect();
    let gate = format!("{}/gate-{name}", env!("CARGO_TARGET_TMPDIR"));
    fs::write(&gate, "").expect("writable");
    let waits = "echo in $SYNOD_EVENT $(cat); while [ -e $0 ]; do sleep 0.02; done; echo out";
    let command = ["--", "sh", "-c", waits, &*gate];
    assert_eq!(on.code(&["put", "/slow", "1"]), Some(0));
    let mut slow = Running::start(&mut on.synod(&[&["watch", "/slow"], &command[..]].concat()));
    assert_eq!(slow.line(), "in found 1");
    // Deleted and created again, too.
    for data in ["2", "3"] {
        assert_eq!(on.code(&["put", "/slow", data]), Some(0));
        assert_eq!(on.code(&["delete", "/slow"]), Some(0));
    }
    assert_eq!(on.code(&["put", "/slow", "4"]), Some(0));
    // The watch gets events in order: when another watch has it, this one may have it.
    let seen = on.output(&["watch", "--count", "0", "/slow"]);
    assert_eq!(text(&seen.stdout), "found    /slow  4");
    fs::remove_file(&gate).expect("it is there");
    let mut last = String::new();
    eventually("the run for the last data", || {
        last = slow.line();
        last.ends_with(" 4")
    });
    assert_eq!(last, "in created 4");
    assert_eq!(slow.line(), "out");
    assert_eq!(on.code(&["put", "/slow", "5"]), Some(0));
    assert_eq!(slow.line(), "in updated 5");
    slow.signal("INT");
    slow.ends_with(0);
}

fn a_run_that_fails_is_reported(on: &Server) {
    assert_eq!(on.code(&["put", "/fails", "x"]), Some(0));
    let fails = ["watch", "--count", "0", "--json", "/fails", "--", "sh", "-c", "exit 7"];
    let failed = on.output(&fails);
    assert_eq!(failed.status.code(), Some(7));
    let told = text(&failed.stderr);
    assert_eq!(told, "warning: /fails: the command ended with exit code 7");
    let told: serde_json::Value = serde_json::from_slice(&failed.stdout).expect("JSON");
    assert_eq!((&told["event"], &told["code"]), (&"found".into(), &7.into()));
    assert_eq!(on.code(&["watch", "/fails", "--", "/no/such/command"]), Some(127));
    assert_eq!(on.code(&["watch", "/fails", "--", "/dev/null"]), Some(126));
    // The next change runs it again.
    let script = "echo $(cat); [ $SYNOD_EVENT != found ] || exit 3";
    let fails = ["watch", "--count", "1", "/fails", "--", "sh", "-c", script];
    let mut goes_on = Running::start(&mut on.synod(&fails));
    assert_eq!(goes_on.line(), "x");
    assert_eq!(on.code(&["put", "/fails", "y"]), Some(0));
    assert_eq!(goes_on.line(), "y");
    goes_on.ends_with(3);
}

fn a_signal_ends_the_command_and_the_watch(on: &Server) {
    assert_eq!(on.code(&["put", "/both", "x"]), Some(0));
    let deaf = "trap '' TERM; echo $$; exec sleep 1000";
    let command = ["watch", "--grace", "0.1", "/both", "--", "sh", "-c", deaf];
    for name in ["INT", "TERM"] {
        let mut both = Running::start(&mut on.synod(&command));
        let process = both.number();
        both.signal(name);
        both.ends_with(0);
        eventually("the command is gone", || !crate::runs(process));
    }
}

fn a_change_after_an_outage_is_a_change(on: &Server) {
    let mut own = on.another();
    assert_eq!(own.code(&["put", "/outage", "before"]), Some(0));
    let mut kept = Running::start(&mut own.synod(&[&["watch", "/outage", "--"], SHOWS].concat()));
    assert_eq!(kept.line(), "found /outage before");
    own.kill();
    own.restart();
    eventually("it answers", || own.code(&["put", "/outage", "after"]) == Some(0));
    assert_eq!(kept.line(), "updated /outage after");
    kept.signal("TERM");
    kept.ends_with(0);
}

pub(crate) const SCENES: &[Scene] = &[
    (
        "a_command_runs_for_each_node_and_for_each_change",
        a_command_runs_for_each_node_and_for_each_change,
    ),
    ("changes_during_a_run_are_one_change", changes_during_a_run_are_one_change),
    ("a_run_that_fails_is_reported", a_run_that_fails_is_reported),
    ("a_signal_ends_the_command_and_the_watch", a_signal_ends_the_command_and_the_watch),
    ("a_change_after_an_outage_is_a_change", a_change_after_an_outage_is_a_change),
];
