//! Benchmarks of synod: `dev/bench`, side by side with what else one could use.
//!
//! A racer does a task and reports; docs/benchmarks.md tells what is done and how to read
//! what comes of it. Times on shared machines are worth little alone; compare what stands in one run.

#[cfg(feature = "servers")]
pub mod bare;
#[cfg(feature = "servers")]
pub mod contest;
#[cfg(feature = "servers")]
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
pub mod table;
pub mod task;
