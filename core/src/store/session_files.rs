//! [`SessionFiles`]: the open files that keep a session of this machine alive.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

/// The open files that keep a session alive, for a store that learns from the operating system that
/// a process has ended. It is an [`Extension`](super::Extension) of such a session.
///
/// A process that has these files open keeps the session as its owner does, until its TTL passes
/// without a heartbeat. So a child process that must not outlive a lock, but may outlive the
/// process that holds the lock, takes a copy of each.
pub struct SessionFiles(Box<dyn Fn() -> io::Result<Vec<OwnedFd>> + Send + Sync>);

impl SessionFiles {
    /// Creates the files of a session from a function that copies the descriptors. Each copy is
    /// closed on `exec`.
    pub fn new(copy: impl Fn() -> io::Result<Vec<OwnedFd>> + Send + Sync + 'static) -> Self {
        Self(Box::new(copy))
    }

    /// Copies the descriptors. There are none if the session's store was closed.
    ///
    /// # Errors
    ///
    /// The error of the operating system, for example with too many open files.
    pub fn copy(&self) -> io::Result<Vec<OwnedFd>> {
        (self.0)()
    }
}

impl fmt::Debug for SessionFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionFiles").finish_non_exhaustive()
    }
}
