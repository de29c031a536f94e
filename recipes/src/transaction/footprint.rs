//! [`Footprint`]: the nodes that one run has read, and its writes. Decides, and sends nothing.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{
    Expect, Lifetime, Node, Op, Query, RejectReason, Rejected, Revision, Stat, View,
};

use crate::mutant::mistake;
use crate::transaction::isolation::Isolation;

/// The action that error messages of a transaction name.
pub(super) const DOING: &str = "running a transaction";

/// The nodes that one run has read, and its writes.
#[derive(Clone, Debug)]
pub(super) struct Footprint {
    isolation: Isolation,
    /// The known nodes, and the paths that are known to have none. At the levels with a snapshot,
    /// all belong to one snapshot.
    known: BTreeMap<Path, Option<KnownNode>>,
    /// The paths that the run has read.
    read: BTreeSet<Path>,
    writes: BTreeMap<Path, BufferedWrite>,
    /// The revision of the first view.
    base: Option<Revision>,
    /// The revision of the last view.
    last: Revision,
}

/// The result for a path that has to be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotKnown;

/// A node as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownNode {
    data: Bytes,
    stat: Stat,
}

/// A write of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BufferedWrite {
    Put(Bytes),
    /// The create of a node that the run found missing.
    Create(Bytes),
    Delete,
}

/// The next step after a rejection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AfterRejection {
    /// Runs the function again: a node that the run relied on has changed.
    RunAgain,
    /// Sends the run again: the nodes that it relied on are unchanged.
    SendAgain,
    /// The store shows no reason for the rejection: a node has changed and changed back, or the
    /// store never accepts the run.
    Unexplained,
    /// The store never accepts these writes, regardless of other clients.
    Refused,
}

impl Footprint {
    pub(super) fn new(isolation: Isolation) -> Self {
        let (known, read, writes) = <(BTreeMap<_, _>, BTreeSet<_>, BTreeMap<_, _>)>::default();
        Self { isolation, known, read, writes, base: None, last: Revision::ZERO }
    }

    /// Returns the footprint of the next run, which knows the nodes of this one.
    pub(super) fn next(self) -> Self {
        let Self { isolation, known, last, .. } = self;
        Self { known, base: Some(last), last, ..Self::new(isolation) }
    }

