//! The guard of a command, which outlives the `synod` that started it.

#![cfg(target_os = "linux")]

use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Longer than any test: a guard that waits this long has missed the end of the lock.
const GRACE: &str = "3600000";

/// A guard, and a command in its group that SIGTERM does not end.
struct Group {
    guard: Child,
    command: Child,
}

impl Group {
    fn start() -> Self {
        let mut guard = Command::new(env!("CARGO_BIN_EXE_synod"));
        guard.args(["__guard", GRACE]).process_group(0);
        let mut guard = guard.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        let out = guard.stdout.as_mut().expect("piped");
        out.read_exact(&mut [0]).expect("it is ready");
        let mut command = Command::new("sh");
        command.args(["-c", "trap 'echo noted' TERM; echo in; while :; do sleep 0.05; done"]);
        command.process_group(guard.id().cast_signed()).stdout(Stdio::piped());
        let mut command = command.spawn().expect("starts");
        let out = command.stdout.as_mut().expect("piped");
        out.read_exact(&mut [0; 3]).expect("it handles SIGTERM from now on");
        Self { guard, command }
    }

    /// Renews the time for which the lock is certain: up to this number of seconds from now.
    fn certain_for(&mut self, seconds: f64) {
        let uptime = std::fs::read_to_string("/proc/uptime").expect("readable");
        let uptime: f64 = uptime.split(' ').next().expect("a time").parse().expect("a number");
        let until = Duration::from_secs_f64(uptime + seconds).as_nanos();
        let until = u64::try_from(until).expect("not so late").to_le_bytes();
        self.guard.stdin.as_mut().expect("open").write_all(&until).expect("it reads");
    }

    /// `synod` is killed.
    fn alone(&mut self) {
        drop(self.guard.stdin.take());
    }

    /// The output of the command, once the group has been killed.
    fn printed(mut self) -> String {
        let mut printed = String::new();
        self.command.stdout.take().expect("piped").read_to_string(&mut printed).expect("text");
        let ended = self.command.wait().expect("it was started");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(9));
        self.guard.wait().expect("it was started");
        printed
    }
}

#[test]
fn a_group_is_killed_when_the_lock_is_over_and_no_grace_later() {
    let mut group = Group::start();
    group.certain_for(1.0);
    group.alone();
    assert_eq!(group.printed(), "noted\n");
}

#[test]
fn a_group_has_no_grace_after_the_lock_is_over() {
    let mut group = Group::start();
    group.certain_for(0.0);
    group.alone();
    assert_eq!(group.printed(), "");
}

#[test]
fn a_group_is_killed_when_the_lock_is_not_renewed() {
    let mut group = Group::start();
    group.certain_for(3_600.0);
    group.certain_for(0.5);
    assert_eq!(group.printed(), "");
}
