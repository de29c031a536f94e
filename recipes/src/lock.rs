//! Locks and permits: mutexes, a read-write lock, a semaphore, a lease. [`inspect()`] lists the
//! holders and waiters of a lock or an election, and [`request_release()`] requests that a holder
//! releases.

pub use crate::cohort_mutex::{CohortGuard, CohortMutex};
pub use crate::inspect::{inspect, is_ticket};
pub use crate::lease::{Lease, LeaseTerm};
pub use crate::line::hold::MutexGuard;
pub use crate::line::order::Contender;
pub use crate::line::ticket_name::Claim;
pub use crate::multi_lock::{MultiGuard, MultiLock};
pub use crate::mutex::{Mutex, MutexTicket};
pub use crate::reentrant_mutex::{Owner, ReentrantGuard, ReentrantMutex};
pub use crate::request_release::request_release;
pub use crate::rwlock::{ReadGuard, RwLock, WriteGuard};
pub use crate::semaphore::{Permit, Semaphore};
pub use crate::unfair_lock::{UnfairGuard, UnfairLock};
