//! The rooms: what applications come for, one recipe a file.
//!
//! Each is made of a [`Client`](crate::client::Client) and a path, costs nothing until it is used, and means the
//! same on every store. Whoever names the same path shares it, in whatever process.
//!
//! | recipe | what it gives |
//! |---|---|
//! | [`mutex`] | one at a time, in order |
//! | [`rwlock`] | many readers or one writer, in order |
//! | [`semaphore`] | so many at a time, in order |
//! | [`inspect`] | who holds and who waits |

pub mod inspect;
pub mod mutex;
pub mod rwlock;
pub mod semaphore;

pub use crate::line::hold::{Hold, Token};
