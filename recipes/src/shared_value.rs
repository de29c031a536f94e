//! [`SharedValue`]: a value of any type, with a copy in each client.

use std::fmt;

use futures_core::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::value::{decode, encode};

use crate::cell::copy::LocalCopy;
use crate::cell::followed::Followed;
use crate::cell::update::Cost;

/// A value that all clients of the same path share, with a copy in the memory of each; stored as JSON.
///
/// Reading asks no server: [`get`](Self::get) returns the copy, and [`changes`](Self::changes) is a stream of copies. A copy
/// never goes back, and is what the store has in the end, whatever was lost in between: a session, an outage, or a node that
/// was removed and made again. It has a [state](crate::CopyState), which is not current as long as changes may be missed.
///
/// A write is applied exactly once, as the change of a [`Counter`](crate::Counter), with the same assumptions.
/// [`try_set`](Self::try_set) replaces exactly the version that the caller has seen; it fails if and only if the value
/// was written since. The copy of the writer shows what it wrote, or something later, or is stale.
///
/// Clones share everything. The value is followed until the last of them is dropped, and keeps its client open.
///
/// *Not promised*: that a copy which is current is the latest: a value is in the store before its event arrives here. What
/// must not be decided on an older value is decided by [`try_set`](Self::try_set), or by an
/// [`AtomicValue`](crate::AtomicValue).
///
/// # What it costs
///
/// Opening is one request if there is a value. Each change by another client is an event and a read. A write of a client
/// that made the last one is one request, otherwise two or three.
///
/// # Others on the same path
///
/// On ZooKeeper, Curator's `SharedValue` with JSON as its bytes; and everything that reads and writes JSON with the version
/// of the node, such as an [`AtomicValue`](crate::AtomicValue) and [`Client::get_value`].
///
/// # Examples
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path::Path;
/// use synod_recipes::SharedValue;
///
/// # async fn example(client: Client) -> Result<()> {
/// let hosts = vec!["10.0.0.7".to_owned()];
/// let hosts = SharedValue::open(&client, Path::new("/config/hosts")?, &hosts).await?;
/// let copy = hosts.get();
/// println!("{:?}, written at revision {}", copy.value, copy.stat.modified);
///
/// let fewer = Vec::new();
/// if let Err(newer) = hosts.try_set(&copy, &fewer).await? {
///     println!("another client was faster: {:?}", newer.value);
/// }
/// # Ok(())
/// # }
/// ```
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
    /// [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid) if `first` cannot be written as JSON,
    /// [`ErrorKind::Refused`](synod_core::error::ErrorKind::Refused) if the path is a directory, and as every verb of a
    /// [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have stored the first value. It follows nothing.
    pub async fn open(client: &Client, path: impl Into<Path>, first: &T) -> Result<Self> {
        let path = path.into();
        let first = encode(&path, first)?;
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
    /// [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid) if the value cannot be written as JSON, and as every
    /// verb of a [`Client`]. [`Effect::None`](synod_core::error::Effect::None) means that nothing was changed, and never will
    /// be.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has changed the value or has not. A request that was sent is driven to its end.
    pub async fn set(&self, value: &T) -> Result<Cost> {
        let data = encode(self.followed.path(), value)?;
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
        let data = encode(self.followed.path(), value)?;
        self.followed.try_set(seen.stat, data).await
    }
}

/// Shows the path only.
impl<T> fmt::Debug for SharedValue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedValue").field("cell", &self.followed).finish_non_exhaustive()
    }
}
