//! [`Draft`]: the leader's decision about a write, as `PrepRequestProcessor` makes it: an error, or
//! changes that every server can apply.

use std::collections::BTreeMap;

use crate::protocol::{Acl, Request, code, op};
use crate::tree::{Life, Tree, Write, split};

mod permission {
    pub(super) const WRITE: i32 = 2;
    pub(super) const CREATE: i32 = 4;
    pub(super) const DELETE: i32 = 8;
}
pub(crate) const READ: i32 = 1;

/// The identity of a client: scheme and id.
pub(crate) type Identity = (String, String);

/// The properties of a node that the leader needs.
#[derive(Clone, Debug)]
struct Outline {
    acl: Vec<Acl>,
    life: Life,
    version: i32,
    children_created: i32,
    children: usize,
}

/// The tree as the operations of one transaction change it, one after the other.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    tree: &'a Tree,
    changed: BTreeMap<String, Option<Outline>>,
    session: i64,
    identities: &'a [Identity],
    /// Nodes may have a time to live.
    extended: bool,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(
        tree: &'a Tree,
        session: i64,
        identities: &'a [Identity],
        extended: bool,
    ) -> Self {
        Self { tree, changed: BTreeMap::new(), session, identities, extended }
    }

    fn node(&self, path: &str) -> Option<Outline> {
        if let Some(changed) = self.changed.get(path) {
            return changed.clone();
        }
        self.tree.nodes.get(path).map(|node| Outline {
            acl: node.acl.clone(),
            life: node.life,
            version: node.version,
            children_created: node.children_created,
            children: node.children.len(),
        })
    }

    /// Decides about one operation. A check results in no change.
    pub(crate) fn judge(&mut self, request: &Request) -> Result<Option<Write>, i32> {
        match request {
            Request::Create { op, path, data, acl, flags, ttl } => {
                self.create((*op, *flags, *ttl), path, data, acl).map(Some)
            }
            Request::Delete { path, version } => self.delete(path, *version).map(Some),
            Request::SetData { path, data, version } => self.set(path, data, *version).map(Some),
            Request::Check { path, version } => {
                let node = self.node(path).ok_or(code::NO_NODE)?;
                self.permit(&node.acl, READ)?;
                matches(node.version, *version)?;
                Ok(None)
            }
            _ => Err(code::UNIMPLEMENTED),
        }
    }

    fn create(
        &mut self,
        (op, flags, ttl): (i32, i32, i64),
        path: &str,
        data: &[u8],
        acl: &[Acl],
    ) -> Result<Write, i32> {
        const EPHEMERAL: [i32; 2] = [1, 3];
        const SEQUENTIAL: [i32; 3] = [2, 3, 6];
        const CONTAINER: i32 = 4;
        const TTL: [i32; 2] = [5, 6];

        let life = match flags {
            flags if EPHEMERAL.contains(&flags) => Life::Ephemeral(self.session),
            CONTAINER if op == op::CREATE_CONTAINER => Life::Container,
            flags if TTL.contains(&flags) && op == op::CREATE_TTL => {
                if !self.extended {
                    return Err(code::UNIMPLEMENTED);
                }
                Life::Ttl(ttl)
            }
            _ => Life::Persistent,
        };
        let acl = self.fix(acl)?;
        let (dir, _) = split(path);
        let mut above = self.node(dir).ok_or(code::NO_NODE)?;
        self.permit(&above.acl, permission::CREATE)?;
        let mut path = path.to_owned();
        if SEQUENTIAL.contains(&flags) {
            path = format!("{path}{:010}", above.children_created);
        }
        if self.node(&path).is_some() {
            return Err(code::NODE_EXISTS);
        }
        if matches!(above.life, Life::Ephemeral(_)) {
            return Err(code::NO_CHILDREN_FOR_EPHEMERALS);
        }
        let children_created = above.children_created.wrapping_add(1);
        (above.children_created, above.children) = (children_created, above.children + 1);
        let outline =
            Outline { acl: acl.clone(), life, version: 0, children_created: 0, children: 0 };
        self.changed.insert(dir.to_owned(), Some(above));
        self.changed.insert(path.clone(), Some(outline));
        Ok(Write::Create { path, data: data.to_vec(), acl, life, children_created })
    }

    fn delete(&mut self, path: &str, version: i32) -> Result<Write, i32> {
        let (dir, _) = split(path);
        if ["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"].contains(&path) {
            return Err(code::BAD_ARGUMENTS);
        }
        let mut above = self.node(dir).ok_or(code::NO_NODE)?;
        self.permit(&above.acl, permission::DELETE)?;
        let node = self.node(path).ok_or(code::NO_NODE)?;
        matches(node.version, version)?;
        if node.children > 0 {
            return Err(code::NOT_EMPTY);
        }
        above.children -= 1;
        self.changed.insert(dir.to_owned(), Some(above));
        self.changed.insert(path.to_owned(), None);
        Ok(Write::Delete { path: path.to_owned() })
    }

    fn set(&mut self, path: &str, data: &[u8], version: i32) -> Result<Write, i32> {
        let mut node = self.node(path).ok_or(code::NO_NODE)?;
        self.permit(&node.acl, permission::WRITE)?;
        matches(node.version, version)?;
        node.version = node.version.wrapping_add(1);
        let version = node.version;
        self.changed.insert(path.to_owned(), Some(node));
        Ok(Write::Set { path: path.to_owned(), data: data.to_vec(), version })
    }

    /// An access list with the client's own identities in place of `auth`.
    fn fix(&self, acl: &[Acl]) -> Result<Vec<Acl>, i32> {
        let mut fixed = Vec::new();
        for (permissions, scheme, id) in acl {
            if scheme == "auth" {
                let own = self.identities.iter();
                fixed.extend(own.map(|(scheme, id)| (*permissions, scheme.clone(), id.clone())));
                if self.identities.is_empty() {
                    return Err(code::INVALID_ACL);
                }
            } else {
                fixed.push((*permissions, scheme.clone(), id.clone()));
            }
        }
        if fixed.is_empty() { Err(code::INVALID_ACL) } else { Ok(fixed) }
    }

    fn permit(&self, acl: &[Acl], wanted: i32) -> Result<(), i32> {
        if permits(acl, wanted, self.identities) { Ok(()) } else { Err(code::NO_AUTH) }
    }
}

/// Returns `true` if an access list gives these identities this permission.
pub(crate) fn permits(acl: &[Acl], wanted: i32, identities: &[Identity]) -> bool {
    acl.iter().any(|(permissions, scheme, id)| {
        permissions & wanted != 0
            && (scheme == "world" || identities.iter().any(|(s, i)| s == scheme && i == id))
    })
}

fn matches(version: i32, wanted: i32) -> Result<(), i32> {
    if wanted == -1 || wanted == version { Ok(()) } else { Err(code::BAD_VERSION) }
}
