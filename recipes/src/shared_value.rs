//! [`SharedValue`]: a value of any type, with a copy in each client.

use std::fmt;

use futures_core::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::value::decode;

use crate::cell::change::Cost;
use crate::cell::codec::encode_readable;
use crate::cell::copy::LocalCopy;
use crate::cell::followed::FollowedValue;

#[cfg_attr(not(doctest), doc = include_str!("../docs/shared_value.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/copies.md"))]
pub struct SharedValue<T> {
    followed: FollowedValue<T>,
}

impl<T> Clone for SharedValue<T> {
    fn clone(&self) -> Self {
        Self { followed: self.followed.clone() }
    }
}

impl<T> SharedValue<T>
where
    T: Serialize + DeserializeOwned + Clone + Send + Sync + 'static,
{
    /// Opens the value at `path`: stores `first` if there is none, and follows it from now on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](synod_core::error::ErrorKind::Corrupt) if the stored data cannot be
    /// read as `T`, [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid) if `first` cannot
    /// be written as JSON that can be read back,
    /// [`ErrorKind::TooLarge`](synod_core::error::ErrorKind::TooLarge) if the store accepts less
    /// data in a node, [`ErrorKind::Refused`](synod_core::error::ErrorKind::Refused) if the path is
    /// a directory, and the errors that are common to all calls: see [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have stored the first value.
    pub async fn open(client: &Client, path: impl Into<Path>, first: &T) -> Result<Self> {
        let path = path.into();
        let first = encode_readable(&path, first)?;
        let open = FollowedValue::open(client, path, "shared_value", decode, first);
        // Boxed, so that the future of a caller stays small.
        Ok(Self { followed: Box::pin(open).await? })
    }

    /// Returns the copy, without a request.
    pub fn get(&self) -> LocalCopy<T> {
        self.followed.get()
    }

    /// Returns the current copy, then each copy that replaces it, even if only its state differs.
    ///
    /// A reader gets the latest copy; copies that were replaced before it polls are skipped.
    /// Streams do not keep the value open: they end with the client, and when the last clone of the
    /// value is dropped.
    pub fn changes(&self) -> impl Stream<Item = LocalCopy<T>> + Send + use<T> {
        self.followed.changes()
    }

    /// Replaces the stored data unconditionally. Returns the cost of the change.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid) if the value cannot be written
    /// as JSON, or could not be read back,
    /// [`ErrorKind::TooLarge`](synod_core::error::ErrorKind::TooLarge) if the store accepts less
    /// data in a node, and the errors that are common to all calls: see [`Client`].
    /// [`Effect::None`](synod_core::error::Effect::None) means that nothing was changed and nothing
    /// will be.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not have changed the value. A request that was sent is completed
    /// in the background.
    pub async fn set(&self, value: &T) -> Result<Cost> {
        let data = encode_readable(self.followed.path(), value)?;
        self.followed.set(data).await
    }

    /// Replaces exactly the version of a copy. If the value was written or removed since, nothing
    /// is changed, and the current copy is returned.
    ///
    /// # Errors
    ///
    /// As [`SharedValue::set`].
    ///
    /// # Cancel safety
    ///
    /// As [`SharedValue::set`].
    pub async fn try_set(
        &self,
        seen: &LocalCopy<T>,
        value: &T,
    ) -> Result<Result<Cost, LocalCopy<T>>> {
        let data = encode_readable(self.followed.path(), value)?;
        self.followed.try_set(seen.stat, data).await
    }
}

/// Shows only the path.
impl<T> fmt::Debug for SharedValue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedValue").field("path", self.followed.path()).finish_non_exhaustive()
    }
}
