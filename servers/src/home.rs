//! The directory of some servers, which does not outlive its creator: [`Home`].

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that is removed when this is dropped, or when this process ends in any way.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    /// The process that removes the directory. It waits for the end of its input, which the
    /// operating system closes when this process ends.
    sweeper: Child,
}

/// The servers that write into it have also ended by then.
const SWEEPER: &str = r#"cat >/dev/null; sleep 1; rm -rf "$1""#;

impl Home {
    /// Creates a new directory.
    ///
    /// # Errors
    ///
    /// If it cannot be created.
    pub fn new(of: &str) -> io::Result<Self> {
        Self::within(&std::env::temp_dir(), of)
    }

    /// Creates a new directory in memory, if the system has a directory for that: for what is
    /// synced often.
    ///
    /// # Errors
    ///
    /// If it cannot be created.
    pub fn in_memory(of: &str) -> io::Result<Self> {
        Self::within(Path::new("/dev/shm"), of).or_else(|_| Self::new(of))
    }

    fn within(parent: &Path, of: &str) -> io::Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let names = std::iter::repeat_with(|| {
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            format!("synod-{of}-{}-{number}", std::process::id())
        });
        let path = create_first(names.map(|name| parent.join(name)))?;
        let mut sh = Command::new("sh");
        sh.arg("-c").arg(SWEEPER).arg("sweeper").arg(&path).stdin(Stdio::piped());
        Ok(Self { sweeper: sh.spawn()?, path })
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Creates the first of these directories that does not exist yet. An earlier process may have left
/// one: the system reuses process ids.
fn create_first(paths: impl Iterator<Item = PathBuf>) -> io::Result<PathBuf> {
    let is_there = |created: &io::Result<PathBuf>| {
        created.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
    };
    let mut created = paths.map(|path| std::fs::create_dir(&path).map(|()| path));
    created
        .find(|created| !is_there(created))
        .unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
}

impl Drop for Home {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.path).is_ok();
        let _ended = self.sweeper.kill().and_then(|()| self.sweeper.wait()).is_ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_there_already_is_no_new_one() {
        let home = Home::new("homes").expect("a temporary directory");
        let [old, new] = ["old", "new"].map(|name| home.path().join(name));
        std::fs::create_dir(&old).expect("it is not there");

        let created = create_first([old, new.clone()].into_iter()).expect("one is not there");

        assert_eq!(created, new);
    }

    #[test]
    fn a_home_is_gone_when_it_is_dropped() {
        let home = Home::new("home").expect("a temporary directory");
        let path = home.path().to_owned();
        std::fs::write(path.join("file"), "x").expect("it exists");

        drop(home);

        assert!(!path.exists());
    }
}
