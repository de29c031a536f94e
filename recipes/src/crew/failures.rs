//! Errors of a crew.

use synod_core::error::{Error, ErrorKind};
use synod_core::path::Path;

use crate::support::detached;

/// Returns true if an error concerns one task alone: a later attempt fails, too, and the other
/// tasks of the crew may succeed.
pub(super) fn concerns_a_task(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::Invalid | ErrorKind::Corrupt)
}

/// The error once the client is closed.
pub(super) fn closed(path: &Path) -> Error {
    detached::closed("working in a crew", path)
}