    /// Rejects a read beyond the limit of one query, because one query has to read all of the nodes
    /// again.
    pub(super) fn admit(&self, path: &Path) -> Result<()> {
        const MAX: usize = Query::MAX_NODES;
        let is_full = self.isolation.checks_reads() && self.read.len() >= MAX;
        if !is_full || self.read.contains(path) || self.writes.contains_key(path) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::TooLarge, DOING)
            .at(path)
            .because(format!("a run reads {MAX} nodes at most")))
    }

    /// Reads without a request: the data that the run has written, or the known node.
    pub(super) fn read(&mut self, path: &Path) -> Result<Option<Bytes>, NotKnown> {
        match self.writes.get(path) {
            Some(BufferedWrite::Put(data) | BufferedWrite::Create(data)) => {
                return Ok(Some(data.clone()));
            }
            Some(BufferedWrite::Delete) => return Ok(None),
            None => {}
        }
        let known = self.known.get(path).ok_or(NotKnown)?;
        self.read.insert(path.clone());
        Ok(known.as_ref().map(|known| known.data.clone()))
    }

    /// Returns the query that adds `more` to the nodes that the run has read, in one snapshot.
    pub(super) fn query(&self, more: &BTreeSet<Path>) -> Option<Query> {
        self.about(&self.relied().chain(more).collect())
    }

    /// Returns the query for all nodes that the run relies on or writes.
    pub(super) fn whole(&self) -> Option<Query> {
        self.about(&self.relied().chain(self.writes.keys()).collect())
    }

    /// Returns the query for these nodes, and for as many other known nodes as fit: an earlier run
    /// may have read them.
    fn about(&self, needed: &BTreeSet<&Path>) -> Option<Query> {
        let room = Query::MAX_NODES.saturating_sub(needed.len());
        let others = self.known.keys().filter(|path| !needed.contains(path)).take(room);
        let mut all = needed.iter().copied().chain(others).cloned();
        Some(Query::nodes(all.next()?, all))
    }

    /// The paths that were read, if a commit needs them to be unchanged.
    fn relied(&self) -> impl Iterator<Item = &Path> {
        self.read.iter().filter(|_path| self.isolation.checks_reads())
    }

    /// Replaces the known nodes by the nodes of a view. Returns `true` if the nodes that the run
    /// has read are unchanged; `None` if the query did not cover all of them.
    pub(super) fn record_view(&mut self, query: &Query, view: View) -> Result<Option<bool>> {
        let asked: BTreeSet<&Path> = query.nodes_asked().collect();
        if !self.relied().all(|path| asked.contains(path)) {
            return Ok(None);
        }
        let mut known: BTreeMap<Path, Option<KnownNode>> =
            asked.into_iter().map(|path| (path.clone(), None)).collect();
        for node in view.nodes {
            known.insert(node.path.clone(), Some(KnownNode::of(node)?));
        }
        let same = self.relied().all(|path| is_same(self.known.get(path), known.get(path)));
        mistake!(TransactionMixesMoments: let same = true);
        self.base.get_or_insert(view.revision);
        (self.known, self.last) = (known, view.revision);
        Ok(Some(same))
    }

    /// Records the view of [`Footprint::whole`], whose query has all nodes that the run has read.
    pub(super) fn record_whole(&mut self, query: &Query, view: View) -> Result<bool> {
        self.record_view(query, view)?.ok_or_else(|| {
            Error::new(ErrorKind::Backend, DOING)
                .because("a query did not have all nodes that were read")
        })
    }

    /// Adds one node, which may belong to another snapshot.
    pub(super) fn record_node(&mut self, path: &Path, node: Option<Node>) -> Result<()> {
        let known = node.map(KnownNode::of).transpose()?;
        self.known.entry(path.clone()).or_insert(known);
        Ok(())
    }

    /// Writes data, whether or not there is a node. Every write returns the buffered write that it
    /// replaces.
    pub(super) fn put(&mut self, path: &Path, data: Bytes) -> Option<BufferedWrite> {
        let write = match self.writes.get(path) {
            Some(BufferedWrite::Create(_)) => BufferedWrite::Create(data),
            _ => BufferedWrite::Put(data),
        };
        self.writes.insert(path.clone(), write)
    }

    /// Creates a node that was read as missing.
    pub(super) fn create(&mut self, path: &Path, data: Bytes) -> Option<BufferedWrite> {
        // A node that this run deletes is replaced.
        let write = match self.known.get(path) {
            Some(Some(_)) => BufferedWrite::Put(data),
            _ => BufferedWrite::Create(data),
        };
        self.writes.insert(path.clone(), write)
    }

    pub(super) fn delete(&mut self, path: &Path) -> Option<BufferedWrite> {
        self.writes.insert(path.clone(), BufferedWrite::Delete)
    }

    pub(super) fn has_read(&self) -> bool {
        !self.read.is_empty()
    }

    /// Returns `true` if a view was recorded, in this run or an earlier one.
    pub(super) fn has_base(&self) -> bool {
        self.base.is_some()
    }

    /// Returns `true` if a node that must not have changed since the first read is unknown.
    pub(super) fn lacks_nodes(&self) -> bool {
        self.blind().any(|path| !self.known.contains_key(path))
    }

    /// Returns `true` if a node that is written without having been read was or may have been
    /// written after the first read.
    pub(super) fn is_later(&self) -> bool {
        let base = self.base.unwrap_or_default();
        let mut known = self.blind().filter_map(|path| self.known.get(path)?.as_ref());
        known.any(|known| known.stat.modified > base)
    }

    /// The paths that are written without having been read, and must not have changed since the
    /// first read.
    fn blind(&self) -> impl Iterator<Item = &Path> {
        let bound = self.isolation == Isolation::SerializableSnapshot && self.base.is_some();
        self.writes.keys().filter(move |path| bound && !self.read.contains(*path))
    }

    /// Returns the operations that commit the run, in an order that the store accepts: children are
    /// deleted before their parents, and parents are created before their children.
    pub(super) fn ops(&self) -> Vec<Op> {
        let paths: BTreeSet<&Path> = self.read.iter().chain(self.writes.keys()).collect();
        let ops = paths.into_iter().filter_map(|path| self.op(path));
        let (checks, writes): (Vec<Op>, Vec<Op>) = ops.partition(|op| !op.is_write());
        let (deletes, writes): (Vec<Op>, Vec<Op>) =
            writes.into_iter().partition(|op| matches!(op, Op::Delete { .. }));
        checks.into_iter().chain(deletes.into_iter().rev()).chain(writes).collect()
    }

    fn op(&self, path: &Path) -> Option<Op> {
        let known = self.known.get(path);
        let bound = self.is_bound(path);
        let path = path.clone();
        let expected = |known: &KnownNode| {
            if bound { Expect::Version(known.stat.version) } else { Expect::Any }
        };
        Some(match (self.writes.get(&path), known) {
            (None | Some(BufferedWrite::Delete), Some(None)) if bound => {
                Op::Check { path, expect: Expect::Absent }
            }
            (None, Some(Some(known))) if bound => Op::Check { path, expect: expected(known) },
            (None, _) | (Some(BufferedWrite::Delete), Some(None)) => return None,
            (Some(BufferedWrite::Put(data)), Some(Some(known))) => {
                Op::Set { path, data: data.clone(), expect: expected(known) }
            }
            // Most nodes that are written exist. If not, the rejection shows that.
            (Some(BufferedWrite::Put(data)), None) => {
                Op::Set { path, data: data.clone(), expect: Expect::Any }
            }
            (Some(BufferedWrite::Put(data) | BufferedWrite::Create(data)), _) => {
                let (data, lifetime) = (data.clone(), Lifetime::Persistent);
                Op::Create { path, data, lifetime, sequential: false }
            }
            (Some(BufferedWrite::Delete), Some(Some(known))) => {
                Op::Delete { path, expect: expected(known) }
            }
            (Some(BufferedWrite::Delete), None) => Op::Delete { path, expect: Expect::Any },
        })
    }

    /// Returns `true` if a commit requires this path to be unchanged.
    fn is_bound(&self, path: &Path) -> bool {
        match self.isolation {
            Isolation::SerializableSnapshot => true,
            isolation => isolation.checks_reads() && self.read.contains(path),
        }
    }

    /// Records the current nodes of the store, and decides the next step after a rejection.
    pub(super) fn judge(
        &mut self,
        no: &Rejected,
        query: &Query,
        view: View,
    ) -> Result<AfterRejection> {
        let (ops, before) = (self.ops(), self.known.clone());
        let same = self.record_whole(query, view)?;
        let bound = self.writes.keys().filter(|path| self.is_bound(path));
        let mut bound = bound.filter(|path| before.contains_key(*path));
        let kept = bound.all(|path| is_same(before.get(path), self.known.get(path)));
        let created =
            self.writes.iter().filter(|(_, write)| matches!(write, BufferedWrite::Create(_)));
        let mut created = created.map(|(path, _)| self.known.get(path));
        if !same || !kept || created.any(|known| matches!(known, Some(Some(_)))) {
            return Ok(AfterRejection::RunAgain);
        }
        let race = matches!(
            no.reason,
            RejectReason::Exists | RejectReason::Missing | RejectReason::OtherVersion
        );
        Ok(match race {
            false => AfterRejection::Refused,
            true if ops == self.ops() => AfterRejection::Unexplained,
            true => AfterRejection::SendAgain,
        })
    }

    /// Returns `true` if a view shows that the run was not applied: a node that it would have
    /// replaced or deleted still has its version. Versions do not recur.
    pub(super) fn is_untouched(&self, view: &View) -> bool {
        let bound = self.writes.keys().filter(|path| self.is_bound(path));
        let mut known = bound.filter_map(|path| Some((path, self.known.get(path)?.as_ref()?)));
        known.any(|(path, known)| {
            let now = view.nodes.iter().find(|node| node.path == *path).and_then(|node| node.stat);
            now.is_some_and(|now| is_same_node(&now, &known.stat))
        })
    }
}

impl KnownNode {
    fn of(node: Node) -> Result<Self> {
        let stat = node.stat.ok_or_else(|| {
            Error::new(ErrorKind::Backend, DOING)
                .at(&node.path)
                .because("the store returned no version of it")
        })?;
        Ok(Self { data: node.data, stat })
    }
}

/// Returns `true` if a path is unchanged. A node that was deleted and created again has changed.
fn is_same(before: Option<&Option<KnownNode>>, now: Option<&Option<KnownNode>>) -> bool {
    match (before, now) {
        (Some(Some(before)), Some(Some(now))) => is_same_node(&before.stat, &now.stat),
        (Some(None), Some(None)) => true,
        _ => false,
    }
}

fn is_same_node(before: &Stat, now: &Stat) -> bool {
    (before.created, before.version) == (now.created, now.version)
}

#[cfg(test)]
mod tests;
