//! The selection of the servers for tests: those of the machine, or others.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Returns the directory of the servers that this environment variable selects: the directory in
/// it, or the one into which `dev/newer KIND` installs the newer ones if it is `newer`. `None` if
/// it is not set.
///
/// # Errors
///
/// The reason for which the servers are missing.
pub fn directory(variable: &str, kind: &str) -> Result<Option<PathBuf>, String> {
    let wanted = std::env::var(variable).unwrap_or_default();
    match wanted.as_str() {
        "" => Ok(None),
        "newer" => fetch(kind).map(Some),
        directory => match PathBuf::from(directory) {
            directory if directory.is_dir() => Ok(Some(directory)),
            _ => Err(format!("{variable} is `newer` or a directory, and not {directory}")),
        },
    }
}

fn fetch(kind: &str) -> Result<PathBuf, String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../dev/newer");
    let fetching = Command::new(script).arg(kind).stdin(Stdio::null()).output();
    let fetched = fetching.map_err(|error| format!("{script}: {error}"))?;
    if fetched.status.success() {
        return Ok(String::from_utf8_lossy(&fetched.stdout).trim().into());
    }
    let output = String::from_utf8_lossy(&fetched.stderr).into_owned();
    let why = output.lines().last().unwrap_or("dev/newer failed");
    Err(why.trim_start_matches("error: ").to_owned())
}
