//! Presence of programs that are alive: nodes that exist as long as their owner keeps them, and the
//! members of a group.

pub use crate::group::member::{GroupChange, Member};
pub use crate::group::{Group, Membership};
pub use crate::keeper::state::Presence;
pub use crate::persistent_node::{KeptNode, PersistentNode};
