//! [`Endpoints`]: the instances of a service, as they are read from the store.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use synod_core::error::{Error, Result};
use synod_core::path::Path;
use synod_core::store::{Node, Stat};

use crate::discovery::instance::Instance;
use crate::discovery::instance_format::InstanceFormat;
use crate::mutant::mistake;

/// An instance in the store, read from one version of one node.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Endpoint<T> {
    /// The registered instance.
    pub instance: Instance<T>,
    /// The path of its node.
    pub path: Path,
    /// The stat of that node. An instance that was registered again has another `created`.
    pub stat: Stat,
}

/// The instances of a service at one moment, in the order of their ids, and the errors of
/// unreadable nodes.
pub struct Endpoints<T> {
    all: Vec<Arc<Endpoint<T>>>,
    unreadable: Vec<Arc<Error>>,
    /// All nodes that were read, so that none is decoded twice.
    known: BTreeMap<Path, KnownEndpoint<T>>,
}

/// The result of reading a version of a node.
type KnownEndpoint<T> = (Stat, Result<Arc<Endpoint<T>>, Arc<Error>>);

impl<T> Endpoints<T> {
    /// All instances.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Endpoint<T>>> {
        self.all.iter()
    }

    /// The number of instances.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns `true` if there is no instance.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The instance with this id.
    pub fn get(&self, id: &str) -> Option<&Arc<Endpoint<T>>> {
        self.all.iter().find(|it| it.instance.id == id)
    }

    /// The errors of nodes that could not be read as instances. Each error has the path, and never
    /// the data.
    pub fn unreadable(&self) -> &[Arc<Error>] {
        &self.unreadable
    }
}

impl<T: DeserializeOwned> Endpoints<T> {
    /// Reads nodes. Nodes that were read before are not read again.
    pub(super) fn read<'a>(
        nodes: impl Iterator<Item = &'a Node>,
        format: InstanceFormat,
        before: &Self,
    ) -> Self {
        let mut endpoints = Self::default();
        for (node, stat) in nodes.filter_map(|node| Some((node, node.stat?))) {
            let result = match before.known.get(&node.path) {
                Some((last, result)) if *last == stat => result.clone(),
                _ => read(node, stat, format),
            };
            match &result {
                Ok(endpoint) => endpoints.all.push(endpoint.clone()),
                Err(error) => endpoints.unreadable.push(error.clone()),
            }
            let _new = endpoints.known.insert(node.path.clone(), (stat, result));
        }
        mistake!(BadInstanceEndsAll: if !endpoints.unreadable.is_empty() {
            endpoints.all.clear();
        });
        endpoints
    }
}

fn read<T: DeserializeOwned>(
    node: &Node,
    stat: Stat,
    format: InstanceFormat,
) -> Result<Arc<Endpoint<T>>, Arc<Error>> {
    match format.read(&node.path, &node.data) {
        Ok(instance) => Ok(Arc::new(Endpoint { instance, path: node.path.clone(), stat })),
        Err(error) => {
            tracing::warn!(%error, "could not read an instance");
            Err(Arc::new(error))
        }
    }
}

impl<T> Default for Endpoints<T> {
    fn default() -> Self {
        Self { all: Vec::new(), unreadable: Vec::new(), known: BTreeMap::new() }
    }
}

impl<T> fmt::Debug for Endpoint<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("instance", &self.instance)
            .field("path", &self.path)
            .field("stat", &self.stat)
            .finish()
    }
}

impl<T> fmt::Debug for Endpoints<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoints")
            .field("all", &self.all)
            .field("unreadable", &self.unreadable)
            .finish_non_exhaustive()
    }
}
