//! [`Endpoints`]: the instances of a service that there are, as they are read.

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

/// An instance as the store has it: all of it is of one version of one node.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Endpoint<T> {
    /// What it says.
    pub instance: Instance<T>,
    /// The node of its registration.
    pub path: Path,
    /// The version of that. An instance that was registered anew has another `created`.
    pub stat: Stat,
}

/// The instances of a service at one moment, in the order of their ids, and what could not be read as one.
pub struct Endpoints<T> {
    all: Vec<Arc<Endpoint<T>>>,
    unreadable: Vec<Arc<Error>>,
    /// All nodes, so that none is read twice.
    seen: BTreeMap<Path, SeenEndpoint<T>>,
}

/// What a version of a node was read as.
type SeenEndpoint<T> = (Stat, Result<Arc<Endpoint<T>>, Arc<Error>>);

impl<T> Endpoints<T> {
    /// All instances.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Endpoint<T>>> {
        self.all.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The instance with this id.
    pub fn get(&self, id: &str) -> Option<&Arc<Endpoint<T>>> {
        self.all.iter().find(|it| it.instance.id == id)
    }

    /// Why nodes that are there could not be read as instances. Each error has the path, and never the data.
    pub fn unreadable(&self) -> &[Arc<Error>] {
        &self.unreadable
    }
}

impl<T: DeserializeOwned> Endpoints<T> {
    /// Reads nodes. What was read before is not read again.
    pub(super) fn read<'a>(
        nodes: impl Iterator<Item = &'a Node>,
        format: InstanceFormat,
        before: &Self,
    ) -> Self {
        let mut found = Self::default();
        for (node, stat) in nodes.filter_map(|node| Some((node, node.stat?))) {
            let seen = match before.seen.get(&node.path) {
                Some((last, seen)) if *last == stat => seen.clone(),
                _ => read(node, stat, format),
            };
            match &seen {
                Ok(endpoint) => found.all.push(endpoint.clone()),
                Err(error) => found.unreadable.push(error.clone()),
            }
            let _new = found.seen.insert(node.path.clone(), (stat, seen));
        }
        mistake!(BadInstanceEndsAll: if !found.unreadable.is_empty() {
            found.all.clear();
        });
        found
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
            tracing::warn!(%error, "an instance cannot be read");
            Err(Arc::new(error))
        }
    }
}

impl<T> Default for Endpoints<T> {
    fn default() -> Self {
        Self { all: Vec::new(), unreadable: Vec::new(), seen: BTreeMap::new() }
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
