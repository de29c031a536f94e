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
//! | [`leader_latch`] | stands for election until it leaves, and knows whether it leads |
//! | [`leader_selector`] | does something while it leads |
//! | [`election`] | leaders with something to say, those who listen, and heirs |
//! | [`reentrant`] | one at a time, who may enter again |
//! | [`passing`] | one at a time, passed on within a process without asking the store |
//! | [`unfair`] | one at a time, in no order |
//! | [`multi`] | several at once, all or none |
//! | [`revocable`] | asking for what somebody has |
//! | [`inspect`] | who holds and who waits |
//!
//! What waits does so for as long as it takes; [`within`] gives it a limit.
//!
//! # What can be measured
//!
//! Every wait is a `tracing` span at the level of debug, with the recipe and the path, and in the end with how long
//! it was (`waited`) and how many calls to the store it took (`calls`); every hold is one, too, with the ticket and the token,
//! and in the end with how long it was (`held`). `path` is the one that the recipe was made with, `ticket` the node that
//! stands for it there. A latch logs in a span with its label, within the span of who joined. With the feature `metrics`
//! there are histograms beside those of [`trace`](crate::layer::trace), each with the recipe as its label:
//!
//! | metric | what |
//! |---|---|
//! | `synod_wait_seconds` | from when it was asked for to when it was got |
//! | `synod_wait_calls` | how many calls to the store that took |
//! | `synod_hold_seconds` | from then on to when it was given back, or lost and dropped |

pub mod election;
pub mod inspect;
pub mod leader_latch;
pub mod leader_selector;
pub mod multi;
pub mod mutex;
pub mod passing;
pub mod reentrant;
pub mod revocable;
pub mod rwlock;
pub mod semaphore;
pub mod unfair;

pub use crate::line::hold::Hold;
pub use crate::line::limit::within;
pub use crate::line::token::Token;
