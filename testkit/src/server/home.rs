//! [`Home`]: the directory of some servers, which does not outlive its creator.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that is removed when this is dropped, or when this process ends in any way.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    /// Waits for the end of its input, which the operating system closes when this process ends.
    sweeper: Child,
}

/// By then the servers that write into it have ended, too.
const SWEEPER: &str = r#"cat >/dev/null; sleep 1; rm -rf "$1""#;

impl Home {
    /// A new directory.
    ///
    /// # Errors
    ///
    /// If it cannot be created.
    pub fn new(of: &str) -> io::Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("synod-{of}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path)?;
        let mut sh = Command::new("sh");
        sh.arg("-c").arg(SWEEPER).arg("sweeper").arg(&path).stdin(Stdio::piped());
        Ok(Self { sweeper: sh.spawn()?, path })
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }
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
    fn a_home_is_gone_when_it_is_dropped() {
        let home = Home::new("home").expect("a temporary directory");
        let path = home.path().to_owned();
        std::fs::write(path.join("file"), "x").expect("it exists");

        drop(home);

        assert!(!path.exists());
    }
}
