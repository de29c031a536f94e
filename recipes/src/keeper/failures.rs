//! The errors of a call that waits for what a task does.

use synod_core::error::{Error, ErrorKind};
use synod_core::path::Path;

/// The task has ended.
pub(crate) fn closed(doing: &'static str, path: &Path) -> Error {
    Error::new(ErrorKind::SessionLost, doing).at(path).because("the client is closed")
}

/// The task had no answer in the time of a call, and goes on.
pub(crate) fn late(doing: &'static str, path: &Path) -> Error {
    Error::new(ErrorKind::Unreachable, doing)
        .at(path)
        .because("the store did not answer in time")
        .with_unknown_effect()
}
