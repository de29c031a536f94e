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

use crate::cell::copy::CopyState;
use crate::cell::guarded::decoded;
use crate::mirror::Mirror;
use crate::mirror::event::CacheState;
use crate::mirror::extent::Extent;

#[cfg_attr(not(doctest), doc = include_str!("../docs/watched.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/mirrors.md"))]
pub struct Watched<T> {
    inner: Arc<Follows<T>>,
}

/// A value, and what is known of it.
#[non_exhaustive]
pub struct WatchedValue<T> {
    /// The last value that could be read; `None` if there was none yet.
    pub value: Option<Arc<T>>,
    /// Which incarnation and version of the node held it.
    pub stat: Option<Stat>,
    /// Whether the store still has it, as far as this client knows. [`CopyState::Removed`] also if there was no node yet.
    pub state: CopyState,
}

struct Follows<T> {
    mirror: Mirror,
    last: watch::Receiver<WatchedValue<T>>,
    /// It ends with this value, and with the client.
    _task: Task,
}

/// How a value is read from the bytes of a node.
type Parse<T> = Box<dyn Fn(&Path, &[u8]) -> Result<T> + Send + Sync>;

/// What turns nodes into values, in order.
struct ValueReader<T> {
    parse: Parse<T>,
    /// The last version of the node that was read, and why it is no value if it is none.
    seen: Option<(Stat, Option<Arc<Error>>)>,
    sender: watch::Sender<WatchedValue<T>>,
}

impl<T: DeserializeOwned + Send + Sync + 'static> Watched<T> {
    /// Opens the value that the node at `path` holds as JSON, and follows it from now on. There need not be one.
    ///
    /// # Errors
    ///
    /// What the store says if it refuses to be read, and [`ErrorKind::SessionLost`] once the client is closed. What cannot be
    /// read as a value is no error, but a [state](CopyState). An outage is none: the call waits for its end.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call follows nothing.
    pub async fn open(client: &Client, path: impl Into<Path>) -> Result<Self> {
        Box::pin(Self::parsed(client, path.into(), Box::new(decode))).await
    }
}

impl<T: Send + Sync + 'static> Watched<T> {
    /// [`Watched::open`] for a value in any format. The error of `parse` becomes the source of one that is
    /// [`ErrorKind::Corrupt`].
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
        let mut reader = ValueReader { parse, seen: None, sender };
        reader.learn(&mirror, mirror.state());
        let read = mirror.clone();
        let reading = async move {
            let learning = read.until(|state| -> Option<()> {
                reader.learn(&read, state);
                None
            });
            // Until the client is closed.
            let _over = learning.await;
        };
        let task = task::spawn(reading);
        Ok(Self { inner: Arc::new(Follows { mirror, last, _task: task }) })
    }
}

impl<T> Watched<T> {
    /// The last value that could be read, and whether the store still has it. Asks no server.
    pub fn get(&self) -> WatchedValue<T> {
        let last = self.inner.last.borrow().clone();
        // As soon as that is so, before any task is notified of it.
        let is_read = self.inner.last.has_changed().is_ok();
        let live = is_read && self.inner.mirror.state().is_live();
        match last.state {
            CopyState::Current if !live => WatchedValue { state: CopyState::Stale, ..last },
            _ => last,
        }
    }

    /// A receiver that always holds the latest. It ends with the client, and when the last clone of this value is dropped.
    pub fn receiver(&self) -> watch::Receiver<WatchedValue<T>> {
        self.inner.last.clone()
    }
}

impl<T: Send + Sync + 'static> Watched<T> {
    /// What there is now, then each that replaces it, also one that differs in its state alone. A reader gets the latest: what
    /// was replaced before it looked is left out. It ends as a [receiver](Self::receiver).
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
    /// Takes note of what the mirror has.
    fn learn(&mut self, mirror: &Mirror, state: CacheState) {
        let node = mirror.get(mirror.path());
        let value = self.read(node.as_ref());
        let state = match (state, node, &self.seen) {
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
        // A value may have a `Drop` of its own, which may look at this one: the lock is free here.
        drop(replaced);
    }

    /// The value of a version that was not read yet, if it is one.
    fn read(&mut self, node: Option<&Node>) -> Option<(Arc<T>, Stat)> {
        let (node, stat) = node.and_then(|node| Some((node, node.stat?)))?;
        if self.seen.as_ref().is_some_and(|(seen, _)| *seen == stat) {
            return None;
        }
        match decoded(&node.path, || (self.parse)(&node.path, &node.data)) {
            Ok(value) => {
                self.seen = Some((stat, None));
                Some((Arc::new(value), stat))
            }
            Err(error) => {
                tracing::warn!(%error, "the value cannot be read");
                self.seen = Some((stat, Some(Arc::new(error))));
                None
            }
        }
    }
}

/// Whether one state says what another one says.
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

/// Shows the path only: the value is the application's.
impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("mirror", &self.inner.mirror).finish_non_exhaustive()
    }
}

/// Shows the version and the state: the value is the application's.
impl<T> fmt::Debug for WatchedValue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedValue")
            .field("stat", &self.stat)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
