//! [`AtomicValue`]: a value of any type that all clients of the same path change.

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use synod_core::client::Client;
use synod_core::error::{Error, Result};
use synod_core::path::Path;
use synod_core::value::decode;

use crate::cell::Cell;
use crate::cell::json::encode_readable;
use crate::cell::promotion::{Enter, Promotion};
use crate::cell::update::{Cost, Update};
use crate::line::Line;
use crate::line::form::Form;
use crate::mutant::mistake;

#[cfg_attr(not(doctest), doc = include_str!("../docs/atomic_value.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/values.md"))]
pub struct AtomicValue<T> {
    cell: Cell,
    value: PhantomData<fn() -> T>,
}

impl<T> Clone for AtomicValue<T> {
    fn clone(&self) -> Self {
        Self { cell: self.cell.clone(), value: PhantomData }
    }
}

impl<T: Serialize + DeserializeOwned + 'static> AtomicValue<T> {
    /// The value at `path`.
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        Self { cell: Cell::new(client, path.into(), "atomic_value"), value: PhantomData }
    }

    /// The same value, whose changes go on [under a lock](Promotion) when they have lost too often. Clones that were made before are not
    /// promoted, and share no requests with this one.
    pub fn promote(self, promotion: Promotion) -> Self {
        let enter: Enter =
            |client, lock| Line::new(client, lock, Form::alone("atomic_value", "lock-")).held();
        Self { cell: self.cell.promoting(promotion, enter), ..self }
    }

    /// The value now; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](synod_core::error::ErrorKind::Corrupt) if what is stored is no such value, and as every verb of
    /// a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn get(&self) -> Result<Option<T>> {
        let node = self.cell.read().await?;
        read(self.cell.path(), node.as_ref().map(|node| &node.data))
    }

    /// Replaces the value by a function of it.
    ///
    /// `next` may be called several times, each time with a later value. Only the result of the last call is stored. It is
    /// called by a task of its own, so it may not wait for this call. If it panics, so does this call, and nothing is changed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](synod_core::error::ErrorKind::Corrupt) if what is stored is no such value,
    /// [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid) if the next one cannot be written as JSON, or could not be
    /// read again, such as a number that is infinite,
    /// [`ErrorKind::TooLarge`](synod_core::error::ErrorKind::TooLarge) if the store takes less data in a node,
    /// [`ErrorKind::Refused`](synod_core::error::ErrorKind::Refused) if the path is a directory, and as every verb of a
    /// [`Client`]. [`Effect::None`](synod_core::error::Effect::None) means that nothing was changed, and never will be.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has changed the value or has not. A request that was sent is driven to its end.
    pub async fn update(
        &self,
        mut next: impl FnMut(Option<T>) -> T + Send + 'static,
    ) -> Result<Update<Option<T>, T>> {
        let path = self.cell.path().clone();
        let decided = self.cell.change(move |bytes| {
            let value = read(&path, bytes);
            mistake!(CorruptIsNone: let value = value.or_else(|_| Ok(None)));
            encode_readable(&path, &next(value?)).map(Some)
        });
        let (path, decided) = (self.cell.path(), decided.await?);
        let after = decode(path, decided.after.as_deref().unwrap_or_default()).map_err(written)?;
        let before = read(path, decided.before.as_ref()).map_err(written)?;
        Ok(Update::new(before, after, decided.cost))
    }

    /// Replaces the value, and returns the one before it.
    ///
    /// # Errors
    ///
    /// As [`AtomicValue::update`].
    ///
    /// # Cancel safety
    ///
    /// As [`AtomicValue::update`].
    pub async fn swap(&self, value: &T) -> Result<Option<T>> {
        let (path, data) = (self.cell.path().clone(), encode_readable(self.cell.path(), value)?);
        let decided = self.cell.change(move |bytes| {
            read::<T>(&path, bytes)?;
            Ok(Some(data.clone()))
        });
        read(self.cell.path(), decided.await?.before.as_ref()).map_err(written)
    }

    /// Replaces `expected` by `value`. If the value is another one, it returns that, and changes nothing.
    ///
    /// # Errors
    ///
    /// As [`AtomicValue::update`].
    ///
    /// # Cancel safety
    ///
    /// As [`AtomicValue::update`].
    pub async fn compare_and_set(
        &self,
        expected: Option<T>,
        value: &T,
    ) -> Result<Result<Cost, Option<T>>>
    where
        T: PartialEq + Send,
    {
        let (path, data) = (self.cell.path().clone(), encode_readable(self.cell.path(), value)?);
        let decided = self.cell.change(move |bytes| {
            let value: Option<T> = read(&path, bytes)?;
            Ok((value == expected).then(|| data.clone()))
        });
        let decided = decided.await?;
        if decided.written {
            return Ok(Ok(decided.cost));
        }
        read(self.cell.path(), decided.after.as_ref()).map(Err)
    }

    /// Replaces what is stored, whatever it is. Returns what it took.
    ///
    /// # Errors
    ///
    /// As [`AtomicValue::update`], but for [`ErrorKind::Corrupt`](synod_core::error::ErrorKind::Corrupt).
    ///
    /// # Cancel safety
    ///
    /// As [`AtomicValue::update`].
    pub async fn set(&self, value: &T) -> Result<Cost> {
        let data = encode_readable(self.cell.path(), value)?;
        Ok(self.cell.change(move |_before| Ok(Some(data.clone()))).await?.cost)
    }

    /// Stores the value if nothing is stored yet, and returns whether this call did.
    ///
    /// # Errors
    ///
    /// As [`AtomicValue::set`].
    ///
    /// # Cancel safety
    ///
    /// As [`AtomicValue::update`].
    pub async fn initialize(&self, value: &T) -> Result<bool> {
        let data = encode_readable(self.cell.path(), value)?;
        let store = move |before: Option<&Bytes>| Ok(before.is_none().then(|| data.clone()));
        Ok(self.cell.change(store).await?.written)
    }
}

/// The error of a change that was made, and whose values could not be read.
fn written(error: Error) -> Error {
    error.with_unknown_effect()
}

fn read<T: DeserializeOwned>(path: &Path, bytes: Option<&Bytes>) -> Result<Option<T>> {
    bytes.map(|bytes| decode(path, bytes)).transpose()
}

/// Shows the path only.
impl<T> fmt::Debug for AtomicValue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtomicValue").field("cell", &self.cell).finish_non_exhaustive()
    }
}
