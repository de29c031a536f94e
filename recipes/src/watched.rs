//! [`Watched`]: a typed value that other programs write.

use std::fmt;
use std::sync::Arc;

use futures_core::Stream;
use futures_util::stream::unfold;
use serde::de::DeserializeOwned;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Node, Stat};
use synod_core::task::{self, Task};
use synod_core::value::decode;
use tokio::sync::watch;

use crate::cell::codec::decoded;
use crate::cell::copy::CopyState;
use crate::mirror::Mirror;
use crate::mirror::event::CacheState;
use crate::mirror::extent::Extent;

#[cfg_attr(not(doctest), doc = include_str!("../docs/watched.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/mirrors.md"))]
pub struct Watched<T> {
    inner: Arc<WatchedInner<T>>,
}

/// A value, and its state.
#[non_exhaustive]
pub struct WatchedValue<T> {
    /// The last value that could be read; `None` if there was none yet.
    pub value: Option<Arc<T>>,
    /// The incarnation and the version of the node that held it.
    pub stat: Option<Stat>,
    /// The known state of the value compared with the store. It is also [`CopyState::Removed`] if
    /// no node existed yet.
    pub state: CopyState,
}

struct WatchedInner<T> {
    mirror: Mirror,
    last: watch::Receiver<WatchedValue<T>>,
    /// The task ends with this value, and with the client.
    _task: Task,
}

/// The function that reads a value from the bytes of a node.
type Parse<T> = Box<dyn Fn(&Path, &[u8]) -> Result<T> + Send + Sync>;

/// The state of the task that reads values from nodes, in order.
struct ValueReader<T> {
    parse: Parse<T>,
    /// The last version of the node that was read, and the error if it could not be read as a
    /// value.
    last_read: Option<(Stat, Option<Arc<Error>>)>,
    sender: watch::Sender<WatchedValue<T>>,
}

impl<T: DeserializeOwned + Send + Sync + 'static> Watched<T> {
    /// Opens the value that the node at `path` holds as JSON, and follows it from now on. The node
    /// need not exist.
    ///
    /// # Errors
    ///
    /// The error with which the store rejects reads, and [`ErrorKind::SessionLost`] once the client
    /// is closed. A node that cannot be read as a value is not an error, but a [state](CopyState).
    /// An outage is not an error: the call waits for its end.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves no task and no watch.
    pub async fn open(client: &Client, path: impl Into<Path>) -> Result<Self> {
        Box::pin(Self::parsed(client, path.into(), Box::new(decode))).await
    }
}

impl<T: Send + Sync + 'static> Watched<T> {
    /// [`Watched::open`] for a value in any format. The error of `parse` becomes the source of an
    /// error of the kind [`ErrorKind::Corrupt`].
    ///
    /// # Errors
    ///
    /// As [`Watched::open`].
    ///
    /// # Cancel safety
    ///
    /// As [`Watched::open`].
    pub async fn open_with<E>(
        client: &Client,
        path: impl Into<Path>,
        parse: impl Fn(&[u8]) -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Self>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let parse = move |path: &Path, data: &[u8]| {
            parse(data).map_err(|why| {
                Error::new(ErrorKind::Corrupt, "reading a value").at(path).caused_by(why)
            })
        };
        Box::pin(Self::parsed(client, path.into(), Box::new(parse))).await
    }

    async fn parsed(client: &Client, path: Path, parse: Parse<T>) -> Result<Self> {
        let mirror = Mirror::start(client, Extent::node(path), "watched");
        mirror.complete().await?;
        let first = WatchedValue { value: None, stat: None, state: CopyState::Stale };
        let (sender, last) = watch::channel(first);
        let mut reader = ValueReader { parse, last_read: None, sender };
        reader.update(&mirror, mirror.state());
        let read = mirror.clone();
        let reading = async move {
            let updating = read.until(|state| -> Option<()> {
                reader.update(&read, state);
                None
            });
            // Returns when the client is closed.
            let _ended = updating.await;
        };
        let task = task::spawn(reading);
        Ok(Self { inner: Arc::new(WatchedInner { mirror, last, _task: task }) })
    }
}

