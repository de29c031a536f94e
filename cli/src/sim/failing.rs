//! Shows and saves a history that failed, and explains a case that cannot be run.

use std::io::IsTerminal as _;
use std::path::Path;

use serde_json::json;
use synod::sim::{BadCase, Case, Failure as Broken};

use crate::args::Common;
use crate::args::sim::Shown;
use crate::failure::Failure;
use crate::output;

/// Reports a history that failed.
pub(super) fn print_failure(
    common: &Common,
    failure: &Broken,
    shown: &Shown,
) -> Result<(), Failure> {
    if let Some(file) = &shown.html {
        let title = format!("{} is broken", failure.violation.law);
        std::fs::write(file, failure.diagram().html(&title, &failure.summary()))?;
    }
    if common.json {
        let case = serde_json::from_str::<serde_json::Value>(&failure.smaller.case.to_json());
        return Ok(output::object(&json!({
            "law": failure.violation.law,
            "what": failure.violation.what,
            "again": failure.again,
            "case": case.unwrap_or_default(),
        }))?);
    }
    Ok(output::line(&format!("{failure:>width$}", width = width()))?)
}

/// The width of a line.
pub(super) fn width() -> usize {
    /// The width of a line for output to a file.
    const PAGE: usize = 130;
    if !std::io::stdout().is_terminal() {
        return PAGE;
    }
    terminal_size::terminal_size().map_or(PAGE, |(width, _)| usize::from(width.0).max(80))
}

/// Writes a case to its own file.
pub(super) fn keep(case: &Case, dir: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(dir)?;
    let file = dir.join(format!("{}.json", case.name()));
    std::fs::write(&file, case.to_json())?;
    Ok(output::line(&format!("kept in {}", file.display()))?)
}

pub(super) fn bad(case: BadCase) -> Failure {
    match case {
        BadCase::Honest => Failure::plain(mutants_are_missing()),
        other => Failure::plain(other.to_string()),
    }
}

/// The error if known mistakes are not compiled in.
pub(super) fn mutants_are_missing() -> String {
    "this synod was built without known mistakes, as one that is to be relied on should be; in a copy \
     of the source: cargo run --release -p synod-cli --features mutants -- sim mutants"
        .to_owned()
}
