//! The contract of stores on memory: on one thread and virtual time, and on several threads in real
//! time.

use std::process::ExitCode;
use std::time::Duration;

use synod_conformance::harness::Profile;
use synod_conformance::run::Suite;

use synod_mem::MemBackend;

use crate::memory::{Memory, unhurried};

mod memory;

/// More than the machine may have processors, so that threads are preempted at any point.
const WORKERS: usize = 4;

/// In real time the cases wait more than they work.
const CONCURRENT_CASES: usize = 32;

fn main() -> ExitCode {
    let usual = || Memory::behind(unhurried(), |memory| memory);
    let minimal = || Memory::of(MemBackend::minimal(), unhurried(), |memory| memory);
    let real = Profile::new(Duration::from_secs(1), Duration::from_secs(20)).crowd(3_000);
    let on_workers = move || Memory::behind(real.clone(), |memory| memory);
    Suite::main_of(vec![
        ("", Suite::new(usual).on_paused_time()),
        ("minimal", Suite::new(minimal).on_paused_time()),
        ("workers", Suite::new(on_workers).on_workers(WORKERS).at_once(CONCURRENT_CASES)),
    ])
}