impl<T> Watched<T> {
    /// The last value that could be read, and whether the store still has it. Sends nothing to the
    /// store.
    pub fn get(&self) -> WatchedValue<T> {
        let last = self.inner.last.borrow().clone();
        // The mirror reports this immediately, before any task is notified.
        let is_read = self.inner.last.has_changed().is_ok();
        let live = is_read && self.inner.mirror.state().is_live();
        match last.state {
            CopyState::Current if !live => WatchedValue { state: CopyState::Stale, ..last },
            _ => last,
        }
    }

    /// A receiver that always holds the latest value. It ends with the client, and when the last
    /// clone of `self` is dropped.
    pub fn receiver(&self) -> watch::Receiver<WatchedValue<T>> {
        self.inner.last.clone()
    }
}

impl<T: Send + Sync + 'static> Watched<T> {
    /// The current value, then each change, including a change of only the state. A slow reader may
    /// miss intermediate values. The stream ends as a [receiver](Self::receiver) does.
    pub fn changes(&self) -> impl Stream<Item = WatchedValue<T>> + Send + use<T> {
        let mut receiver = self.receiver();
        receiver.mark_changed();
        unfold(receiver, |mut receiver| async move {
            receiver.changed().await.ok()?;
            let last = receiver.borrow_and_update().clone();
            Some((last, receiver))
        })
    }
}

impl<T> ValueReader<T> {
    /// Updates the value and its state from the mirror.
    fn update(&mut self, mirror: &Mirror, state: CacheState) {
        let node = mirror.get(mirror.path());
        let value = self.read(node.as_ref());
        let state = match (state, node, &self.last_read) {
            (CacheState::Refused(why), ..) => CopyState::Unreadable(why),
            (CacheState::Live(_), None, _) => CopyState::Removed,
            (CacheState::Live(_), _, Some((_, Some(why)))) => CopyState::Unreadable(why.clone()),
            (CacheState::Live(_), ..) => CopyState::Current,
            _ => CopyState::Stale,
        };
        let mut replaced = None;
        self.sender.send_if_modified(|last| {
            let is_same = value.is_none() && is_same(&last.state, &state);
            last.state = state;
            if let Some((value, stat)) = value {
                replaced = last.value.replace(value);
                last.stat = Some(stat);
            }
            !is_same
        });
        // The value is dropped outside the lock: its `Drop` may be code of the application that
        // reads this value.
        drop(replaced);
    }

    /// The value of a version that was not read yet, if it can be read.
    fn read(&mut self, node: Option<&Node>) -> Option<(Arc<T>, Stat)> {
        let (node, stat) = node.and_then(|node| Some((node, node.stat?)))?;
        if self.last_read.as_ref().is_some_and(|(last, _)| *last == stat) {
            return None;
        }
        match decoded(&node.path, || (self.parse)(&node.path, &node.data)) {
            Ok(value) => {
                self.last_read = Some((stat, None));
                Some((Arc::new(value), stat))
            }
            Err(error) => {
                tracing::warn!(%error, "could not read the value");
                self.last_read = Some((stat, Some(Arc::new(error))));
                None
            }
        }
    }
}

/// Returns `true` if two states are equal for a reader.
fn is_same(one: &CopyState, other: &CopyState) -> bool {
    match (one, other) {
        (CopyState::Unreadable(one), CopyState::Unreadable(other)) => Arc::ptr_eq(one, other),
        _ => std::mem::discriminant(one) == std::mem::discriminant(other),
    }
}

impl<T> Clone for Watched<T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<T> Clone for WatchedValue<T> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), stat: self.stat, state: self.state.clone() }
    }
}

/// Shows only the path: the value belongs to the application.
impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("mirror", &self.inner.mirror).finish_non_exhaustive()
    }
}

/// Shows only the version and the state: the value belongs to the application.
impl<T> fmt::Debug for WatchedValue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedValue")
            .field("stat", &self.stat)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
