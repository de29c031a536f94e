//! Containers, and what tells them from nodes.
//!
//! The servers have containers, but show no difference between one and a persistent node. So those
//! that are made here carry a mark as their data, and cannot be written by anybody: a plain set is
//! refused by the server itself. A container that others made, without the mark, is a node to us.
//!
//! The server collects a container that is empty only if something was in it once. Therefore each
//! is made together with its first child, or with a child that goes at once ([`PROBE`]).

use std::collections::BTreeSet;
use std::sync::LazyLock;

use synod_core::path::Path;
use zookeeper_client::{
    Acl, Acls, AuthId, Client, CreateMode, CreateOptions, Permission, Stat as ZkStat,
};

use crate::error::Trouble;
use crate::options::Access;
use crate::read::Snapshot;
use crate::wire::Wire;

/// The data of a container. Nobody writes this by accident.
pub(crate) const MARK: &[u8] = b"\x00synod container 5f0e\x9c\x00";

/// The name of a child that lives only within one transaction.
pub(crate) const PROBE: &str = ".synod-probe-5f0e9c";

/// Whether what was read is a container. One is never written, and never anybody's.
pub(crate) fn is_container(data: &[u8], stat: &ZkStat) -> bool {
    data == MARK && stat.version == 0 && stat.ephemeral_owner == 0
}

/// Who may do what with a node.
pub(crate) fn node_acls(access: Access) -> Acls<'static> {
    match access {
        Access::Creator => Acls::creator_all(),
        Access::Open => Acls::anyone_all(),
    }
}

/// How a container is made: everything is allowed but writing it.
pub(crate) fn options(access: Access) -> CreateOptions<'static> {
    static CREATOR: LazyLock<[Acl; 1]> =
        LazyLock::new(|| [Acl::new(all_but_writing(), AuthId::authed())]);
    static ANYONE: LazyLock<[Acl; 1]> =
        LazyLock::new(|| [Acl::new(all_but_writing(), AuthId::anyone())]);

    let acls: &'static [Acl] = match access {
        Access::Creator => &*CREATOR,
        Access::Open => &*ANYONE,
    };
    CreateMode::Container.with_acls(Acls::new(acls))
}

fn all_but_writing() -> Permission {
    Permission::READ | Permission::CREATE | Permission::DELETE | Permission::ADMIN
}

/// A child of `container` that only lives within one transaction.
pub(crate) fn probe(container: &Path) -> String {
    format!("{}/{PROBE}", container.as_str())
}

/// Whether a path is that of a [`probe`].
pub(crate) fn is_probe(path: &str) -> bool {
    path.ends_with(PROBE)
}

/// What stands at a path where something is in the way.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing at all.
    Nothing,
    /// A node, or something with a node below it.
    Something,
    /// Containers with no node in them, the innermost first. The path's own is the last, if it is
    /// one.
    Hollow(Vec<Path>),
}

/// Finds out what stands at `path`, as if the nodes in `gone` were deleted.
pub(crate) async fn standing(
    wire: &Wire,
    client: &Client,
    path: &Path,
    gone: &BTreeSet<&Path>,
) -> Result<Standing, Trouble> {
    Ok(judge(path, &Snapshot::take(wire, client, path, true).await?, gone))
}

/// [`standing`], when the node at `path` itself does not count, only what is below it.
pub(crate) async fn standing_below(
    wire: &Wire,
    client: &Client,
    path: &Path,
    gone: &BTreeSet<&Path>,
) -> Result<Standing, Trouble> {
    let mut snapshot = Snapshot::take(wire, client, path, true).await?;
    if snapshot.nodes.remove(path.as_str()).is_none() {
        return Ok(Standing::Nothing);
    }
    Ok(match judge(path, &snapshot, gone) {
        Standing::Nothing => Standing::Hollow(Vec::new()),
        other => other,
    })
}

fn judge(path: &Path, snapshot: &Snapshot, gone: &BTreeSet<&Path>) -> Standing {
    let left = snapshot.nodes.iter().filter(|(found, _)| {
        // The node of the path itself stands, whatever else goes.
        found.as_str() == path.as_str() || !gone.iter().any(|gone| gone.as_str() == found.as_str())
    });
    let mut hollow = Vec::new();
    for (found, node) in left {
        match Path::new(found) {
            Ok(found) if node.is_container() => hollow.push(found),
            _ => return Standing::Something,
        }
    }
    hollow.reverse();
    if hollow.is_empty() { Standing::Nothing } else { Standing::Hollow(hollow) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_alone_makes_no_container() {
        assert!(
            !Permission::WRITE.has(all_but_writing()) && !all_but_writing().has(Permission::WRITE)
        );
        assert!(is_probe(&probe(&Path::new("/a/b").expect("valid"))));
        assert!(!is_probe("/a/b"));
    }
}
