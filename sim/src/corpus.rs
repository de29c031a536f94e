//! Histories that once failed, each in a file: they are run before any other.
//!
//! Each was reduced, and names the law that it broke and the known mistake that breaks it again:
//! the mistake preserves the bug. `tests/corpus.rs` checks that no file fails without its mistake,
//! and that each does with it; a file that does not has become useless, and must be replaced.

use crate::bad_case::BadCase;
use crate::case::Case;

mod files;

/// The files of a workload, each with its name.
///
/// # Errors
///
/// [`BadCase::NoCase`] if a file is invalid.
pub fn of(workload: &str) -> Result<Vec<(&'static str, Case)>, BadCase> {
    let mut all = all()?;
    all.retain(|(_, case)| case.workload == workload);
    Ok(all)
}

/// All files, each with its name.
///
/// # Errors
///
/// [`BadCase::NoCase`] if a file is invalid.
pub fn all() -> Result<Vec<(&'static str, Case)>, BadCase> {
    let read = |(name, text): &(&'static str, &str)| {
        let case = Case::from_json(text);
        case.map(|case| (*name, case)).map_err(|error| BadCase::NoCase(format!("{name}: {error}")))
    };
    files::FILES.iter().map(read).collect()
}
