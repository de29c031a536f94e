//! Containers, and what distinguishes them from nodes.
//!
//! The servers have containers, but show no difference between a container and a persistent node.
//! So the containers that this backend creates have a fixed text as their data, and an access list
//! without write permission: the server itself refuses a plain set. A container that another client
//! made, without that text, counts as a node.
//!
//! The server collects an empty container only if it once had a child. Therefore each is created
//! together with its first child, or with a child that is deleted at once ([`PROBE`]).

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join;
use synod_core::path::Path;

use crate::client::{AclSet, Client, CreateMode, CreateOptions, ZkError};
use crate::connection::Connection;
use crate::error::Trouble;
use crate::guard;
use crate::options::Access;
use crate::snapshot::Snapshot;
use crate::stat::births;

/// The name of a child that exists only within one transaction.
pub(crate) const PROBE: &str = ".synod-probe-5f0e9c";

/// The access rights of a node.
pub(crate) fn node_acls(access: Access) -> AclSet {
    match access {
        Access::Creator => AclSet::CREATOR,
        Access::Open => AclSet::ANYONE,
    }
}

/// How a container is created: with every permission except writing.
pub(crate) fn options(access: Access) -> CreateOptions {
    CreateMode::Container.with_acls(node_acls(access).without_writing())
}

/// A child of `dir` that exists only within one transaction.
pub(crate) fn probe(dir: &Path) -> String {
    let dir = if dir.is_root() { "" } else { dir.as_str() };
    format!("{dir}/{PROBE}")
}

/// Whether a path is that of a [`probe`].
pub(crate) fn is_probe(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with(PROBE))
}

/// What exists at a path that an operation needs to be free.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing.
    Nothing,
    /// A node, or something with a node below it.
    Something,
    /// Containers without a node in them.
    Hollow(Hollow),
}

/// Containers without a node in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hollow {
    /// The innermost first.
    pub(crate) containers: Vec<Path>,
    /// How many children each directory of these containers was ever given. While the number is the
    /// same, no other node can have taken a container's place.
    pub(crate) births: BTreeMap<Path, i32>,
    /// The guard of the node that they are below.
    pub(crate) guard: Option<String>,
}

/// Finds out what exists at `path`, as if the nodes in `gone` were deleted.
pub(crate) async fn standing(
    wire: &Connection,
    client: &Client,
    path: &Path,
    gone: &BTreeSet<&Path>,
) -> Result<Standing, Trouble> {
    let dir = path.parent().unwrap_or_else(Path::root);
    // Read before the node itself, so that a creation in between is noticed.
    let above = client.get_data(dir.as_str());
    let snapshot = Snapshot::take_unwatched(wire, client, path);
    let (above, snapshot) = join(wire.answer(above), snapshot).await;
    match above {
        Ok((_data, stat)) => Ok(judge(path, (dir, births(&stat)), &snapshot?, gone)),
        Err(Trouble::Said(ZkError::NoNode)) => Ok(Standing::Nothing),
        Err(trouble) => Err(trouble),
    }
}

/// [`standing`], except that the node at `path` itself does not count, only nodes below it.
pub(crate) async fn standing_below(
    wire: &Connection,
    client: &Client,
    path: &Path,
    gone: &BTreeSet<&Path>,
) -> Result<Standing, Trouble> {
    let mut snapshot = Snapshot::take_unwatched(wire, client, path).await?;
    let Some(own) = snapshot.nodes.remove(path.as_str()) else { return Ok(Standing::Nothing) };
    let guard = snapshot.is_guarded(path).then(|| guard::guard(path));
    Ok(match judge(path, (path.clone(), births(&own.stat)), &snapshot, gone) {
        Standing::Nothing => Standing::Hollow(Hollow { guard, ..Hollow::default() }),
        Standing::Hollow(hollow) => Standing::Hollow(Hollow { guard, ..hollow }),
        Standing::Something => Standing::Something,
    })
}

fn judge(path: &Path, above: (Path, i32), snapshot: &Snapshot, gone: &BTreeSet<&Path>) -> Standing {
    let left = snapshot.nodes.iter().filter(|(found, _)| {
        // The node at the path itself remains, whatever else is deleted.
        found.as_str() == path.as_str() || !gone.iter().any(|gone| gone.as_str() == found.as_str())
    });
    let mut hollow = Hollow::default();
    for (found, node) in left {
        match Path::new(found) {
            Ok(found) if node.is_container() => {
                let inside = hollow.births.keys().chain([&above.0]);
                let dir = found.parent().unwrap_or_else(Path::root);
                if !inside.into_iter().any(|known| *known == dir)
                    && let Some(node) = snapshot.nodes.get(dir.as_str())
                {
                    hollow.births.insert(dir, births(&node.stat));
                }
                hollow.containers.push(found);
            }
            _ => return Standing::Something,
        }
    }
    if hollow.containers.is_empty() {
        return Standing::Nothing;
    }
    hollow.births.insert(above.0, above.1);
    hollow.containers.reverse();
    Standing::Hollow(hollow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_alone_makes_no_container() {
        let options = [Access::Creator, Access::Open].map(options);
        assert!(options.iter().all(|it| it.acls().allows_reading() && !it.acls().allows_writing()));
        for dir in ["/a/b", "/"] {
            let probe = probe(&Path::new(dir).expect("valid"));
            assert!(is_probe(&probe) && is_probe(&format!("{probe}0000000007")), "{probe}");
        }
        assert!(!is_probe("/a/b"));
    }
}
