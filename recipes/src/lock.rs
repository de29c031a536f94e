//! Locks and permits: mutexes, a read-write lock, a semaphore. [`inspect()`] lists the holders and
//! waiters of a lock or an election, and [`ask_back()`] requests that a holder releases.

pub use crate::ask_back::ask_back;
pub use crate::inspect::inspect;
pub use crate::line::hold::Hold;
pub use crate::line::order::Contender;
pub use crate::line::ticket_name::Claim;
pub use crate::multi_lock::{MultiGuard, MultiLock};
pub use crate::mutex::{Mutex, MutexGuard, MutexTicket};
pub use crate::passing_mutex::{PassingGuard, PassingMutex};
pub use crate::reentrant_mutex::{Owner, ReentrantGuard, ReentrantMutex};
pub use crate::rwlock::{ReadGuard, Reading, RwLock, WriteGuard, Writing};
pub use crate::semaphore::{Permit, Permits, Semaphore};
pub use crate::unfair_lock::{UnfairGuard, UnfairLock};
