//! Benchmarks of synod: `cargo bench -p synod-bench`. Everything that is measured is under
//! `benches/`; here is what the races against other clients share.
//!
//! Times on shared machines are worth little alone; compare what stands in one run.

pub mod heard;
pub mod ours;
pub mod race;
pub mod spread;
pub mod table;
