//! `sim replay`: shows a history again.

use std::fs;

use synod::sim::{Case, Diagram, Failure as Broken};

use crate::args::Common;
use crate::args::sim::{Shown, SimCommand};
use crate::failure::Failure;
use crate::output;
use crate::sim::failing::{bad, keep, print_failure, width};

/// Shows a history: the reduced case if it fails, otherwise a note that it does not fail.
pub(super) fn run(common: &Common, command: &SimCommand) -> Result<(), Failure> {
    let SimCommand::Replay { what, seed, personality, mutant, without, whole, keep: dir, shown } =
        command
    else {
        return Ok(());
    };
    let case = match seed {
        Some(seed) => {
            let mut case = Case::new(what, *personality, *seed);
            case.mutant.clone_from(mutant);
            case.without = without.iter().map(|fault| fault.number()).collect();
            case
        }
        None => file(what)?,
    };
    if *whole {
        return all_of(&case, shown);
    }
    let Some(failure) = Broken::of(&case).map_err(bad)? else {
        let seed = case.seed;
        output::line(&format!(
            "{seed:#x} of {} on {}: nothing broken",
            case.workload, case.personality
        ))?;
        output::line("with --whole it is shown all the same")?;
        return Ok(());
    };
    print_failure(common, &failure, shown)?;
    if let Some(dir) = dir {
        keep(&failure.smaller.case, dir)?;
    }
    Err(Failure::Told)
}

fn file(name: &str) -> Result<Case, Failure> {
    let text = fs::read_to_string(name).map_err(|error| {
        Failure::plain(format!("{name}: {error}; say --seed N for a workload, or name a file"))
    })?;
    Case::from_json(&text).map_err(|error| Failure::plain(format!("{name}: {error}")))
}

/// Everything that happened, whether or not the history failed.
fn all_of(case: &Case, shown: &Shown) -> Result<(), Failure> {
    let report = case.run(true).map_err(bad)?;
    let diagram = Diagram::whole(&report);
    if let Some(file) = &shown.html {
        fs::write(file, diagram.html(&report.to_string(), &report.to_string()))?;
    }
    output::line(&diagram.text(width()))?;
    output::line(&report.to_string())?;
    if report.violation.is_some() { Err(Failure::Told) } else { Ok(()) }
}
