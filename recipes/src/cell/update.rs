//! [`Update`]: what a change did, and its [`Cost`].

use std::time::Duration;

/// A change that was made: the values of type `B` before and `A` after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Update<B, A = B> {
    /// The value before it.
    pub before: B,
    /// The value after it.
    pub after: A,
    /// What it took.
    pub cost: Cost,
}

/// What a change of a value took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cost {
    /// How often a write was tried: 1 if no other client interfered, 0 if nothing had to be written. A write that is sent
    /// again because its answer was lost is one try.
    pub tries: u32,
    /// The time from the call to the answer.
    pub time: Duration,
    /// How many of the tries were made under the lock of a [`Promotion`](crate::Promotion).
    pub promoted_tries: u32,
    /// How much of the time was spent for the lock and under it.
    pub promoted_time: Duration,
}

impl<B, A> Update<B, A> {
    pub(crate) fn new(before: B, after: A, cost: Cost) -> Self {
        Self { before, after, cost }
    }
}
