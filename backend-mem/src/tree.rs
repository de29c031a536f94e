//! [`Tree`]: the nodes, and the writes to them. It knows no sessions and no watches, and gets the
//! time as an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use rustc_hash::FxHashMap;
use synod_core::path::Path;
use synod_core::random::mix;
use synod_core::store::{
    Facts, Found, Lifetime, Node, Revision, Sequence, SessionId, Stat, Version,
};

/// Sequences end where those of ZooKeeper do.
pub(crate) const LAST_SEQUENCE: u64 = i32::MAX as u64;

/// All nodes of a store, by path.
#[derive(Clone, Debug)]
pub struct Tree {
    // Looked up, never iterated: its order has no meaning.
    entries: FxHashMap<Path, Entry>,
    /// Empty containers that are not collected yet.
    empties: BTreeSet<Path>,
    nodes: usize,
}

/// A node, or a container.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    /// `None` for a container.
    pub(crate) node: Option<Body>,
    children: BTreeSet<Path>,
    /// The sequential children, in order.
    line: BTreeMap<Sequence, Path>,
    next_sequence: u64,
}

/// The parts of an entry that only a node has.
#[derive(Clone, Debug)]
pub struct Body {
    /// Its data.
    pub data: Bytes,
    /// Its version, revisions and owner.
    pub stat: Stat,
    /// Its place among the sequential children of its directory.
    pub sequence: Option<Sequence>,
    /// Its time to live.
    pub ttl: Option<Duration>,
}

impl Body {
    pub(crate) fn new(
        data: Bytes,
        at: Revision,
        lifetime: Lifetime,
        session: SessionId,
        sequence: Option<Sequence>,
        version: Version,
    ) -> Self {
        let owner = (lifetime == Lifetime::Session).then_some(session);
        let ttl = match lifetime {
            Lifetime::Ttl(ttl) => Some(ttl),
            _ => None,
        };
        Self { data, stat: Stat::new(at, at, version, owner), sequence, ttl }
    }

    /// The same node with other data.
    pub(crate) fn rewritten(&self, data: Bytes, at: Revision) -> Self {
        let version = Version::new(self.stat.version.get() + 1);
        let stat = Stat::new(self.stat.created, at, version, self.stat.owner);
        Self { data, stat, sequence: self.sequence, ttl: self.ttl }
    }

