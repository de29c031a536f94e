//! [`Child`] and [`Home`]: a server's process and its files, neither of which outlives whoever started
//! it.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A process that ends when this is dropped, or when this process ends in whatever way.
#[derive(Debug)]
pub struct Child {
    guard: std::process::Child,
    /// The guard waits for the end of this. The operating system closes it when this process is
    /// killed, too.
    leash: Option<ChildStdin>,
    id: u32,
}

/// Starts the program and tells its id; ends it when nobody holds the other end of the input.
const GUARD: &str = r#"
"$@" </dev/null >&2 &
server=$!
echo "$server"
exec >&-
cat >/dev/null
kill -9 "$server"
wait "$server" 2>/dev/null
"#;

/// What can be done to a process from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "what fixtures need, no more")]
pub enum Signal {
    /// It ends at once.
    Kill,
    /// It stands still.
    Stop,
    /// It goes on.
    Continue,
}

impl Child {
    /// Starts `program`, with all that it says going to the file at `log`.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(program: &mut Command, log: &Path) -> io::Result<Self> {
        let mut sh = Command::new("sh");
        sh.arg("-c").arg(GUARD).arg("guard").arg(program.get_program()).args(program.get_args());
        sh.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(log)?);
        let mut guard = sh.spawn()?;
        let leash = guard.stdin.take();
        let mut first = String::new();
        if let Some(said) = guard.stdout.take() {
            BufReader::new(said).read_line(&mut first)?;
        }
        let id = first.trim().parse().map_err(io::Error::other)?;
        Ok(Self { guard, leash, id })
    }

    /// Does something to the process.
    ///
    /// # Errors
    ///
    /// If there is no such process any more.
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
        // The guard ends when its server has.
        let _ended = self.guard.wait().is_ok();
    }
}

/// A directory that goes when this is dropped, or when this process ends in whatever way.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    janitor: std::process::Child,
    leash: Option<ChildStdin>,
}

/// Removes a directory when nobody holds the other end of the input. Servers may still be about to
/// end, and to write.
const JANITOR: &str = r#"
cat >/dev/null
for try in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf "$1" && exit
    sleep 0.2
done
"#;

impl Home {
    /// A new directory whose name starts with this.
    ///
    /// # Errors
    ///
    /// If it cannot be made.
    pub fn new(name: &str) -> io::Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);

        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path)?;
        let mut sh = Command::new("sh");
        sh.arg("-c").arg(JANITOR).arg("janitor").arg(&path);
        sh.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut janitor = sh.spawn()?;
        let leash = janitor.stdin.take();
        Ok(Self { path, janitor, leash })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.leash = None;
        let _removed = self.janitor.wait().is_ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(id: u32) -> bool {
        Path::new(&format!("/proc/{id}")).exists()
    }

    #[test]
    fn a_child_is_gone_when_it_is_dropped_even_if_it_stands_still() {
        let home = Home::new("synod-child").expect("there is room");
        let (path, log) = (home.path().to_owned(), home.path().join("log"));
        let child = Child::start(Command::new("sleep").arg("60"), &log).expect("sh is there");
        let id = child.id;
        child.signal(Signal::Stop).expect("it runs");
        assert!(runs(id));

        drop(child);

        assert!(!runs(id));
        assert!(log.exists());
        drop(home);
        assert!(!path.exists());
    }
}
