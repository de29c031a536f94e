//! The arguments of `conformance`.

use clap::Args;

/// The cases to run.
#[derive(Debug, Args)]
pub(crate) struct Conformance {
    /// Only cases with this in their name
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
}
