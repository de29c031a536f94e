//! Benchmarks of synod: `cargo bench -p synod-bench`. Everything is under `benches/`.
//!
//! Times on shared machines are worth little alone; compare what stands in one run.
