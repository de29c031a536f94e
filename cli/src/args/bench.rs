//! The arguments of `bench`.

use clap::Args;

/// The work to measure.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// All measurements, for some minutes, with up to a thousand clients waiting for one lock
    #[arg(long)]
    pub(crate) full: bool,
    /// Only measurements with this in their name
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
}
