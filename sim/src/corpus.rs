//! Histories that once failed, each in a file: they are run before any other.
//!
//! Each was shrunk, names the law that it broke, and the known mistake that breaks it again: the bug that it was, kept.
//! `tests/corpus.rs` holds that no file fails without its mistake, and that each does with it; one that does
//! not says nothing any more, and is to be found anew.

use crate::case::{BadCase, Case};

mod files;

/// The files of a workload, each with its name.
///
/// # Errors
///
/// [`BadCase::NoCase`] if one cannot be read.
pub fn of(workload: &str) -> Result<Vec<(&'static str, Case)>, BadCase> {
    let mut all = all()?;
    all.retain(|(_, case)| case.workload == workload);
    Ok(all)
}

/// All files, each with its name.
///
/// # Errors
///
/// [`BadCase::NoCase`] if one cannot be read.
pub fn all() -> Result<Vec<(&'static str, Case)>, BadCase> {
    let read = |(name, text): &(&'static str, &str)| {
        let case = Case::from_json(text);
        case.map(|case| (*name, case)).map_err(|error| BadCase::NoCase(format!("{name}: {error}")))
    };
    files::FILES.iter().map(read).collect()
}
