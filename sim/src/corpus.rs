//! Histories that once failed, one per line in `sim/corpus.jsonl`: they are run before any other.
//!
//! Each was reduced, and names the law that it broke and the known mistake that breaks it again:
//! the mistake preserves the bug. `tests/corpus.rs` checks that each history fails with its mistake
//! and passes without it. A history that no longer fails with it is useless, and must be replaced.
//! `dev/corpus` writes the file.

use crate::bad_case::BadCase;
use crate::case::Case;

const SAVED: &str = include_str!("../corpus.jsonl");

/// The saved histories of a workload, each with its name.
///
/// # Errors
///
/// [`BadCase::NoCase`] if the file is invalid.
pub fn of(workload: &str) -> Result<Vec<(String, Case)>, BadCase> {
    let mut all = all()?;
    all.retain(|(_, case)| case.workload == workload);
    Ok(all)
}

/// All saved histories, each with its name.
///
/// # Errors
///
/// [`BadCase::NoCase`] if the file is invalid.
pub fn all() -> Result<Vec<(String, Case)>, BadCase> {
    let read = |(number, line): (usize, &str)| {
        let case = Case::from_json(line);
        case.map(|case| (case.name(), case))
            .map_err(|error| BadCase::NoCase(format!("corpus.jsonl:{}: {error}", number + 1)))
    };
    SAVED.lines().enumerate().map(read).collect()
}
