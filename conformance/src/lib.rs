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
//! Start reading with [`harness`], then any file of `src/store`, then any of `src/door`, of `src/every`
//! and of `src/recipe`.

#[macro_use]
pub mod case;
pub mod differential;
pub mod harness;
pub mod law;
pub mod run;
pub mod workers;
pub mod wrong;

mod actor;
mod cases;
mod door;
mod every;
mod panics;
mod recipe;
mod store;
mod world;

pub use case::Case;
pub use cases::cases;
