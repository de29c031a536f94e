//! Processes under `strace`, which kills them at a call of the system, or records what they write.

use std::process::Command;
use std::sync::LazyLock;

/// The reason that no process can be traced here, if there is one.
pub(crate) fn missing() -> Option<String> {
    static MISSING: LazyLock<Option<String>> = LazyLock::new(|| {
        let tried = Command::new("strace").args(["-f", "-qq", "-o", "/dev/null", "true"]).output();
        match tried {
            Ok(output) if output.status.success() => None,
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr);
                Some(format!("strace may not trace a process: {}", why.trim()))
            }
            Err(error) => Some(format!("strace cannot be started: {error}")),
        }
    });
    MISSING.clone()
}

pub(crate) fn is_installed() -> bool {
    Command::new("strace").arg("--version").output().is_ok_and(|output| output.status.success())
}