    pub(crate) fn to_node(&self, path: &Path) -> Node {
        Node::new(path.clone()).with(self.data.clone(), self.stat).with_sequence(self.sequence)
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// A tree without nodes.
    #[must_use]
    pub fn new() -> Self {
        let mut entries = FxHashMap::default();
        entries.insert(Path::root(), Entry::default());
        Self { entries, empties: BTreeSet::new(), nodes: 0 }
    }

    /// The number of nodes, without containers.
    pub(crate) fn len(&self) -> usize {
        self.nodes
    }

    pub(crate) fn body(&self, path: &Path) -> Option<&Body> {
        self.entries.get(path)?.node.as_ref()
    }

    /// The children of a node or container, sorted by name.
    pub fn children(&self, path: &Path) -> impl Iterator<Item = &Path> {
        self.entries.get(path).into_iter().flat_map(|entry| &entry.children)
    }

    /// The sequential children, oldest first.
    pub(crate) fn line(&self, path: &Path) -> impl DoubleEndedIterator<Item = (Sequence, &Path)> {
        let line = self.entries.get(path).map(|entry| &entry.line);
        line.into_iter().flatten().map(|(sequence, path)| (*sequence, path))
    }

    /// Puts a node, new or rewritten, and creates the containers above it.
    pub(crate) fn put(&mut self, path: &Path, body: Body) {
        let sequence = body.sequence;
        let entry = self.entries.entry(path.clone()).or_default();
        let was = entry.node.replace(body);
        if was.is_some() {
            return;
        }
        self.nodes += 1;
        self.empties.remove(path);
        self.link(path, sequence);
    }

    /// Adds an entry to its parent, and the parent to its own.
    fn link(&mut self, path: &Path, sequence: Option<Sequence>) {
        let Some(parent) = path.parent() else { return };
        let is_new = !self.entries.contains_key(&parent);
        let entry = self.entries.entry(parent.clone()).or_default();
        entry.children.insert(path.clone());
        if let Some(sequence) = sequence {
            entry.line.insert(sequence, path.clone());
            entry.next_sequence = entry.next_sequence.max(sequence.get() + 1);
        }
        self.empties.remove(&parent);
        if is_new {
            self.link(&parent, None);
        }
    }

    /// Removes a node. A container that becomes empty is collected later.
    pub(crate) fn remove(&mut self, path: &Path) -> Option<Body> {
        let entry = self.entries.get_mut(path)?;
        let body = entry.node.take()?;
        self.nodes -= 1;
        if entry.children.is_empty() {
            self.drop_entry(path, body.sequence);
        }
        Some(body)
    }

    /// Removes an entry without children, and marks its parent if that was its last child.
    fn drop_entry(&mut self, path: &Path, sequence: Option<Sequence>) {
        self.entries.remove(path);
        self.empties.remove(path);
        let Some(parent) = path.parent() else { return };
        if let Some(entry) = self.entries.get_mut(&parent) {
            entry.children.remove(path);
            if let Some(sequence) = sequence {
                entry.line.remove(&sequence);
            }
            if entry.children.is_empty() && entry.node.is_none() && !parent.is_root() {
                self.empties.insert(parent);
            }
        }
    }

    /// Collects about half of the empty containers, because the contract allows a container to be
    /// collected immediately or later. The same `salt` selects the same containers.
    pub fn collect(&mut self, salt: u64) {
        if self.empties.is_empty() {
            return;
        }
        let chosen =
            |(index, path): (u64, &Path)| (mix(salt ^ index) & 1 == 0).then(|| path.clone());
        let doomed: Vec<Path> = (0..).zip(&self.empties).filter_map(chosen).collect();
        for path in doomed {
            self.drop_entry(&path, None);
        }
    }

    /// Collects every empty container. Returns `true` if there was any.
    pub fn collect_all(&mut self) -> bool {
        let any = !self.empties.is_empty();
        while let Some(path) = self.empties.pop_first() {
            self.drop_entry(&path, None);
        }
        any
    }

    /// Returns `true` if there is a node or a container at `path`.
    pub(crate) fn contains(&self, path: &Path) -> bool {
        self.entries.contains_key(path)
    }

    /// The sequence after the last one of a directory.
    pub(crate) fn next_sequence(&self, dir: &Path) -> u64 {
        self.entries.get(dir).map_or(0, |entry| entry.next_sequence)
    }

    /// The next sequence of a directory, sometimes after a gap, which the contract allows.
    pub(crate) fn next_sequence_or_so(&self, dir: &Path, salt: u64) -> u64 {
        let next = self.next_sequence(dir);
        let gap = u64::from(mix(salt).is_multiple_of(4));
        if next + gap <= LAST_SEQUENCE { next + gap } else { next }
    }

    /// Sets the next sequence of an existing directory.
    pub(crate) fn skip_sequences(&mut self, dir: &Path, next: u64) {
        if let Some(entry) = self.entries.get_mut(dir) {
            entry.next_sequence = entry.next_sequence.max(next);
        }
    }
}

impl Facts for Tree {
    fn node(&self, path: &Path) -> Option<Found> {
        let body = self.body(path)?;
        let leased = body.stat.owner.is_some() || body.ttl.is_some();
        Some(Found { version: body.stat.version, leased })
    }

    fn occupied(&self, path: &Path, deleted: &dyn Fn(&Path) -> bool) -> bool {
        self.children(path).any(|child| {
            (self.body(child).is_some() && !deleted(child)) || self.occupied(child, deleted)
        })
    }
}
