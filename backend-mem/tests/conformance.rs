//! The laws of stores, kept by memory.

use std::process::ExitCode;

use synod_conformance::run::Suite;

use synod_mem::MemBackend;

use crate::memory::Memory;

mod memory;

fn main() -> ExitCode {
    let usual = Suite::new(|| Memory::behind(|memory| memory)).on_paused_time();
    let minimal =
        Suite::new(|| Memory::of(MemBackend::minimal(), |memory| memory)).on_paused_time();
    Suite::main_of(vec![("", usual), ("minimal", minimal)])
}
