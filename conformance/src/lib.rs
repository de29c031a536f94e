//! The laws of synod as cases that run on any backend.
//!
//! A case is one sentence about stores, or about the client on top of one. The tests of a backend
//! are a [`Harness`](harness::Harness) and one call, in `tests/conformance.rs` with `harness =
//! false`:
//!
//! ```no_run
//! # // Needs the arguments of a test run.
//! # use synod_core::{error::Result, store::{SessionOptions, Store}};
//! # #[derive(Clone, Debug, Default)] struct MyBackend;
//! # impl MyBackend { fn expire(&self, _: SessionId) {} }
//! # #[async_trait] impl Backend for MyBackend {
//! #     async fn open(&self, _: &SessionOptions) -> Result<Box<dyn Store>> { unreachable!() }
//! # }
//! use std::process::ExitCode;
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use async_trait::async_trait;
//! use synod_conformance::harness::{Ability, Harness, Profile};
//! use synod_conformance::run::Suite;
//! use synod_core::store::{Backend, SessionId};
//!
//! #[derive(Debug, Default)]
//! struct Mine(MyBackend);
//!
//! #[async_trait]
//! impl Harness for Mine {
//!     fn backend(&self) -> Arc<dyn Backend> {
//!         Arc::new(self.0.clone())
//!     }
//!
//!     fn profile(&self) -> Profile {
//!         Profile::new(Duration::from_secs(10), Duration::from_secs(60))
//!             .offers(&[Ability::Expiry])
//!             .lacks(Ability::TtlNodes, "nodes live until they are deleted")
//!     }
//!
//!     async fn expire(&self, session: SessionId) {
//!         self.0.expire(session);
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     Suite::new(Mine::default).on_paused_time().main()
//! }
//! ```
//!
//! A case that a harness cannot run is ignored, with the reason in the list, and never counted as
//! passed. [`law::UNCHECKED`] lists the laws that no case checks yet, each with the reason.
//!
//! [`wrong`] has stores that make one mistake each, to prove that the cases notice it; the mistakes
//! of the client and of the recipes are in `synod_core::mutant`.
//!
//! Start reading with [`harness`], then any file of `src/store`, then any of `src/door`, of
//! `src/every` and of `src/recipe`.

// The unit tests are built without the cases, which are most of the crate, and `tests/list.rs` is
// about these.
#![cfg_attr(test, expect(dead_code, unused_macros, reason = "the cases are what uses it"))]

#[macro_use]
pub mod case;
pub mod differential;
pub mod harness;
pub mod run;
pub mod workers;
pub mod wrong;

pub use synod_testkit::law;

mod actor;
#[cfg(not(test))]
mod cases;
#[cfg(not(test))]
mod door;
#[cfg(not(test))]
mod every;
#[cfg(test)]
mod no_cases;
mod panics;
#[cfg(not(test))]
mod recipe;
#[cfg(not(test))]
mod store;
mod world;

#[cfg(test)]
use no_cases as cases;

pub use case::Case;
#[cfg(not(test))]
pub use cases::cases;
