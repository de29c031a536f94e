//! The recipes: what applications use, one recipe a module.
//!
//! Each is made of a [`Client`](synod_core::client::Client) and a path, costs nothing until it is used, and means the
//! same on every store. Whoever names the same path shares it, in whatever process.
//!
//! | recipe | what it gives |
//! |---|---|
//! | [`Mutex`] | one at a time, in order |
//! | [`RwLock`] | many readers or one writer, in order |
//! | [`Semaphore`] | so many at a time, in order |
//! | [`LeaderLatch`] | stands for election until it leaves, and knows whether it leads |
//! | [`LeaderSelector`] | does something while it leads |
//! | [`Election`] | leaders with something to say, those who listen, and heirs |
//! | [`ReentrantMutex`] | one at a time, who may enter again |
//! | [`PassingMutex`] | one at a time, passed on within a process without asking the store |
//! | [`UnfairLock`] | one at a time, in no order |
//! | [`MultiLock`] | several at once, all or none |
//! | [`ask_back()`] | asking for what somebody has |
//! | [`inspect()`] | who holds and who waits |
//!
//! What waits does so for as long as it takes; [`within`] gives it a limit.
//!
//! Every guard keeps [`Held`], but for two. A [`MultiGuard`] has several paths, each with a token of its own: each of
//! its [`holds`](MultiGuard::holds) keeps the trait. A [`Leadership`] is a [`Hold`] behind an `Arc`: `&*leadership`
//! keeps the trait, and the candidacy or the work that it belongs to gives it back.
//!
//! They are made of what `synod-core` offers to everybody, so that other crates can add recipes that cost as little.
//!
//! # What can be measured
//!
//! Every wait is a `tracing` span at the level of debug, with the recipe and the path, and in the end with how long
//! it was (`waited`) and how many calls to the store it took (`calls`); every hold is one, too, with the ticket and the token,
//! and in the end with how long it was (`held`). `path` is the one that the recipe was made with, `ticket` the node that
//! stands for it there. A latch logs in a span with its label, within the span of who joined. With the feature `metrics`
//! there are histograms beside those of [`trace`](synod_core::layer::trace), each with the recipe as its label:
//!
//! | metric | what |
//! |---|---|
//! | `synod_wait_seconds` | from when it was asked for to when it was got |
//! | `synod_wait_calls` | how many calls to the store that took |
//! | `synod_hold_seconds` | from then on to when it was given back, or lost and dropped |

mod ask_back;
mod election;
mod inspect;
mod leader_latch;
mod leader_selector;
mod line;
mod multi_lock;
mod mutex;
mod passing_mutex;
mod reentrant_mutex;
mod rwlock;
mod semaphore;
mod unfair_lock;

pub use crate::ask_back::ask_back;
pub use crate::election::{Elected, Election, Leader};
pub use crate::inspect::inspect;
pub use crate::leader_latch::{Candidacy, LeaderLatch, LeadershipChange};
pub use crate::leader_selector::{LeaderSelector, Term};
pub use crate::line::contender::Contender;
pub use crate::line::hold::{Hold, Leadership};
pub use crate::line::limit::within;
pub use crate::line::order::Claim;
pub use crate::multi_lock::{MultiGuard, MultiLock};
pub use crate::mutex::{Mutex, MutexGuard, MutexTicket};
pub use crate::passing_mutex::{PassingGuard, PassingMutex};
pub use crate::reentrant_mutex::{Owner, ReentrantGuard, ReentrantMutex};
pub use crate::rwlock::{ReadGuard, Reading, RwLock, WriteGuard, Writing};
pub use crate::semaphore::{Permit, Permits, Semaphore};
pub use crate::unfair_lock::{UnfairGuard, UnfairLock};
pub use synod_core::held::{Held, Token};
