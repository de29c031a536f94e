//! The `synod` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    synod_cli::main()
}
