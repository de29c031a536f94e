//! [`PutOptions`]: how an item is put into a queue.

use std::time::Duration;

/// How an item is put into a [`Queue`](crate::Queue).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PutOptions {
    pub(super) id: Option<String>,
    pub(super) priority: Option<u16>,
    pub(super) after: Option<Duration>,
}

impl PutOptions {
    /// The id of the item. While an item of this id is in the queue, another one is not put there. An id has at most 120 bytes, and
    /// three for each byte of a character that a name of a node cannot have, such as `/`.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// The priority of the item, up to 999: one with a lower number is delivered earlier. The usual one is 100.
    pub fn priority(mut self, priority: u16) -> Self {
        self.priority = Some(priority);
        self
    }

    /// The item is not to be delivered before so much time has passed, by the wall clocks of the producer and of the consumer.
    pub fn after(mut self, after: Duration) -> Self {
        self.after = Some(after);
        self
    }
}
