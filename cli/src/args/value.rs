//! The arguments of `counter`, `barrier` and `semaphore`.

use std::time::Duration;

use clap::Subcommand;

use crate::time::time;

/// The actions on a number.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum CounterAction {
    /// Print it; 0 if it was never changed
    Get,
    /// Add to it, exactly once, and print the sum
    Add {
        /// Amount to add; negative to subtract
        #[arg(allow_negative_numbers = true)]
        number: i64,
    },
    /// Replace it, whatever it is, and print it
    Set {
        /// The new number
        #[arg(allow_negative_numbers = true)]
        number: i64,
    },
}

/// The actions on a barrier.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum BarrierAction {
    /// Set the barrier: programs that wait for it are blocked from now on
    Set,
    /// End all waits
    Lift,
    /// Wait until it is not set
    Wait {
        /// Give up with exit code 75 if it is still set after this time, like 30s; a plain number
        /// is seconds
        #[arg(long, short = 'w', value_name = "TIME", value_parser = time)]
        timeout: Option<Duration>,
    },
}

/// The actions on a semaphore.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum SemaphoreAction {
    /// Print the number; 0 if it was never set
    Get,
    /// Set the number; all holders keep their permits
    Set {
        /// The new number; with 0 nobody gets a permit
        permits: u32,
    },
}
