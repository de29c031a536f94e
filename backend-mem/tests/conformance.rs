//! The laws of stores, kept by memory.

use std::process::ExitCode;

use synod_conformance::run::Suite;

use crate::memory::Memory;

mod memory;

fn main() -> ExitCode {
    Suite::new(|| Memory::behind(|memory| memory)).on_paused_time().main()
}
