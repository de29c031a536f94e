//! The other processes of a process group, which its leader waits for and kills.
//!
//! A signal to the group would also end the leader, before the others have ended. So the leader
//! finds them in `/proc`, where the system has it, and signals each of them.

use std::thread::sleep;
use std::time::Duration;

use nix::unistd::{Pid, getpid};

/// The first and the longest pause between two checks.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// Waits until the group has no other process, or until no time is left. Where the others cannot
/// be listed it waits for the whole time.
pub(super) fn wait_until_gone(group: Pid, left: impl Fn() -> Option<Duration>) {
    let _gone = until_gone(group, left, |_| ());
}

/// Kills the other processes of the group, and waits for their end, or until no time is left.
/// Returns `true` if they have ended.
pub(super) fn kill(group: Pid, left: impl Fn() -> Option<Duration>) -> bool {
    list(group).is_some() && until_gone(group, left, |member| end(member, group))
}

fn until_gone(group: Pid, left: impl Fn() -> Option<Duration>, each: impl Fn(Pid)) -> bool {
    let (mut pause, longest) = PAUSES;
    loop {
        let members = list(group);
        if members.as_ref().is_some_and(Vec::is_empty) {
            return true;
        }
        members.into_iter().flatten().for_each(&each);
        let Some(left) = left() else { return false };
        sleep(left.min(pause));
        pause = (pause * 2).min(longest);
    }
}

/// Lists the other processes of the group that have not ended. `None` if the system does not list
/// processes.
#[cfg(target_os = "linux")]
fn list(group: Pid) -> Option<Vec<Pid>> {
    let pid = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let all = std::fs::read_dir("/proc").ok()?.flatten().filter_map(pid).map(Pid::from_raw);
    let all: Vec<Pid> = all.collect();
    // Without its own entry it is no list of processes.
    all.contains(&getpid()).then_some(())?;
    Some(all.into_iter().filter(|pid| *pid != getpid() && is_in(*pid, group)).collect())
}

#[cfg(not(target_os = "linux"))]
fn list(_group: Pid) -> Option<Vec<Pid>> {
    None
}

/// Kills a process if it is still in the group: its id may be that of another one by now.
#[cfg(target_os = "linux")]
fn end(member: Pid, group: Pid) {
    use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

    let Some(pid) = rustix::process::Pid::from_raw(member.as_raw()) else { return };
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if is_in(member, group) {
        let _there = pidfd_send_signal(process, Signal::KILL).is_ok();
    }
}

#[cfg(not(target_os = "linux"))]
fn end(_member: Pid, _group: Pid) {}

#[cfg(target_os = "linux")]
fn is_in(pid: Pid, group: Pid) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    runs_in(&String::from_utf8_lossy(&stat), group)
}

/// Reads `/proc/PID/stat`: returns `true` if the process is in the group and has not ended. One
/// whose first thread has ended is shown as a zombie while it has others.
#[cfg(target_os = "linux")]
fn runs_in(stat: &str, group: Pid) -> bool {
    // The name, in parentheses, may contain anything.
    let Some((_, fields)) = stat.rsplit_once(") ") else { return false };
    let fields: Vec<&str> = fields.split(' ').collect();
    let (Some(state), Some(of), Some(threads)) = (fields.first(), fields.get(2), fields.get(17))
    else {
        return false;
    };
    let has_ended = matches!(*state, "Z" | "X") && matches!(*threads, "0" | "1");
    *of == group.to_string() && !has_ended
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_one_that_has_not_ended_whatever_its_name() {
        let rest = "-1 4194304 90 0 0 0 0 0 0 0 20 0";
        let stat = |name: &str, state: &str, group: u32, threads: u32| {
            format!("42 ({name}) {state} 1 {group} 7 0 {rest} {threads} 0 1234\n")
        };
        let runs = |stat: &str| runs_in(stat, Pid::from_raw(7));
        assert!(runs(&stat("sh", "S", 7, 1)));
        assert!(runs(&stat("a) Z 1 8 (b", "R", 7, 1)), "a name that looks like fields");
        assert!(!runs(&stat("sh", "S", 77, 1)), "another group");
        assert!(!runs(&stat("sh", "Z", 7, 1)), "a zombie");
        assert!(runs(&stat("sh", "Z", 7, 2)), "a thread of it runs");
        assert!(!runs(""));
        assert!(!runs("42 (sh) S 1"));
    }
}
