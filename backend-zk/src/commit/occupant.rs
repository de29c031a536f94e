//! [`Occupant`]: the content of a path that an operation needs to be free.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join;
use synod_core::path::Path;

use crate::client::{Client, ZkError};
use crate::connection::Connection;
use crate::containers::{self, children_created};
use crate::error::Trouble;
use crate::snapshot::Snapshot;

/// The content of a path that an operation needs to be free.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Occupant {
    Nothing,
    /// A node, or something with a node below it.
    Node,
    /// Containers without a node in them.
    EmptyContainers(EmptyContainers),
}

/// Containers without a node in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EmptyContainers {
    /// The innermost first.
    pub(crate) containers: Vec<Path>,
    /// The number of children ever created in the directory of each of these containers. While the
    /// number is the same, no other node can have taken a container's place.
    pub(crate) children_created: BTreeMap<Path, i32>,
    /// The guard of the node that they are below.
    pub(crate) guard: Option<String>,
}

/// Reads the occupant of `path`, as if the nodes in `deleted` did not exist.
pub(crate) async fn occupant(
    connection: &Connection,
    client: &Client,
    path: &Path,
    deleted: &BTreeSet<&Path>,
) -> Result<Occupant, Trouble> {
    let dir = path.parent().unwrap_or_else(Path::root);
    // Read before the node itself, so that a creation in between is noticed.
    let above = client.get_data(dir.as_str());
    let snapshot = Snapshot::take_unwatched(connection, client, path);
    let (above, snapshot) = join(connection.answer(above), snapshot).await;
    match above {
        Ok((_data, stat)) => {
            Ok(classify(path, (dir, children_created(&stat)), &snapshot?, deleted))
        }
        Err(Trouble::Zk(ZkError::NoNode)) => Ok(Occupant::Nothing),
        Err(trouble) => Err(trouble),
    }
}

/// [`occupant`], except that the node at `path` itself does not count, only nodes below it.
pub(crate) async fn occupant_below(
    connection: &Connection,
    client: &Client,
    path: &Path,
    deleted: &BTreeSet<&Path>,
) -> Result<Occupant, Trouble> {
    let mut snapshot = Snapshot::take_unwatched(connection, client, path).await?;
    let Some(own) = snapshot.nodes.remove(path.as_str()) else { return Ok(Occupant::Nothing) };
    let guard = snapshot.is_guarded(path).then(|| containers::guard(path));
    let above = (path.clone(), children_created(&own.stat));
    Ok(match classify(path, above, &snapshot, deleted) {
        Occupant::Nothing => {
            Occupant::EmptyContainers(EmptyContainers { guard, ..EmptyContainers::default() })
        }
        Occupant::EmptyContainers(empty) => {
            Occupant::EmptyContainers(EmptyContainers { guard, ..empty })
        }
        Occupant::Node => Occupant::Node,
    })
}

fn classify(
    path: &Path,
    above: (Path, i32),
    snapshot: &Snapshot,
    deleted: &BTreeSet<&Path>,
) -> Occupant {
    let remaining = snapshot.nodes.iter().filter(|(found, _)| {
        // The node at the path itself is not deleted.
        found.as_str() == path.as_str()
            || !deleted.iter().any(|deleted| deleted.as_str() == found.as_str())
    });
    let mut empty = EmptyContainers::default();
    for (found, node) in remaining {
        match Path::new(found) {
            Ok(found) if node.is_container() => {
                let inside = empty.children_created.keys().chain([&above.0]);
                let dir = found.parent().unwrap_or_else(Path::root);
                if !inside.into_iter().any(|known| *known == dir)
                    && let Some(node) = snapshot.nodes.get(dir.as_str())
                {
                    empty.children_created.insert(dir, children_created(&node.stat));
                }
                empty.containers.push(found);
            }
            _ => return Occupant::Node,
        }
    }
    if empty.containers.is_empty() {
        return Occupant::Nothing;
    }
    empty.children_created.insert(above.0, above.1);
    empty.containers.reverse();
    Occupant::EmptyContainers(empty)
}
