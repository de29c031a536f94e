//! [`Stall`]: a disk that stalls under a server, while its process and its connections work.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;
use std::{fs, io};

use tokio::time::Instant;

use crate::child::{Child, PATIENCE};

/// The longest time that a write is delayed. A stall is ended before.
const DELAY: &str = "inject=fdatasync:delay_enter=600s";

/// A server process whose `fdatasync` does not return before this is dropped. The server stalls
/// when it has something to write.
#[derive(Debug)]
pub struct Stall {
    _strace: Child,
}

impl Stall {
    /// The reason that no disk can be stalled here; `None` if it can.
    pub fn missing() -> Option<&'static str> {
        let works = Command::new("strace").args(["-o", "/dev/null", "true"]).status();
        if !works.is_ok_and(|status| status.success()) {
            return Some("strace is not installed, or not permitted");
        }
        let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
        let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
        let attaches = is_root || matches!(scope.trim(), "" | "0");
        (!attaches).then_some("strace is not permitted to attach to a process")
    }

    /// Stalls the disk of this process. The output of strace goes to a file in `home`.
    pub(super) fn start(process: u32, home: &Path) -> io::Result<Self> {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-p", &process.to_string(), "-o", "/dev/null"]);
        strace.args(["-e", "trace=fdatasync", "-e", DELAY]);
        let log = home.join("strace");
        let stall = Self { _strace: Child::start(&strace, &log)? };
        let end = Instant::now() + PATIENCE;
        while !fs::read_to_string(&log)?.contains("attached") {
            if Instant::now() > end {
                return Err(io::Error::other("strace did not attach"));
            }
            sleep(Duration::from_millis(20));
        }
        Ok(stall)
    }
}
