//! Commands that wait: signals end them, and an outage of the store does not.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use synod_testkit::limit::waits_for;

use crate::{Leash, Running, Scene, Server, eventually, text};

fn a_command_that_is_ended_removes_its_node(on: &Server) {
    for name in ["INT", "TERM", "HUP"] {
        let mut held = Running::start(&mut on.synod(&["create", "/short", "x", "--ephemeral"]));
        assert_eq!(held.line(), "/short");
        held.signal(name);
        held.ends_with(0);
        assert_eq!(on.code(&["get", "/short"]), Some(66), "SIG{name} leaves the node");
    }
    // With a closed output.
    let mut command = on.synod(&["create", "/short", "x", "--ephemeral"]);
    let mut unread = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let _leash = Leash::of(&unread, &command);
    drop(unread.stdout.take());
    waits_for("a command whose output nobody reads");
    assert_eq!(unread.wait().expect("it was started").code(), Some(0));
    assert_eq!(on.code(&["get", "/short"]), Some(66));
}

fn a_command_that_waits_is_ended_by_a_signal(on: &Server) {
    assert_eq!(on.code(&["create", "/looked-at", "x"]), Some(0));
    assert_eq!(on.code(&["create", "/looked-at", "x"]), Some(73), "it is there");
    let mut watch = Running::start(&mut on.synod(&["watch", "/looked-at"]));
    assert_eq!(watch.line(), "found    /looked-at  x");
    watch.signal("TERM");
    watch.ends_with(0);
}

/// The reader has ended before there is an item: the item stays.
fn an_unread_item_is_put_back(on: &Server) {
    let mut command = on.synod(&["queue", "/unread", "take"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut take = command.spawn().expect("it starts");
    let _leash = Leash::of(&take, &command);
    drop(take.stdout.take());
    assert_eq!(on.code(&["queue", "/unread", "put", "one"]), Some(0));
    waits_for("a command whose output nobody reads");
    let ended = take.wait_with_output().expect("it was started");
    assert_eq!(ended.status.code(), Some(1));
    assert!(text(&ended.stderr).contains("the item is put back"), "{}", text(&ended.stderr));
    assert_eq!(text(&on.output(&["queue", "/unread", "take"]).stdout), "one");
}

fn a_waiter_for_a_lock_waits_through_an_outage(on: &Server) {
    let mut own = on.another();
    let url = format!("{}&timeout=1s", own.url());
    let synod = |words: &[&str]| {
        let mut command = own.synod(words);
        command.env("SYNOD_STORE", &url);
        command
    };
    let mut held =
        Running::start(&mut synod(&["lock", "/outage", "--", "sh", "-c", "echo in; sleep 1000"]));
    assert_eq!(held.line(), "in");
    let mut waits = synod(&["lock", "/outage", "--", "echo", "entered"]);
    let mut waits = Running::start(waits.stderr(Stdio::piped()));
    eventually("it waits", || own.standing("/outage") == 2);

    own.kill();

    held.ends_with(76);
    let mut warnings = BufReader::new(waits.child.stderr.take().expect("piped")).lines();
    waits_for("a warning of the waiter");
    let warning = warnings.next().expect("it says something").expect("text");
    assert!(
        warning.starts_with("warning: ") && warning.ends_with("; the wait continues"),
        "{warning}"
    );
    own.restart();
    assert_eq!(waits.line(), "entered");
    waits.ends_with(0);
}

fn a_demo_that_ends_early_leaves_nothing(on: &Server) {
    let is_there = || {
        let tree = text(&on.output(&["tree", "--json", "/synod-demo"]).stdout);
        // The server removes an empty container later.
        tree.lines().any(|node| !node.contains(r#""kind":"container""#))
    };
    for is_read in [true, false] {
        let mut demo = Running::start(&mut on.synod(&["demo"]));
        // The copies are connected, and the tasks submitted.
        eventually("the tasks are submitted", || demo.line().contains("has submitted"));
        assert!(is_there());
        if is_read {
            demo.signal("TERM");
        } else {
            demo.stop_reading();
        }
        demo.ends_with(i32::from(is_read));
        eventually("nothing is left of it", || !is_there());
    }
}

pub(crate) const SCENES: &[Scene] = &[
    ("a_command_that_is_ended_removes_its_node", a_command_that_is_ended_removes_its_node),
    ("a_command_that_waits_is_ended_by_a_signal", a_command_that_waits_is_ended_by_a_signal),
    ("an_unread_item_is_put_back", an_unread_item_is_put_back),
    ("a_waiter_for_a_lock_waits_through_an_outage", a_waiter_for_a_lock_waits_through_an_outage),
    ("a_demo_that_ends_early_leaves_nothing", a_demo_that_ends_early_leaves_nothing),
];
