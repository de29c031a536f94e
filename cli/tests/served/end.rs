//! The end of the command of `synod lock` and of its children, when the lock is over or `synod` is
//! stopped or killed.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use synod_servers::home::Home;

use crate::{Running, Scene, Server, eventually, runs, signal};

/// Prints its process id, and notes each SIGTERM in a file instead of ending.
const NOTES: &str = "trap 'echo noted >>$0' TERM; echo $$; while :; do sleep 0.05; done";

/// A command that holds a lock and is not ended by SIGTERM.
struct Stubborn {
    synod: Running,
    process: u32,
    notes: PathBuf,
    _home: Home,
}

impl Stubborn {
    fn holds(on: &Server, lock: &str) -> Self {
        let home = Home::new("stubborn").expect("a temporary directory");
        let notes = home.path().join("notes");
        let file = notes.to_str().expect("text");
        let words = ["lock", "--grace", "900ms", lock, "--", "sh", "-c", NOTES, file];
        let mut command = on.synod(&words);
        // Longer than a busy machine needs until it renews the session.
        command.env("SYNOD_STORE", on.url().replace("session=2s", "session=6s"));
        let mut synod = Running::start(&mut command);
        let process = synod.number();
        Self { synod, process, notes, _home: home }
    }

    /// Checks that it is killed without a SIGTERM before: its lock was already lost.
    fn is_killed_at_once(&self) {
        eventually("the command is killed", || !runs(self.process));
        assert!(!self.notes.exists(), "it got SIGTERM, and time to end");
    }
}

/// A stopped process group, which continues when this is dropped.
struct StoppedGroup(u32);

impl StoppedGroup {
    /// Stops the group of a process.
    fn of(process: u32) -> Self {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
        let (_, rest) = stat.rsplit_once(')').expect("a name in parentheses");
        let group = rest.split_whitespace().nth(2).expect("a group").parse().expect("a number");
        assert!(send("STOP", group), "no group {group}");
        Self(group)
    }
}

impl Drop for StoppedGroup {
    fn drop(&mut self) {
        // Ignored if it was killed in the meantime.
        let _there = send("CONT", self.0);
    }
}

/// Sends a signal to a group. Returns `false` if there is no such group.
fn send(name: &str, group: u32) -> bool {
    let mut kill = Command::new("kill");
    let kill = kill.args([&format!("-{name}"), "--", &format!("-{group}")]);
    kill.stderr(Stdio::null()).status().expect("kill is there").success()
}

/// The case of a machine or a container that is paused.
fn a_command_that_was_frozen_is_killed_at_once_when_the_lock_is_over(on: &Server) {
    let held = Stubborn::holds(on, "/frozen");
    let group = StoppedGroup::of(held.process);
    held.synod.signal("STOP");
    let next = on.holds(&["lock", "/frozen"]);

    held.synod.signal("CONT");
    drop(group);

    held.is_killed_at_once();
    held.synod.ends_with(76);
    next.ends_with(0);
}

/// The case of Ctrl-Z, or of a process that waits for its swapped memory.
fn a_command_is_killed_in_time_while_synod_is_stopped(on: &Server) {
    let held = Stubborn::holds(on, "/stopped");
    held.synod.signal("STOP");
    let next = on.holds(&["lock", "/stopped"]);

    held.is_killed_at_once();

    held.synod.signal("CONT");
    held.synod.ends_with(76);
    next.ends_with(0);
}

fn what_a_command_leaves_running_ends_before_the_release(on: &Server) {
    for (trap, code) in [("", 0), ("trap '' TERM; ", 3)] {
        let script = format!("{trap}sleep 1000 >/dev/null & echo $!; exit {code}");
        let words = ["lock", "--grace", "300ms", "/left", "--", "sh", "-c", &script];
        let mut synod = Running::start(&mut on.synod(&words));
        let child = synod.number();
        synod.ends_with(code);
        assert!(!runs(child), "it outlives the lock");
    }
    // Stopped processes end, too.
    let script = "sleep 1000 >/dev/null & echo $!; kill -STOP $!; exit 0";
    let mut synod = Running::start(&mut on.synod(&["lock", "/left", "--", "sh", "-c", script]));
    let child = synod.number();
    synod.ends_with(0);
    assert!(!runs(child));
    assert_eq!(on.standing("/left"), 0);
}

fn a_time_without_an_end_is_a_grace(on: &Server) {
    let script = "trap 'exit 3' TERM; echo $$; while :; do sleep 0.05; done";
    let work = ["crew", "/endless", "work", "--grace", "1e18", "--", "sh", "-c", script];
    assert_eq!(on.code(&["crew", "/endless", "submit", "", "--id", "a"]), Some(0));
    let mut worker = Running::start(&mut on.synod(&work));
    assert_eq!(worker.line(), "begun   a");
    signal("QUIT", worker.child.id());
    worker.ends_with(131);
}

pub(crate) const SCENES: &[Scene] = &[
    (
        "a_command_that_was_frozen_is_killed_at_once_when_the_lock_is_over",
        a_command_that_was_frozen_is_killed_at_once_when_the_lock_is_over,
    ),
    (
        "a_command_is_killed_in_time_while_synod_is_stopped",
        a_command_is_killed_in_time_while_synod_is_stopped,
    ),
    (
        "what_a_command_leaves_running_ends_before_the_release",
        what_a_command_leaves_running_ends_before_the_release,
    ),
    ("a_time_without_an_end_is_a_grace", a_time_without_an_end_is_a_grace),
];
