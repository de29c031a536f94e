//! Benchmarks of synod: `dev/bench`, compared with other clients.
//!
//! A racer does a task and reports; docs/benchmarks.md describes the tasks and how to read the
//! results. Absolute times on shared machines mean little; compare the results of one run.

#[cfg(feature = "servers")]
pub mod bare;
#[cfg(feature = "servers")]
pub mod contest;
pub mod crowd;
#[cfg(feature = "machine")]
pub mod machine;
pub mod noise;
pub mod ours;
pub mod plan;
pub mod plot;
#[cfg(feature = "servers")]
pub mod process;
pub mod race;
pub mod racer;
pub mod record;
pub mod report;
pub mod spread;
#[cfg(feature = "servers")]
pub mod stand;
pub mod summary;
pub mod table;
pub mod task;
