//! The arguments that a recipe takes from its caller, each with a use that passes it: [`Takes`].
//! The cases of `conformance/src/every/edge.rs` pass the ends of their ranges.

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_recipes::{Release, within};

/// The arguments of a recipe, by their kind. A function with two kinds of arguments is listed in
/// both.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "each kind must be given: that is what it is for")]
pub struct Takes {
    /// Texts: names, ids, properties.
    pub texts: &'static [Edge<String>],
    /// Bytes that a node stores, alone or with other bytes.
    pub data: &'static [Edge<Bytes>],
    /// Numbers, of any type of integers.
    pub numbers: &'static [Edge<i128>],
    /// Durations.
    pub times: &'static [Edge<Duration>],
    /// Values that serde writes and reads. Some floating-point numbers cannot be read back as they
    /// were.
    pub values: &'static [Edge<f64>],
    /// Functions of the caller.
    pub functions: &'static [Edge<Trap>],
}

/// A function of a recipe that takes an argument.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "each part must be given: that is what it is for")]
pub struct Edge<T> {
    /// The name of the function.
    pub of: &'static str,
    /// `true` if nothing is written before the argument is passed, so that a rejection leaves the
    /// store unchanged.
    pub first: bool,
    /// Passes an argument and completes the use of it. `Invalid` and `TooLarge` mean that the
    /// argument was rejected; after the argument was accepted each error is of another kind.
    pub pass: Pass<T>,
}

/// A use of a recipe with an argument.
pub type Pass<T> = fn(Client, Path, T) -> BoxFuture<'static, Result<()>>;

/// A panic, once, in a function of a caller.
#[derive(Clone, Debug)]
pub struct Trap(Arc<AtomicBool>);

impl Takes {
    /// No arguments.
    pub const NONE: Self =
        Self { texts: &[], data: &[], numbers: &[], times: &[], values: &[], functions: &[] };
}

impl Trap {
    /// Creates a panic for the first call.
    pub fn armed() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    /// Creates one that never panics.
    pub fn disarmed() -> Self {
        Self(Arc::default())
    }

    /// Panics if it is armed, and disarms it. Prints nothing.
    pub(crate) fn spring(&self) {
        if self.0.swap(false, Ordering::Relaxed) {
            resume_unwind(Box::new("a panic of the caller's code"));
        }
    }
}

/// Creates a function that writes nothing before its argument is passed.
pub(crate) const fn first<T>(of: &'static str, pass: Pass<T>) -> Edge<T> {
    Edge { of, first: true, pass }
}

/// Creates a function whose use writes before its argument is passed, even if only its write id.
pub(crate) const fn later<T>(of: &'static str, pass: Pass<T>) -> Edge<T> {
    Edge { of, first: false, pass }
}

/// Converts the number to an argument. Numbers outside its type are rejected, as by the compiler.
pub(crate) fn to<N: TryFrom<i128>>(number: i128) -> Result<N> {
    N::try_from(number).map_err(|_wide| Error::new(ErrorKind::Invalid, "passing a number"))
}

/// [`to`] for an argument that is never zero.
pub(crate) fn positive(number: i128) -> Result<NonZeroU32> {
    NonZeroU32::new(to(number)?).ok_or_else(|| Error::new(ErrorKind::Invalid, "passing a zero"))
}

/// Returns a text of this number of bytes.
pub(crate) fn text(data: &Bytes) -> String {
    "x".repeat(data.len())
}

/// Runs a step after an argument was accepted. A rejection is too late here.
pub(crate) async fn accepted<T>(following: impl Future<Output = Result<T>>) -> Result<T> {
    following.await.map_err(|error| match error.kind() {
        ErrorKind::Invalid | ErrorKind::TooLarge => {
            Error::new(ErrorKind::Backend, "using what was accepted").caused_by(error)
        }
        _ => error,
    })
}

/// The guard is granted, and released.
pub(crate) async fn grant_and_release<G: Release>(
    taking: impl Future<Output = Result<G>>,
) -> Result<()> {
    let guard = taking.await?;
    accepted(guard.release()).await
}

/// Waits for a result with a time limit.
pub(crate) async fn within_a_while<T>(
    waiting: impl Future<Output = Result<T>>,
) -> Result<Option<T>> {
    const WHILE: Duration = Duration::from_millis(50);
    within(WHILE, waiting).await
}

/// Waits for a call whose function may panic. Its result is ignored.
pub(crate) async fn ignore_panic<T>(calling: impl Future<Output = T>) -> Option<T> {
    AssertUnwindSafe(calling).catch_unwind().await.ok()
}

/// Fails if an accepted argument is not stored as it was passed.
pub(crate) fn check(holds: bool, what: &'static str, path: &Path) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::new(ErrorKind::Backend, what).at(path)) }
}
