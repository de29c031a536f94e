//! A server's process, which does not outlive its parent: [`Child`].

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

/// The maximum duration of a start on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A process that ends when this is dropped, or when this process ends in any way.
#[derive(Debug)]
pub struct Child {
    guard: std::process::Child,
    /// The input whose end the guard waits for. The operating system closes it even when this
    /// process is killed.
    leash: Option<ChildStdin>,
    id: u32,
}

/// Starts the program and prints its id; ends it when the other end of the input is closed.
const GUARD: &str = r#"
"$@" </dev/null >&2 &
server=$!
echo "$server"
exec >&-
cat >/dev/null
kill -9 "$server"
wait "$server" 2>/dev/null
"#;

/// A signal to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "what fixtures need, no more")]
pub enum Signal {
    /// The process ends immediately.
    Kill,
    /// The process is stopped.
    Stop,
    /// The process continues.
    Continue,
}

impl Child {
    /// Returns the id of the process.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Starts `program`, with its output going to the file at `log`.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(program: &Command, log: &Path) -> io::Result<Self> {
        let mut sh = Command::new("sh");
        sh.arg("-c").arg(GUARD).arg("guard").arg(program.get_program()).args(program.get_args());
        sh.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(log)?);
        let mut guard = sh.spawn()?;
        let leash = guard.stdin.take();
        let mut first = String::new();
        if let Some(output) = guard.stdout.take() {
            BufReader::new(output).read_line(&mut first)?;
        }
        let id = first.trim().parse().map_err(io::Error::other)?;
        Ok(Self { guard, leash, id })
    }

    /// Limits the size of the files that the process writes: 0 simulates a full disk.
    ///
    /// # Errors
    ///
    /// If the process no longer exists, or there is no `prlimit` on this machine.
    pub fn limit_files(&self, bytes: u64) -> io::Result<()> {
        let mut prlimit = Command::new("prlimit");
        prlimit.arg(format!("--pid={}", self.id)).arg(format!("--fsize={bytes}"));
        let status = prlimit.status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other("prlimit failed")) }
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    ///
    /// If the process no longer exists.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let name = match signal {
            Signal::Kill => "-KILL",
            Signal::Stop => "-STOP",
            Signal::Continue => "-CONT",
        };
        let status = Command::new("kill").arg(name).arg(self.id.to_string()).status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other("no such process")) }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.leash = None;
        // The guard ends after its server.
        let _ended = self.guard.wait().is_ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::Home;

    fn runs(id: u32) -> bool {
        Path::new(&format!("/proc/{id}")).exists()
    }

    #[test]
    fn a_child_is_gone_when_it_is_dropped_even_if_it_stands_still() {
        let home = Home::new("child").expect("there is room");
        let log = home.path().join("log");
        let child = Child::start(Command::new("sleep").arg("60"), &log).expect("sh is there");
        let id = child.id;
        child.signal(Signal::Stop).expect("it runs");
        assert!(runs(id));

        drop(child);

        assert!(!runs(id));
    }
}
