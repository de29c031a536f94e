//! [`WaitingTask`]: a task that waits, as a policy sees it.

use std::collections::BTreeMap;

/// A task that waits for a worker: what its submitter has asked for.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WaitingTask<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its priority.
    pub priority: i32,
    /// The properties that its worker must have.
    pub needs: &'a BTreeMap<String, String>,
    /// The properties that its worker should have.
    pub prefers: &'a BTreeMap<String, String>,
}
