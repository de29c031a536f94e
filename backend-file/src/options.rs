//! [`FileOptions`]: the directory of a store, and the settings of a backend on it.

use std::path::PathBuf;

/// The directory of a store, and the settings of a backend on it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileOptions {
    pub(crate) directory: PathBuf,
    pub(crate) is_unchecked: bool,
    pub(crate) is_separate: bool,
    pub(crate) lingers: bool,
}

impl FileOptions {
    /// The store in this directory, which is created if it is missing.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let (is_unchecked, is_separate, lingers) = (false, false, false);
        Self { directory: directory.into(), is_unchecked, is_separate, lingers }
    }

    /// Allows every file system. By default only those are allowed that are known to share locks
    /// between all processes of one machine, and with no other machine: on another one two
    /// processes may hold the same lock.
    pub fn unchecked_file_system(mut self, unchecked: bool) -> Self {
        self.is_unchecked = unchecked;
        self
    }

    /// Ends sessions after their time to live when their process has ended, as servers do, instead
    /// of at once: for programs whose children, or requests to other systems, may outlive them.
    pub fn linger(mut self, linger: bool) -> Self {
        self.lingers = linger;
        self
    }

    /// Gives the backend a seat of its own, as if it were in a process of its own. By default the
    /// backends of one process on one directory share a seat and its threads. For tests.
    pub fn separate(mut self, separate: bool) -> Self {
        self.is_separate = separate;
        self
    }
}
