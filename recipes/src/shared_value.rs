//! [`SharedValue`]: a value of any type, with a copy in each client.

use std::fmt;

use futures_core::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::value::decode;

use crate::cell::copy::LocalCopy;
use crate::cell::followed::Followed;
use crate::cell::json::encode_readable;
use crate::cell::update::Cost;

#[cfg_attr(not(doctest), doc = include_str!("../docs/shared_value.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/copies.md"))]
pub struct SharedValue<T> {
    followed: Followed<T>,
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
    /// [`ErrorKind::Corrupt`](synod_core::error::ErrorKind::Corrupt) if what is stored is no such value,
    /// [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid) if `first` cannot be written as JSON that can be read again,
    /// [`ErrorKind::TooLarge`](synod_core::error::ErrorKind::TooLarge) if the store takes less data in a node,
    /// [`ErrorKind::Refused`](synod_core::error::ErrorKind::Refused) if the path is a directory, and as every verb of a
    /// [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have stored the first value. It follows nothing.
    pub async fn open(client: &Client, path: impl Into<Path>, first: &T) -> Result<Self> {
        let path = path.into();
        let first = encode_readable(&path, first)?;
        let open = Followed::open(client, path, "shared_value", decode, first);
        // On the heap, so that the future of a caller stays small.
        Ok(Self { followed: Box::pin(open).await? })
    }

    /// The copy. Asks no server.
    pub fn get(&self) -> LocalCopy<T> {
        self.followed.get()
    }

    /// The copy that there is now, then each that replaces it, also one that differs in its state alone.
    ///
    /// A reader gets the latest: those that were replaced before it looked are left out. Streams do not keep the value open:
    /// they end with the client, and when the last clone of the value is dropped.
    pub fn changes(&self) -> impl Stream<Item = LocalCopy<T>> + Send + use<T> {
        self.followed.changes()
    }

    /// Replaces what is stored, whatever it is. Returns what it took.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid) if the value cannot be written as JSON, or could not be read
    /// again, [`ErrorKind::TooLarge`](synod_core::error::ErrorKind::TooLarge) if the store takes less data in a node, and as every
    /// verb of a [`Client`]. [`Effect::None`](synod_core::error::Effect::None) means that nothing was changed, and never will
    /// be.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has changed the value or has not. A request that was sent is driven to its end.
    pub async fn set(&self, value: &T) -> Result<Cost> {
        let data = encode_readable(self.followed.path(), value)?;
        self.followed.set(data).await
    }

    /// Replaces exactly the version that a copy is of. If the value was written or removed since, it changes nothing, and
    /// returns the copy of what there is now.
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

/// Shows the path only.
impl<T> fmt::Debug for SharedValue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedValue").field("cell", &self.followed).finish_non_exhaustive()
    }
}
