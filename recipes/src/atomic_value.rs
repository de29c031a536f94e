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

use crate::cell::SingleValue;
use crate::cell::change::{Cost, Update};
use crate::cell::codec::encode_readable;
use crate::cell::promotion::{Enter, Promotion};
use crate::line::{Form, Line};
use crate::mutant::mistake;

#[cfg_attr(not(doctest), doc = include_str!("../docs/atomic_value.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/values.md"))]
pub struct AtomicValue<T> {
    value: SingleValue,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for AtomicValue<T> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), of: PhantomData }
    }
}

impl<T: Serialize + DeserializeOwned + 'static> AtomicValue<T> {
    /// Creates the value at `path`.
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        Self { value: SingleValue::new(client, path.into(), "atomic_value"), of: PhantomData }
    }

    /// Returns a handle of the same value whose changes [take a lock](Promotion) after too many
    /// lost races. Existing clones are not promoted, and do not share requests with the new handle.
    pub fn promote(self, promotion: Promotion) -> Self {
        let enter: Enter =
            |client, lock| Line::new(client, lock, Form::exclusive("atomic_value", "lock-")).held();
        Self { value: self.value.promoting(promotion, enter), ..self }
    }

    /// Reads the value; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](synod_core::error::ErrorKind::Corrupt) if the stored data cannot be
    /// read as `T`, and the errors that are common to all calls: see [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn get(&self) -> Result<Option<T>> {
        let node = self.value.read().await?;
        read(self.value.path(), node.as_ref().map(|node| &node.data))
    }

    /// Replaces the value by a function of it.
    ///
    /// `next` may be called several times, each time with a later value. Only the result of the
    /// last call is stored. It is called in a separate task, so it must not wait for this call.
    /// If `next` panics, this call panics, too, and nothing is changed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](synod_core::error::ErrorKind::Corrupt) if the stored data cannot be
    /// read as `T`, [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid) if the next value
    /// cannot be written as JSON or could not be read back, such as an infinite number,
    /// [`ErrorKind::TooLarge`](synod_core::error::ErrorKind::TooLarge) if the store accepts less
    /// data in a node, [`ErrorKind::Refused`](synod_core::error::ErrorKind::Refused) if the path is
    /// a directory, and the errors that are common to all calls: see [`Client`].
    /// [`Effect::None`](synod_core::error::Effect::None) means that nothing was changed and nothing
    /// will be.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not have changed the value. A request that was sent is completed
    /// in the background.
    pub async fn update(
        &self,
        mut next: impl FnMut(Option<T>) -> T + Send + 'static,
    ) -> Result<Update<Option<T>, T>> {
        let path = self.value.path().clone();
        let decided = self.value.change(move |bytes| {
            let value = read(&path, bytes);
            mistake!(CorruptIsNone: let value = value.or_else(|_| Ok(None)));
            encode_readable(&path, &next(value?)).map(Some)
        });
        let (path, decided) = (self.value.path(), decided.await?);
        let after =
            decode(path, decided.after.as_deref().unwrap_or_default()).map_err(after_write)?;
        let before = read(path, decided.before.as_ref()).map_err(after_write)?;
        Ok(Update::new(before, after, decided.cost))
    }

    /// Replaces the value, and returns the value before.
    ///
    /// # Errors
    ///
    /// As [`AtomicValue::update`].
    ///
    /// # Cancel safety
    ///
    /// As [`AtomicValue::update`].
    pub async fn swap(&self, value: &T) -> Result<Option<T>> {
        let (path, data) = (self.value.path().clone(), encode_readable(self.value.path(), value)?);
        let decided = self.value.change(move |bytes| {
            read::<T>(&path, bytes)?;
            Ok(Some(data.clone()))
        });
        read(self.value.path(), decided.await?.before.as_ref()).map_err(after_write)
    }

    /// Replaces `expected` by `value`. If there is another value, it is returned, and nothing is
    /// changed.
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
        let (path, data) = (self.value.path().clone(), encode_readable(self.value.path(), value)?);
        let decided = self.value.change(move |bytes| {
            let value: Option<T> = read(&path, bytes)?;
            Ok((value == expected).then(|| data.clone()))
        });
        let decided = decided.await?;
        if decided.written {
            return Ok(Ok(decided.cost));
        }
        read(self.value.path(), decided.after.as_ref()).map(Err)
    }

    /// Replaces the stored data unconditionally. Returns the cost of the change.
    ///
    /// # Errors
    ///
    /// As [`AtomicValue::update`], but for
    /// [`ErrorKind::Corrupt`](synod_core::error::ErrorKind::Corrupt).
    ///
    /// # Cancel safety
    ///
    /// As [`AtomicValue::update`].
    pub async fn set(&self, value: &T) -> Result<Cost> {
        let data = encode_readable(self.value.path(), value)?;
        Ok(self.value.change(move |_before| Ok(Some(data.clone()))).await?.cost)
    }

    /// Stores the value if there is none yet. Returns `true` if this call has stored it.
    ///
    /// # Errors
    ///
    /// As [`AtomicValue::set`].
    ///
    /// # Cancel safety
    ///
    /// As [`AtomicValue::update`].
    pub async fn initialize(&self, value: &T) -> Result<bool> {
        let data = encode_readable(self.value.path(), value)?;
        let store = move |before: Option<&Bytes>| Ok(before.is_none().then(|| data.clone()));
        Ok(self.value.change(store).await?.written)
    }
}

/// The error of a change that was written, but whose values could not be read.
fn after_write(error: Error) -> Error {
    error.with_unknown_effect()
}

fn read<T: DeserializeOwned>(path: &Path, bytes: Option<&Bytes>) -> Result<Option<T>> {
    bytes.map(|bytes| decode(path, bytes)).transpose()
}

/// Shows only the path.
impl<T> fmt::Debug for AtomicValue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtomicValue").field("path", self.value.path()).finish_non_exhaustive()
    }
}
