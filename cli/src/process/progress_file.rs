//! [`ProgressFile`]: the file in which a command reports its progress.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::sleep;

/// Interval between the reads of the file.
const LOOK: Duration = Duration::from_millis(200);

/// Number of bytes that are read at the end of the file.
const END: u64 = 4_096;

/// An empty file in its own directory, which is removed with it, so that a process that outlives
/// its task leaves no file.
#[derive(Debug)]
pub(crate) struct ProgressFile {
    dir: PathBuf,
}

impl ProgressFile {
    /// Creates the file for a command. No two have the same id, in any process: a killed process
    /// leaves its directory, and the system may reuse the id of that process.
    pub(crate) fn create(id: &str) -> io::Result<Self> {
        let dir = std::env::temp_dir().join(format!("synod-{id}"));
        DirBuilder::new().mode(0o700).create(&dir)?;
        let file = Self { dir };
        File::create_new(file.path())?;
        Ok(file)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join("progress")
    }

    /// Its last line, if it has one and can be read.
    pub(crate) fn last_line(&self) -> Option<String> {
        let file = File::open(self.path()).ok()?;
        let begin = file.metadata().ok()?.len().saturating_sub(END);
        let mut end = vec![0; usize::try_from(END).ok()?];
        let read = file.read_at(&mut end, begin).ok()?;
        let text = String::from_utf8_lossy(&end[..read]);
        text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
    }

    /// Reports its last line whenever that line changes.
    pub(crate) async fn follow(&self, report: impl Fn(String)) {
        let mut last = None;
        loop {
            sleep(LOOK).await;
            let now = self.last_line();
            if now != last
                && let Some(line) = now.clone()
            {
                report(line);
            }
            last = now;
        }
    }
}

impl Drop for ProgressFile {
    fn drop(&mut self) {
        let _removed = fs::remove_dir_all(&self.dir).is_ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_last_line_counts_and_nothing_is_left_of_it() {
        let file = ProgressFile::create("test").expect("it can be made");
        assert_eq!(file.last_line(), None);
        let long = "x".repeat(10_000);
        for (text, last) in [
            ("\n", None),
            ("a\nb\n", Some("b")),
            ("a\nb", Some("b")),
            (&format!("{long}\n 50 % \n\n"), Some("50 %")),
        ] {
            fs::write(file.path(), text).expect("it can be written");
            assert_eq!(file.last_line().as_deref(), last);
        }
        let dir = file.dir.clone();
        drop(file);
        assert!(!dir.exists());
    }
}
