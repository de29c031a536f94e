//! [`Counter`]: a number that all clients of the same path change.

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::Node;

use crate::cell::SingleValue;
use crate::cell::change::{Cost, Update};
use crate::cell::promotion::{Enter, Promotion};
use crate::counter::number::Layout;
use crate::line::{Form, Line};
use crate::mutant::mistake;

mod number;

pub use number::Number;

#[cfg_attr(not(doctest), doc = include_str!("../docs/counter.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/values.md"))]
#[derive(Clone)]
pub struct Counter<N = i64> {
    value: SingleValue,
    number: PhantomData<fn() -> N>,
}

impl Counter {
    /// Creates the counter at `path`, a signed number of 64 bits.
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        Self::at(client, path.into())
    }
}

impl Counter<u64> {
    /// Creates the counter at `path`, an unsigned number of 64 bits.
    pub fn new_u64(client: &Client, path: impl Into<Path>) -> Self {
        Self::at(client, path.into())
    }
}

impl Counter<i32> {
    /// Creates the counter at `path`, a signed number of 32 bits.
    pub fn new_i32(client: &Client, path: impl Into<Path>) -> Self {
        Self::at(client, path.into())
    }
}

impl<N: Number> Counter<N> {
    fn at(client: &Client, path: Path) -> Self {
        Self { value: SingleValue::new(client, path, "counter"), number: PhantomData }
    }

    /// Returns a handle of the same number whose changes [take a lock](Promotion) after too many
    /// lost races. Existing clones are not promoted, and do not share requests with the new handle.
    pub fn promote(self, promotion: Promotion) -> Self {
        let enter: Enter =
            |client, lock| Line::new(client, lock, Form::exclusive("counter", "lock-")).held();
        Self { value: self.value.promoting(promotion, enter), ..self }
    }

    /// Reads the number.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the stored data is not a number, and the errors that are common to
    /// all calls: see [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn get(&self) -> Result<N> {
        let node: Option<Node> = self.value.read().await?;
        number(self.value.path(), node.as_ref().map(|node| &node.data))
    }

    /// Adds to the number.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the sum does not fit, [`ErrorKind::Corrupt`] if the stored data is
    /// no number, [`ErrorKind::Refused`] if the path is a directory, and the errors that are common
    /// to all calls: see [`Client`]. [`Effect::None`](synod_core::error::Effect::None) means that
    /// nothing was added and nothing will be.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not have added. A request that was sent is completed in the
    /// background.
    pub async fn add(&self, other: N) -> Result<Update<N>> {
        self.calculate(move |number| {
            let sum = number.plus(other);
            mistake!(SumWraps: let sum = Some(number.wrapped(other)));
            sum
        })
        .await
    }

    /// Subtracts from the number.
    ///
    /// # Errors
    ///
    /// As [`Counter::add`].
    ///
    /// # Cancel safety
    ///
    /// As [`Counter::add`].
    pub async fn subtract(&self, other: N) -> Result<Update<N>> {
        self.calculate(move |number| number.minus(other)).await
    }

    /// Adds 1.
    ///
    /// # Errors
    ///
    /// As [`Counter::add`].
    ///
    /// # Cancel safety
    ///
    /// As [`Counter::add`].
    pub async fn increment(&self) -> Result<Update<N>> {
        self.add(N::ONE).await
    }

    /// Subtracts 1.
    ///
    /// # Errors
    ///
    /// As [`Counter::add`].
    ///
    /// # Cancel safety
    ///
    /// As [`Counter::add`].
    pub async fn decrement(&self) -> Result<Update<N>> {
        self.subtract(N::ONE).await
    }

    /// Replaces the stored data unconditionally. Returns the cost of the change.
    ///
    /// # Errors
    ///
    /// As [`Counter::add`], except [`ErrorKind::Invalid`] and [`ErrorKind::Corrupt`].
    ///
    /// # Cancel safety
    ///
    /// As [`Counter::add`].
    pub async fn set(&self, number: N) -> Result<Cost> {
        let decided = self.value.change(move |_before| Ok(Some(number.write()))).await?;
        Ok(decided.cost)
    }

    /// Replaces `expected` by `number`. If there is another number, it is returned, and nothing is
    /// changed.
    ///
    /// # Errors
    ///
    /// As [`Counter::add`], except [`ErrorKind::Invalid`].
    ///
    /// # Cancel safety
    ///
    /// As [`Counter::add`].
    pub async fn compare_and_set(&self, expected: N, number: N) -> Result<Result<Update<N>, N>> {
        let path = self.value.path().clone();
        let compare = move |bytes: Option<&Bytes>| {
            Ok((self::number::<N>(&path, bytes)? == expected).then(|| number.write()))
        };
        let decided = self.value.change(compare).await?;
        if decided.written {
            return Ok(Ok(Update::new(expected, number, decided.cost)));
        }
        self::number(self.value.path(), decided.after.as_ref()).map(Err)
    }

    /// Stores the number if there is none yet. Returns `true` if this call has stored it.
    ///
    /// # Errors
    ///
    /// As [`Counter::set`].
    ///
    /// # Cancel safety
    ///
    /// As [`Counter::add`].
    pub async fn initialize(&self, number: N) -> Result<bool> {
        let store = move |before: Option<&Bytes>| Ok(before.is_none().then(|| number.write()));
        Ok(self.value.change(store).await?.written)
    }

    async fn calculate(&self, next: impl Fn(N) -> Option<N> + Send + 'static) -> Result<Update<N>> {
        let path = self.value.path().clone();
        let decided = self.value.change(move |bytes| {
            let after = next(number(&path, bytes)?).ok_or_else(|| {
                Error::new(ErrorKind::Invalid, "counting").at(&path).because("the sum does not fit")
            })?;
            Ok(Some(after.write()))
        });
        let decided = decided.await?;
        let read = |bytes: &Option<Bytes>| number(self.value.path(), bytes.as_ref());
        Ok(Update::new(read(&decided.before)?, read(&decided.after)?, decided.cost))
    }
}

impl<N> fmt::Debug for Counter<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter").field("path", self.value.path()).finish_non_exhaustive()
    }
}

/// Returns the number in the data of a node; 0 if there is no node.
fn number<N: Layout>(path: &Path, bytes: Option<&Bytes>) -> Result<N> {
    let Some(bytes) = bytes else { return Ok(N::default()) };
    let number = N::read(bytes);
    mistake!(CorruptIsZero: let number = number.or_else(|| Some(N::default())));
    number.ok_or_else(|| {
        let (found, size) = (bytes.len(), size_of::<N>());
        Error::new(ErrorKind::Corrupt, "reading a number")
            .at(path)
            .because(format!("{found} bytes are stored, and the number has {size}"))
    })
}
