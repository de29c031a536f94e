//! [`Counter`]: a number that all clients of the same path change.

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::Node;

use crate::cell::Cell;
use crate::cell::promotion::{Enter, Promotion};
use crate::cell::update::{Cost, Update};
use crate::counter::number::Layout;
use crate::line::Line;
use crate::line::form::Form;
use crate::mutant::mistake;

mod number;

pub use number::Number;

#[cfg_attr(not(doctest), doc = include_str!("../docs/counter.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/values.md"))]
#[derive(Clone)]
pub struct Counter<N = i64> {
    cell: Cell,
    number: PhantomData<fn() -> N>,
}

impl Counter {
    /// The counter at `path`, of 64 bits with a sign.
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        Self::at(client, path.into())
    }
}

impl Counter<u64> {
    /// The counter at `path`, of 64 bits without a sign.
    pub fn of_u64(client: &Client, path: impl Into<Path>) -> Self {
        Self::at(client, path.into())
    }
}

impl Counter<i32> {
    /// The counter at `path`, of 32 bits with a sign.
    pub fn of_i32(client: &Client, path: impl Into<Path>) -> Self {
        Self::at(client, path.into())
    }
}

impl<N: Number> Counter<N> {
    fn at(client: &Client, path: Path) -> Self {
        Self { cell: Cell::new(client, path, "counter"), number: PhantomData }
    }

    /// The same number, whose changes go on [under a lock](Promotion) when they have lost too often. Clones that were made before are not
    /// promoted, and share no requests with this one.
    pub fn promote(self, promotion: Promotion) -> Self {
        let enter: Enter =
            |client, lock| Line::new(client, lock, Form::alone("counter", "lock-")).held();
        Self { cell: self.cell.promoting(promotion, enter), ..self }
    }

    /// The number now.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if what is stored is no number, and as every verb of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn get(&self) -> Result<N> {
        let node: Option<Node> = self.cell.read().await?;
        number(self.cell.path(), node.as_ref().map(|node| &node.data))
    }

    /// Adds to the number.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the sum does not fit, [`ErrorKind::Corrupt`] if what is stored is no number,
    /// [`ErrorKind::Refused`] if the path is a directory, and as every verb of a [`Client`].
    /// [`Effect::None`](synod_core::error::Effect::None) means that nothing was added, and never will be.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has added or has not. A request that was sent is driven to its end.
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

    /// Replaces what is stored, whatever it is. Returns what it took.
    ///
    /// # Errors
    ///
    /// As [`Counter::add`], but for [`ErrorKind::Invalid`] and [`ErrorKind::Corrupt`].
    ///
    /// # Cancel safety
    ///
    /// As [`Counter::add`].
    pub async fn set(&self, number: N) -> Result<Cost> {
        let decided = self.cell.change(move |_before| Ok(Some(number.write()))).await?;
        Ok(decided.cost)
    }

    /// Replaces `expected` by `number`. If the number is another one, it returns that, and changes nothing.
    ///
    /// # Errors
    ///
    /// As [`Counter::add`], but for [`ErrorKind::Invalid`].
    ///
    /// # Cancel safety
    ///
    /// As [`Counter::add`].
    pub async fn compare_and_set(&self, expected: N, number: N) -> Result<Result<Update<N>, N>> {
        let path = self.cell.path().clone();
        let compare = move |bytes: Option<&Bytes>| {
            Ok((self::number::<N>(&path, bytes)? == expected).then(|| number.write()))
        };
        let decided = self.cell.change(compare).await?;
        if decided.written {
            return Ok(Ok(Update::new(expected, number, decided.cost)));
        }
        self::number(self.cell.path(), decided.after.as_ref()).map(Err)
    }

    /// Stores the number if nothing is stored yet, and returns whether this call did.
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
        Ok(self.cell.change(store).await?.written)
    }

    async fn calculate(&self, next: impl Fn(N) -> Option<N> + Send + 'static) -> Result<Update<N>> {
        let path = self.cell.path().clone();
        let decided = self.cell.change(move |bytes| {
            let after = next(number(&path, bytes)?).ok_or_else(|| {
                Error::new(ErrorKind::Invalid, "counting").at(&path).because("the sum does not fit")
            })?;
            Ok(Some(after.write()))
        });
        let decided = decided.await?;
        let read = |bytes: &Option<Bytes>| number(self.cell.path(), bytes.as_ref());
        Ok(Update::new(read(&decided.before)?, read(&decided.after)?, decided.cost))
    }
}

impl<N> fmt::Debug for Counter<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter").field("cell", &self.cell).finish_non_exhaustive()
    }
}

/// The number that a node holds; 0 if there is no node.
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
