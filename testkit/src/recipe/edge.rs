//! [`Takes`]: the arguments that a recipe takes from its caller, each with a use that passes it. The cases of
//! `conformance/src/every/edge.rs` pass the ends of their ranges.

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
use synod_recipes::{Held, within};

/// The arguments of a recipe, by their kind. A function of the recipe that takes arguments of two kinds is named in both.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "each kind must be given: that is what it is for")]
pub struct Takes {
    /// Texts: names, ids, properties.
    pub texts: &'static [Edge<String>],
    /// Bytes that a node stores, alone or with others.
    pub data: &'static [Edge<Bytes>],
    /// Numbers, of any type of integers.
    pub numbers: &'static [Edge<i128>],
    /// Durations.
    pub times: &'static [Edge<Duration>],
    /// Values that serde writes and reads. Some numbers with a point are written as what is not read as one again.
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
    /// True if nothing is written before the argument is passed, so that a refusal leaves the store as it was.
    pub first: bool,
    /// Passes an argument and uses what comes of it to its end. `Invalid` and `TooLarge` mean that the argument was
    /// refused; after the argument was accepted each error is of another kind.
    pub pass: Pass<T>,
}

/// A use of a recipe with an argument.
pub type Pass<T> = fn(Client, Path, T) -> BoxFuture<'static, Result<()>>;

/// A panic, once, in a function of a caller.
#[derive(Clone, Debug)]
pub struct Trap(Arc<AtomicBool>);

impl Takes {
    /// No argument at all.
    pub const NONE: Self =
        Self { texts: &[], data: &[], numbers: &[], times: &[], values: &[], functions: &[] };
}

impl Trap {
    /// One that panics when it is sprung for the first time.
    pub fn armed() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    /// One that never panics.
    pub fn disarmed() -> Self {
        Self(Arc::default())
    }

    /// Panics if it is armed, and disarms it. Nothing is printed.
    pub(crate) fn spring(&self) {
        if self.0.swap(false, Ordering::Relaxed) {
            resume_unwind(Box::new("a panic of the caller's code"));
        }
    }
}

/// A function that writes nothing before its argument is passed.
pub(crate) const fn first<T>(of: &'static str, pass: Pass<T>) -> Edge<T> {
    Edge { of, first: true, pass }
}

/// A function whose use writes something before, if only the mark by which its write is recognized.
pub(crate) const fn later<T>(of: &'static str, pass: Pass<T>) -> Edge<T> {
    Edge { of, first: false, pass }
}

/// The number as an argument. Numbers that are none of its type are refused, as the compiler would.
pub(crate) fn to<N: TryFrom<i128>>(number: i128) -> Result<N> {
    N::try_from(number).map_err(|_wide| Error::new(ErrorKind::Invalid, "passing a number"))
}

/// [`to`] for an argument that is never zero.
pub(crate) fn positive(number: i128) -> Result<NonZeroU32> {
    NonZeroU32::new(to(number)?).ok_or_else(|| Error::new(ErrorKind::Invalid, "passing a zero"))
}

/// A text of as many bytes.
pub(crate) fn text(data: &Bytes) -> String {
    "x".repeat(data.len())
}

/// A step that follows once an argument was accepted. A refusal comes too late here.
pub(crate) async fn lives<T>(following: impl Future<Output = Result<T>>) -> Result<T> {
    following.await.map_err(|error| match error.kind() {
        ErrorKind::Invalid | ErrorKind::TooLarge => {
            Error::new(ErrorKind::Backend, "using what was accepted").caused_by(error)
        }
        _ => error,
    })
}

/// The guard is granted, and released.
pub(crate) async fn holds<G: Held>(taking: impl Future<Output = Result<G>>) -> Result<()> {
    let guard = taking.await?;
    lives(guard.release()).await
}

/// The result of what may wait for ever. It is given up after a while.
pub(crate) async fn begins<T>(waiting: impl Future<Output = Result<T>>) -> Result<Option<T>> {
    const WHILE: Duration = Duration::from_millis(50);
    within(WHILE, waiting).await
}

/// Waits for a call whose function may panic. Its result is the caller's affair.
pub(crate) async fn sprung<T>(calling: impl Future<Output = T>) -> Option<T> {
    AssertUnwindSafe(calling).catch_unwind().await.ok()
}

/// An error if something that was accepted is not so afterwards.
pub(crate) fn check(holds: bool, what: &'static str, path: &Path) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::new(ErrorKind::Backend, what).at(path)) }
}
