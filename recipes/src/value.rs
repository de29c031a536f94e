//! Values that all clients of a path read and change: numbers, values of any type, unique ids, and
//! values with a local copy in each client.

pub use crate::atomic_value::AtomicValue;
pub use crate::cell::change::{Cost, Update};
pub use crate::cell::copy::{CopyState, LocalCopy};
pub use crate::cell::promotion::Promotion;
pub use crate::counter::{Counter, Number};
pub use crate::ids::Ids;
pub use crate::shared_count::SharedCount;
pub use crate::shared_value::SharedValue;
