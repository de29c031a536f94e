//! [`SharedCount`]: a number, with a copy in each client.

use std::fmt;

use bytes::Bytes;
use futures_core::Stream;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;

use crate::cell::change::Cost;
use crate::cell::copy::LocalCopy;
use crate::cell::followed::FollowedValue;

#[cfg_attr(not(doctest), doc = include_str!("../docs/shared_count.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/copies.md"))]
#[derive(Clone)]
pub struct SharedCount {
    followed: FollowedValue<i32>,
}

impl SharedCount {
    /// Opens the number at `path`: stores `first` if there is none, and follows it from now on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the stored data is not a number of four bytes,
    /// [`ErrorKind::Refused`] if the path is a directory, and the errors that are common to all
    /// calls: see [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have stored the first number.
    pub async fn open(client: &Client, path: impl Into<Path>, first: i32) -> Result<Self> {
        let open = FollowedValue::open(client, path.into(), "shared_count", read, write(first));
        // Boxed, so that the future of a caller stays small.
        Ok(Self { followed: Box::pin(open).await? })
    }

    /// Returns the copy, without a request.
    pub fn get(&self) -> LocalCopy<i32> {
        self.followed.get()
    }

    /// Returns the copies, as [`SharedValue::changes`](crate::value::SharedValue::changes) does.
    pub fn changes(&self) -> impl Stream<Item = LocalCopy<i32>> + Send + use<> {
        self.followed.changes()
    }

    /// Replaces the stored data unconditionally. Returns the cost of the change.
    ///
    /// # Errors
    ///
    /// The errors that are common to all calls: see [`Client`].
    /// [`Effect::None`](synod_core::error::Effect::None) means that nothing was changed and nothing
    /// will be.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not have changed the number. A request that was sent is completed
    /// in the background.
    pub async fn set(&self, number: i32) -> Result<Cost> {
        self.followed.set(write(number)).await
    }

    /// Replaces exactly the version of a copy. If the number was written or removed since, nothing
    /// is changed, and the current copy is returned.
    ///
    /// # Errors
    ///
    /// As [`SharedCount::set`].
    ///
    /// # Cancel safety
    ///
    /// As [`SharedCount::set`].
    pub async fn try_set(
        &self,
        seen: &LocalCopy<i32>,
        number: i32,
    ) -> Result<Result<Cost, LocalCopy<i32>>> {
        self.followed.try_set(seen.stat, write(number)).await
    }
}

/// Returns the bytes of a number, most significant first, as Curator stores them.
fn write(number: i32) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn read(path: &Path, bytes: &[u8]) -> Result<i32> {
    bytes.try_into().map(i32::from_be_bytes).map_err(|_other_length| {
        Error::new(ErrorKind::Corrupt, "reading a number")
            .at(path)
            .because(format!("{} bytes are stored, and the number has 4", bytes.len()))
    })
}

/// Shows only the path.
impl fmt::Debug for SharedCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCount").field("path", self.followed.path()).finish_non_exhaustive()
    }
}
