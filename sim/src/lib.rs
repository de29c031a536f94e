//! The simulator: tests a program that coordinates under faults, replayable from one number.
//!
//! A [`Sim`] runs processes, each an async function with an ordinary
//! [`Client`](synod_core::client::Client), on a simulated store: on one thread, in virtual time,
//! with faults chosen by a seed. A failure is found again from the same seed.
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
//! # Contents
//!
//! | | |
//! |---|---|
//! | [`Sim`] | one history: its processes, its faults and its checks; [`Sim::run`] |
//! | [`Process`] | the argument of a process's function: a client, choices, and ways to report |
//! | [`Report`] | the [`Violation`], the faults ([`Fired`]), the [`Line`]s, a hash, the marks |
//! | [`Truth`] | the true history, for the checks at the end |
//! | [`Ledger`] | compares the results of writes with the store's history: L-OUT-1 to L-OUT-3 |
//! | [`Hunt`] | many seeds of one world, on all processors; its result is [`Found`] |
//! | [`Failure`] | the first history that failed: reduced, explained, as a [`Diagram`] |
//! | [`Case`] | everything needed to repeat a history; [`corpus`] has the saved ones |
//! | [`sweep`] | in a small world: each place for a crash, each await, each set of faults |
//! | [`workload`] | the workloads that come with it, each with the laws that it checks |
//!
//! # Phases
//!
//! A history has three phases. In the *safety* phase the faults happen. Then everything is
//! repaired; or a part of the world is repaired and the rest is frozen for ever. The remaining
//! processes must end. At last the final state is checked.

mod bad_case;
mod case;
pub mod cluster;
pub mod corpus;
mod diagram;
mod failure;
mod findings;
mod hunt;
pub mod known;
mod ledger;
mod observations;
mod process;
mod progress;
mod recorder;
mod report;
mod run;
mod scheduler;
mod setup;
mod shrink;
pub mod sweep;
mod user_mistake;
pub mod workload;

pub use bad_case::BadCase;
pub use case::{Case, Shrunk};
pub use cluster::{
    By, Death, Entry, Fault, Fired, Flaw, Line, Personality, Rates, Site, UnknownPersonality, What,
};
pub use diagram::{Cell, Diagram};
pub use failure::Failure;
pub use findings::{Truth, Violation};
pub use hunt::{Found, Hunt, Tally};
pub use ledger::{Ledger, Told};
pub use process::{During, Process};
pub use report::Report;
pub use setup::{Mending, Sim, Way};
pub use shrink::Smaller;
pub use synod_core::clock::{sleep, timeout};
pub use synod_core::task::{Task, spawn};
pub use user_mistake::UserMistake;
