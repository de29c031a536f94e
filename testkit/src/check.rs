//! Checks whether a correct store could have had a [`History`](crate::history::History).

pub mod order;
pub mod registers;

#[cfg(test)]
mod generated;

use crate::history::Call;

/// A contradiction between a history and every correct store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The description.
    pub what: &'static str,
    /// The call that shows it, and the conflicting one, if there is one.
    pub calls: Vec<Call>,
}

impl Violation {
    pub(crate) fn new(what: &'static str, calls: impl IntoIterator<Item = Call>) -> Self {
        Self { what, calls: calls.into_iter().collect() }
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.what)?;
        self.calls.iter().try_for_each(|call| write!(f, "\n  {call}"))
    }
}

impl std::error::Error for Violation {}
