//! The state machine of the store in memory, without tasks and without a clock: for simulators,
//! which pass the time and deliver the answers.

pub use crate::apply::{Effect, Naming};
pub use crate::query::answer;
pub use crate::tree::{Body, Tree};
pub use crate::world::{Habits, SessionOver, World};
