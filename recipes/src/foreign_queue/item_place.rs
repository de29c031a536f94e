//! [`ItemPlace`]: where in the order of a queue of another library an item is put.

use std::time::Duration;

/// Where in the order of a [`ForeignQueue`](crate::ForeignQueue) an item is put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ItemPlace {
    pub(super) priority: Option<i32>,
    pub(super) after: Option<Duration>,
}

impl ItemPlace {
    /// The priority, where the other library has one: a lower number is taken earlier. Usual are 0 for Curator and 100 for kazoo.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Not to be taken before so much time has passed, by the wall clocks of those that put and take.
    pub fn after(mut self, after: Duration) -> Self {
        self.after = Some(after);
        self
    }
}
