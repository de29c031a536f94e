//! `completions` and `man`: what a shell and a manual know of this command.

use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Cli;
use crate::failure::Failure;
use crate::output;

/// Prints the script that completes this build's commands and options.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "synod", &mut script);
    Ok(output::bytes(&script)?)
}

/// Prints the page of the command, or writes it and those of its commands into a directory.
pub(crate) fn manual(into: Option<&Path>) -> Result<(), Failure> {
    if let Some(directory) = into {
        return Ok(clap_mangen::generate_to(Cli::command(), directory)?);
    }
    let mut page = Vec::new();
    Man::new(Cli::command()).render(&mut page)?;
    Ok(output::bytes(&page)?)
}
