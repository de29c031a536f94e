//! [`CrewSwitch`]: whether a crew is paused, as its node holds it.

use serde::{Deserialize, Serialize};

/// The content of the node that every assignment checks. It is there from the first term of a master on: a check that a
/// node is absent would be dearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CrewSwitch {
    /// Whether nothing is assigned.
    pub(super) paused: bool,
}
