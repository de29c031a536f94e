//! [`Roster`]: the members of a partition and their claims, in one view.

use std::collections::{BTreeMap, BTreeSet};

use synod_core::error::Result;
use synod_core::name::Name;
use synod_core::path::Path;
use synod_core::store::{Node, Query, Revision, SessionId, Version, View};

use crate::layout::partition::{CLAIMS, MEMBERS};
use crate::partition::division::{Holders, Weights, divide};

/// The paths of a partition.
#[derive(Clone, Debug)]
pub(super) struct PartitionPaths {
    root: Path,
    members: Path,
    claims: Path,
}

/// The existing members, and the items that they hold.
#[derive(Debug)]
pub(super) struct Roster {
    pub(super) revision: Revision,
    versions: BTreeMap<String, Version>,
    weights: Weights,
    claims: BTreeMap<String, ItemClaim>,
}

/// The node by which a member holds an item.
#[derive(Debug)]
struct ItemClaim {
    /// The name of the member's node.
    member: String,
    /// Unknown for a claim that was just created, if the store did not report it.
    created: Option<Revision>,
    owner: Option<SessionId>,
}

/// A claim of a member.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnClaim {
    pub(super) created: Option<Revision>,
    /// True if it names the member's current node. Otherwise the item must be released, because no
    /// other member knows its holder.
    pub(super) is_named: bool,
}

impl PartitionPaths {
    pub(super) fn new(root: &Path) -> Result<Self> {
        let (members, claims) = (root.join(MEMBERS)?, root.join(CLAIMS)?);
        Ok(Self { root: root.clone(), members, claims })
    }

    /// The query for the whole partition.
    pub(super) fn query(&self) -> Query {
        Query::subtree(&self.root)
    }

    pub(super) fn members(&self) -> &Path {
        &self.members
    }

    pub(super) fn is_member(&self, path: &Path) -> bool {
        path.is_below(&self.members)
    }

    /// The claim to an item.
    pub(super) fn claim(&self, item: &str) -> Result<Path> {
        Ok(self.claims.join(Name::encode(item)?.as_str())?)
    }

    /// The item whose claim is at a path.
    pub(super) fn item(&self, path: &Path) -> Option<String> {
        let is_claim = path.parent_str() == Some(self.claims.as_str());
        Name::new(path.name()).ok().filter(|_| is_claim)?.decode()
    }
}

impl Roster {
    pub(super) fn of(paths: &PartitionPaths, view: View) -> Self {
        let (mut versions, mut weights) = (BTreeMap::new(), Weights::new());
        let mut claims = BTreeMap::new();
        for node in view.nodes {
            let Some(stat) = node.stat else { continue };
            if let Some(item) = paths.item(&node.path) {
                let member = String::from_utf8_lossy(&node.data).into_owned();
                let created = Some(stat.created);
                claims.insert(item, ItemClaim { member, created, owner: stat.owner });
            } else if paths.is_member(&node.path) && stat.owner.is_some() {
                let name = node.path.name().to_owned();
                versions.insert(name.clone(), stat.version);
                weights.insert(name, weight(&node));
            }
        }
        Self { revision: view.revision, versions, weights, claims }
    }

    /// The version of the node of a member, if it exists.
    pub(super) fn version(&self, member: &str) -> Option<Version> {
        self.versions.get(member).copied()
    }

    /// The weight of a member, if it exists.
    pub(super) fn weight(&self, member: &str) -> Option<u32> {
        self.weights.get(member).copied()
    }

    /// The claims of a session that name one of these nodes, and the claims to the given items that
    /// do not name a member because another client has written to them.
    pub(super) fn own(
        &self,
        names: &[String],
        session: SessionId,
        sent: &BTreeSet<String>,
    ) -> BTreeMap<String, OwnClaim> {
        let is_own = |item: &String, claim: &ItemClaim| {
            let is_named = names.contains(&claim.member);
            let was_written = name_of(&claim.member).is_none() && sent.contains(item);
            claim.owner == Some(session) && (is_named || was_written)
        };
        let own = self.claims.iter().filter(|(item, claim)| is_own(item, claim));
        let own = own.map(|(item, claim)| {
            let is_named = names.last() == Some(&claim.member);
            (item.clone(), OwnClaim { created: claim.created, is_named })
        });
        own.collect()
    }

    /// The designated member of each item.
    pub(super) fn target(&self, items: &BTreeSet<String>) -> Holders {
        divide(items, &self.weights, &self.holders())
    }

    /// Returns `true` if each item is held by its designated member, and no other item is held.
    pub(super) fn is_settled(&self, items: &BTreeSet<String>, target: &Holders) -> bool {
        let mut holders = self.holders();
        holders.retain(|item, _| items.contains(item));
        holders == *target
    }

    /// Returns `true` if some member holds an item.
    pub(super) fn has(&self, item: &str) -> bool {
        self.claims.contains_key(item)
    }

    /// The member that holds each item.
    pub(super) fn holders(&self) -> Holders {
        self.claims.iter().map(|(item, claim)| (item.clone(), claim.member.clone())).collect()
    }

    /// Records a write to the node of a member.
    pub(super) fn renew(&mut self, member: &str, version: Version, weight: u32) {
        self.versions.insert(member.to_owned(), version);
        self.weights.insert(member.to_owned(), weight);
    }

    /// Records a claim that was created.
    pub(super) fn claim(
        &mut self,
        item: &str,
        member: &str,
        owner: SessionId,
        created: Option<Revision>,
    ) {
        let (member, owner) = (member.to_owned(), Some(owner));
        self.claims.insert(item.to_owned(), ItemClaim { member, created, owner });
    }

    /// Removes a claim that was deleted, unless the claim is newer than the deletion.
    pub(super) fn forget(&mut self, item: &str, deleted: Option<Revision>) {
        let is_newer = |claim: &ItemClaim| deleted.is_some_and(|at| claim.created > Some(at));
        if !self.claims.get(item).is_some_and(is_newer) {
            self.claims.remove(item);
        }
    }
}

/// The weight of a member. A member whose data is not a number gets nothing: no item may wait for
/// it.
fn weight(node: &Node) -> u32 {
    str::from_utf8(&node.data).ok().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The name of the member with this node name, which is the part before the id, if it is valid.
pub(super) fn name_of(node: &str) -> Option<String> {
    const ID: usize = 32;
    let mut parts = node.rsplitn(3, '-');
    let (_sequence, id, stem) = (parts.next()?, parts.next()?, parts.next()?);
    let is_id = id.len() == ID && id.bytes().all(|it| it.is_ascii_hexdigit());
    Name::new(stem).ok().filter(|_| is_id)?.decode()
}
