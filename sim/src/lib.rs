//! The simulator: the worst day of a program that coordinates, replayable from one number.
//!
//! A [`Sim`] runs processes, each an async function with an ordinary
//! [`Client`](synod_core::client::Client), on a simulated store: on one thread, in virtual time, with
//! everything that can go wrong going wrong by a seed. What it finds, it finds again from the same
//! seed.
//!
//! ```
//! use synod_core::store::{Expect, Lifetime, Outcome};
//! use synod_core::path::Path;
//! use synod_sim::{Personality, Process, Sim};
//!
//! async fn add_one(me: Process) {
//!     let Ok(client) = me.client().await else { return };
//!     let path = Path::new("/counter").expect("valid");
//!     let _there = client.create(&path, "0", Lifetime::Persistent).await;
//!     let Ok(Some(node)) = client.get(&path).await else { return };
//!     let version = node.stat.expect("it was read with its data").version;
//!     let set = client.set(&path, "1", Expect::Version(version)).await;
//!     me.sometimes("a set lost its race", matches!(set, Ok(Outcome::Rejected(_))));
//! }
//!
//! let report = Sim::new(7).personality(Personality::Zk).processes(3, add_one).run();
//! assert!(report.violation.is_none(), "{report}");
//! ```
//!
//! # What there is
//!
//! | | |
//! |---|---|
//! | [`Sim`] | one history: who takes part, what goes wrong, what must be true; [`Sim::run`] |
//! | [`Process`] | what a process's function is given: a client, choices, and what it has to say |
//! | [`Report`] | what came of it: the [`Violation`], what [`Fired`], the [`Line`]s, a hash, the marks |
//! | [`Truth`] | what really happened, for whoever checks the end |
//! | [`Ledger`] | what each write was told, held against what the store did: L-OUT-1 to L-OUT-3 |
//! | [`Hunt`] | many seeds of one world, on all processors; [`Found`] what they brought |
//! | [`Failure`] | the first that failed: shrunk, told, and as a [`Diagram`] of lanes |
//! | [`Case`] | what it takes to repeat a history; [`corpus`] those that are kept |
//! | [`sweep`] | every place to crash at, every await to be dropped at, every way through a small world |
//! | [`workload`] | the workloads that come with it, each with the laws that it checks |
//!
//! # How it is judged
//!
//! A history has three phases. In the *safety* phase everything goes wrong that is to go wrong. Then
//! everything is mended; or everything but a part of the world, and the rest is frozen for ever:
//! whoever is left must come to his end. Last, the end is looked at.

mod case;
pub mod corpus;
mod findings;
mod hunt;
pub mod known;
mod lanes;
mod ledger;
mod process;
mod report;
mod room;
mod run;
mod setup;
mod shrink;
mod sight;
mod slip;
mod story;
pub mod sweep;
mod watched;
pub mod workload;

pub use case::{BadCase, Case, Shrunk};
pub use findings::{Truth, Violation};
pub use hunt::{Found, Hunt, Tally};
pub use lanes::{Cell, Diagram};
pub use ledger::{Ledger, Told};
pub use process::{During, Process};
pub use report::Report;
pub use setup::{Mending, Sim, Way};
pub use shrink::Smaller;
pub use slip::Slip;
pub use story::Failure;
pub use synod_core::clock::{sleep, timeout};
pub use synod_core::task::{Task, spawn};
pub use synod_mem::cluster::{
    By, Death, Entry, Fault, Fired, Flaw, Line, Personality, Rates, Site, UnknownPersonality, What,
};
