//! [`Service`]: a local copy of the instances of a service, kept up to date.

use std::fmt;
use std::mem::discriminant;
use std::sync::{Arc, Mutex, PoisonError};

use futures_core::Stream;
use futures_util::stream::unfold;
use serde::de::DeserializeOwned;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::random::Random;

use crate::discovery::endpoint::Endpoints;
use crate::discovery::instance_format::InstanceFormat;
use crate::mirror::Mirror;
use crate::mirror::event::CacheState;
use crate::mirror::extent::Extent;
use crate::mirror::snapshot::Snapshot;

/// The instances of one service, with a local copy in this process. A read sends nothing to the
/// store.
///
/// Clones share everything. The service is followed until the last of them is dropped, and keeps
/// its client open.
pub struct Service<T> {
    mirror: Mirror,
    format: InstanceFormat,
    random: Random,
    last: Arc<Mutex<LastRead<T>>>,
}

/// The instances of a service, and the state of the local copy compared with the store.
#[non_exhaustive]
pub struct ServiceView<T> {
    /// The instances. While the store is unreachable, the last known instances.
    pub endpoints: Arc<Endpoints<T>>,
    /// [`CacheState::Live`] if every later change will be reported.
    pub state: CacheState,
}

/// The last result, and its nodes. They are kept because nodes are compared by address, and a freed
/// address may be reused.
struct LastRead<T> {
    nodes: Option<Snapshot>,
    endpoints: Arc<Endpoints<T>>,
}

impl<T: DeserializeOwned> Service<T> {
    /// Follows the service at a path, and returns when its instances are known.
    pub(super) async fn open(client: &Client, path: Path, format: InstanceFormat) -> Result<Self> {
        let mirror = Mirror::start(client, Extent::children(path), "discovery");
        mirror.complete().await?;
        let last = Arc::new(Mutex::new(LastRead { nodes: None, endpoints: Arc::default() }));
        Ok(Self { mirror, format, random: client.random().clone(), last })
    }

    /// The known instances.
    pub fn view(&self) -> ServiceView<T> {
        let nodes = self.mirror.snapshot();
        let state = nodes.state().clone();
        ServiceView { endpoints: self.read(nodes), state }
    }

    /// The current view, then each change, including a change of only the state. A slow reader may
    /// miss intermediate views. The stream keeps the local copy up to date, and ends with the
    /// client.
    pub fn changes(&self) -> impl Stream<Item = ServiceView<T>> + Send + use<T>
    where
        T: Send + Sync + 'static,
    {
        unfold((self.clone(), None), |(service, last)| async move {
            let is_new =
                |view: &ServiceView<T>| last.as_ref().is_none_or(|last| !view.is_same(last));
            let changed = service.mirror.until(|_| Some(service.view()).filter(is_new)).await?;
            Some((changed.clone(), (service, Some(changed))))
        })
    }

    /// Decodes nodes outside the lock, because `T` runs code of the application. Two concurrent
    /// calls may both read.
    fn read(&self, nodes: Snapshot) -> Arc<Endpoints<T>> {
        let before = {
            let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.nodes.as_ref().is_some_and(|last| last.has_same_nodes(&nodes)) {
                return last.endpoints.clone();
            }
            last.endpoints.clone()
        };
        let endpoints = Arc::new(Endpoints::read(nodes.iter(), self.format, &before));
        let next = LastRead { nodes: Some(nodes), endpoints: endpoints.clone() };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *last, next);
        // The previous result may be large: it is dropped outside the lock.
        drop(last);
        drop(old);
        endpoints
    }
}

impl<T> Service<T> {
    /// The path of the service.
    pub fn path(&self) -> &Path {
        self.mirror.path()
    }

    pub(super) fn random(&self) -> &Random {
        &self.random
    }
}

impl<T> ServiceView<T> {
    fn is_same(&self, other: &Self) -> bool {
        let same_state = discriminant(&self.state) == discriminant(&other.state);
        same_state && Arc::ptr_eq(&self.endpoints, &other.endpoints)
    }
}

impl<T> Clone for Service<T> {
    fn clone(&self) -> Self {
        let Self { mirror, format, random, last } = self;
        let (mirror, random, last) = (mirror.clone(), random.clone(), last.clone());
        Self { mirror, format: *format, random, last }
    }
}

impl<T> Clone for ServiceView<T> {
    fn clone(&self) -> Self {
        Self { endpoints: self.endpoints.clone(), state: self.state.clone() }
    }
}

impl<T> fmt::Debug for Service<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("mirror", &self.mirror).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for ServiceView<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceView")
            .field("endpoints", &self.endpoints)
            .field("state", &self.state)
            .finish()
    }
}
