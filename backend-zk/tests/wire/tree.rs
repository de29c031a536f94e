//! [`Tree`]: the nodes that one server keeps, as `DataTree` does.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::Acl;

/// The owner of a node, and when it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Persistent,
    /// Owned by this session.
    Ephemeral(i64),
    Container,
    /// Expires after this many milliseconds without a write.
    Ttl(i64),
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) data: Vec<u8>,
    pub(crate) acl: Vec<Acl>,
    pub(crate) life: Life,
    pub(crate) children: BTreeSet<String>,
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    pub(crate) pzxid: i64,
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    pub(crate) version: i32,
    /// The number of children that were ever created in it.
    pub(crate) children_created: i32,
}

/// The stat of a node in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    pub(crate) pzxid: i64,
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    pub(crate) version: i32,
    pub(crate) cversion: i32,
    pub(crate) aversion: i32,
    pub(crate) owner: i64,
    pub(crate) length: i32,
    pub(crate) children: i32,
}

/// One change, decided by the leader: every server can apply it.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Create { path: String, data: Vec<u8>, acl: Vec<Acl>, life: Life, children_created: i32 },
    Set { path: String, data: Vec<u8>, version: i32 },
    Delete { path: String },
}

/// A committed transaction.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) zxid: i64,
    pub(crate) time: i64,
    pub(crate) session: i64,
    pub(crate) writes: Vec<Write>,
    /// The transaction ends its session.
    pub(crate) closes: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) nodes: BTreeMap<String, Node>,
    /// The last transaction that it has.
    pub(crate) zxid: i64,
}

/// The access list that permits everything to all clients.
pub(crate) fn open_acl() -> Vec<Acl> {
    vec![(31, "world".to_owned(), "anyone".to_owned())]
}

impl Node {
    pub(crate) fn new(zxid: i64, time: i64, data: Vec<u8>, acl: Vec<Acl>, life: Life) -> Self {
        let (children, version, children_created) = (BTreeSet::new(), 0, 0);
        let ((czxid, mzxid, pzxid), (ctime, mtime)) = ((zxid, zxid, zxid), (time, time));
        Self {
            data,
            acl,
            life,
            children,
            czxid,
            mzxid,
            pzxid,
            ctime,
            mtime,
            version,
            children_created,
        }
    }

    pub(crate) fn stat(&self) -> Stat {
        let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let children = count(self.children.len());
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            pzxid: self.pzxid,
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            // A server reports the number of changes: creations and deletions.
            cversion: self.children_created.wrapping_mul(2).wrapping_sub(children),
            aversion: 0,
            owner: if let Life::Ephemeral(session) = self.life { session } else { 0 },
            length: count(self.data.len()),
            children,
        }
    }
}

impl Tree {
    /// The nodes of a new server: the root, and the server's own nodes.
    pub(crate) fn new() -> Self {
        let mut nodes = BTreeMap::new();
        let own = ["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"];
        for path in own {
            nodes.insert(path.to_owned(), Node::new(0, 0, vec![], open_acl(), Life::Persistent));
        }
        let mut tree = Self { nodes, zxid: 0 };
        for path in &own[1..] {
            let (dir, name) = split(path);
            if let Some(dir) = tree.nodes.get_mut(dir) {
                dir.children.insert(name.to_owned());
            }
        }
        tree
    }

    pub(crate) fn apply(&mut self, zxid: i64, time: i64, write: &Write) {
        match write {
            Write::Create { path, data, acl, life, children_created } => {
                let (dir, name) = split(path);
                if let Some(dir) = self.nodes.get_mut(dir) {
                    // The counter must stay where it is once it cannot rise.
                    if *children_created > dir.children_created {
                        (dir.children_created, dir.pzxid) = (*children_created, zxid);
                    }
                    dir.children.insert(name.to_owned());
                }
                let node = Node::new(zxid, time, data.clone(), acl.clone(), *life);
                self.nodes.insert(path.clone(), node);
            }
            Write::Set { path, data, version } => {
                if let Some(node) = self.nodes.get_mut(path) {
                    node.data.clone_from(data);
                    (node.mzxid, node.mtime, node.version) = (zxid, time, *version);
                }
            }
            Write::Delete { path } => {
                self.nodes.remove(path);
                let (dir, name) = split(path);
                if let Some(dir) = self.nodes.get_mut(dir) {
                    dir.children.remove(name);
                    dir.pzxid = dir.pzxid.max(zxid);
                }
            }
        }
    }

    /// The ephemeral nodes of a session.
    pub(crate) fn owned(&self, session: i64) -> Vec<String> {
        let own = self.nodes.iter().filter(|(_, node)| node.life == Life::Ephemeral(session));
        own.map(|(path, _)| path.clone()).collect()
    }

    /// Nodes that the server would delete by now: containers and nodes with a time to live, without
    /// children.
    pub(crate) fn collectable(&self, now: i64) -> Vec<String> {
        let due = |node: &Node| {
            node.children.is_empty()
                && match node.life {
                    Life::Container => node.children_created > 0,
                    Life::Ttl(ttl) => now - node.mtime > ttl,
                    Life::Persistent | Life::Ephemeral(_) => false,
                }
        };
        let due = self.nodes.iter().filter(|(_, node)| due(node));
        due.map(|(path, _)| path.clone()).collect()
    }
}

/// The directory of a path, and the name in it.
pub(crate) fn split(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((dir, name)) => (dir, name),
        None => ("/", path),
    }
}
