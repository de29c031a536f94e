//! [`TypedCache`]: the nodes of a cache as values.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_core::Stream;
use serde::de::DeserializeOwned;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Node, Stat};
use synod_core::value::decode;

use crate::cache::Cache;
use crate::cell::codec::decoded;
use crate::mirror::event::{CacheEvent, CacheState};
use crate::mirror::extent::Extent;
use crate::mirror::snapshot::Snapshot;

/// A [`Cache`] whose nodes are values: JSON, or any format with [`TypedCache::open_with`].
///
/// A version of a node is decoded when it is read first; later reads return the same [`Arc`]. A
/// node that cannot be decoded is an error of the kind [`ErrorKind::Corrupt`], and does not affect
/// the others. Clones share everything.
pub struct TypedCache<T> {
    cache: Cache,
    decoder: Arc<Decoder<T>>,
}

/// The function that reads a value from the data of a node.
type ParseNode<T> = Box<dyn Fn(&Path, &[u8]) -> Result<T> + Send + Sync>;

/// The number of values of removed nodes that are kept at least.
const SPARE: usize = 64;

/// The function that decodes a node, and the values that it has returned.
struct Decoder<T> {
    parse: ParseNode<T>,
    values: Mutex<DecodedValues<T>>,
}

/// The values of the newest versions that were read.
struct DecodedValues<T> {
    by_path: BTreeMap<Path, (Stat, Result<Arc<T>>)>,
    /// The number of values at which those of removed nodes are dropped.
    limit: usize,
}

impl<T: DeserializeOwned + 'static> TypedCache<T> {
    /// Starts a cache of values as JSON, and waits until it is complete.
    ///
    /// # Errors
    ///
    /// As [`Cache::open`].
    ///
    /// # Cancel safety
    ///
    /// As [`Cache::open`].
    pub async fn open(client: &Client, extent: impl Into<Extent>) -> Result<Self> {
        let cache = Cache::open(client, extent.into()).await?;
        Ok(Self { cache, decoder: Arc::new(Decoder::new(Box::new(decode))) })
    }
}

impl<T: 'static> TypedCache<T> {
    /// Starts a cache of values in any format, and waits until it is complete. The error of `parse`
    /// becomes the source of an error of the kind [`ErrorKind::Corrupt`].
    ///
    /// # Errors
    ///
    /// As [`Cache::open`].
    ///
    /// # Cancel safety
    ///
    /// As [`Cache::open`].
    pub async fn open_with<E>(
        client: &Client,
        extent: impl Into<Extent>,
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
        let cache = Cache::open(client, extent.into()).await?;
        Ok(Self { cache, decoder: Arc::new(Decoder::new(Box::new(parse))) })
    }

    /// The value of the node at a path, or the error of a node that cannot be decoded. `None` if
    /// the cache has no node there.
    pub fn get(&self, path: &Path) -> Option<Result<Arc<T>>> {
        self.cache.get(path).map(|node| self.decode(&node))
    }

    /// The values of all nodes that the cache contains now, by their paths.
    pub fn values(&self) -> BTreeMap<Path, Result<Arc<T>>> {
        let nodes = self.cache.snapshot();
        nodes.iter().map(|node| (node.path.clone(), self.decode(node))).collect()
    }

    /// The value of a node of the cache, as its [events](Self::events) have it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the data cannot be decoded, also if the decoder panics. The error
    /// has the path, and never the data.
    pub fn decode(&self, node: &Node) -> Result<Arc<T>> {
        let value = self.decoder.value_of(node);
        if self.decoder.is_full() {
            self.decoder.retain(&self.cache.snapshot());
        }
        value
    }

    /// The events that produce the content: see [`Cache::events`]. [`TypedCache::decode`] returns
    /// the values of their nodes.
    pub fn events(&self) -> impl Stream<Item = CacheEvent> + Send + use<T> {
        self.cache.events()
    }

    /// The state of the content compared with the store.
    pub fn state(&self) -> CacheState {
        self.cache.state()
    }

    /// The cache of the nodes.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }
}

impl<T> Decoder<T> {
    fn new(parse: ParseNode<T>) -> Self {
        let values = DecodedValues { by_path: BTreeMap::new(), limit: SPARE };
        Self { parse, values: Mutex::new(values) }
    }

    /// Returns the value of this version of a node. The decoder and the `Drop` of a value are the
    /// application's, and run without the lock.
    fn value_of(&self, node: &Node) -> Result<Arc<T>> {
        let decode = || decoded(&node.path, || (self.parse)(&node.path, &node.data)).map(Arc::new);
        let Some(stat) = node.stat else { return decode() };
        if let Some((last, value)) = self.lock().by_path.get(&node.path)
            && *last == stat
        {
            return value.clone();
        }
        let value = decode();
        let replaced = self.lock().replace(&node.path, stat, &value);
        drop(replaced);
        value
    }

    fn is_full(&self) -> bool {
        let values = self.lock();
        values.by_path.len() > values.limit
    }

    /// Drops the values of nodes that are gone.
    fn retain(&self, nodes: &Snapshot) {
        let gone = {
            let mut values = self.lock();
            let all = std::mem::take(&mut values.by_path).into_iter();
            let (left, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
                all.partition(|(path, _value)| nodes.get(path).is_some());
            values.limit = 2 * left.len() + SPARE;
            values.by_path = left;
            gone
        };
        drop(gone);
    }

    fn lock(&self) -> MutexGuard<'_, DecodedValues<T>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> DecodedValues<T> {
    /// Keeps the value of a version, unless that of a later one is known. Returns the former value,
    /// which the caller drops without the lock.
    fn replace(
        &mut self,
        path: &Path,
        stat: Stat,
        value: &Result<Arc<T>>,
    ) -> Option<(Stat, Result<Arc<T>>)> {
        let is_late = self.by_path.get(path).is_some_and(|(last, _)| last.modified > stat.modified);
        if is_late { None } else { self.by_path.insert(path.clone(), (stat, value.clone())) }
    }
}

impl<T> Clone for TypedCache<T> {
    fn clone(&self) -> Self {
        Self { cache: self.cache.clone(), decoder: self.decoder.clone() }
    }
}

/// Shows the path only: the values are the application's.
impl<T> fmt::Debug for TypedCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedCache").field("cache", &self.cache).finish_non_exhaustive()
    }
}
