//! [`Footprint`]: what one run has read and is going to write. Decides, and asks the store for nothing.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{
    Expect, Lifetime, Node, Op, Query, RejectReason, Rejected, Revision, Stat, View,
};

use crate::mutant::mistake;
use crate::transaction::isolation::Isolation;

/// What a transaction fails while doing.
pub(super) const DOING: &str = "running a transaction";

/// What one run has read and is going to write.
#[derive(Clone, Debug)]
pub(super) struct Footprint {
    isolation: Isolation,
    /// The nodes that are known, and the paths that are known to have none. At the levels that promise it, all are of one
    /// moment.
    known: BTreeMap<Path, Option<Known>>,
    /// The paths that the run has read.
    read: BTreeSet<Path>,
    writes: BTreeMap<Path, BufferedWrite>,
    /// The first answer reflected everything up to this revision.
    base: Option<Revision>,
    /// The last one.
    moment: Revision,
}

/// A path has to be asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotKnown;

/// A node as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    data: Bytes,
    stat: Stat,
}

/// A write of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BufferedWrite {
    Put(Bytes),
    /// Of a node that the run found missing.
    Create(Bytes),
    Delete,
}

/// What to do after a rejection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AfterRejection {
    /// What the run relied on has changed.
    RunAgain,
    /// What the run relied on is unchanged.
    SendAgain,
    /// What was sent should have been applied, as far as the store shows: it changed in between, or never will.
    Unexplained,
    /// The store does not take these writes, whatever other clients do.
    Refused,
}

impl Footprint {
    pub(super) fn new(isolation: Isolation) -> Self {
        let (known, read, writes) = <(BTreeMap<_, _>, BTreeSet<_>, BTreeMap<_, _>)>::default();
        Self { isolation, known, read, writes, base: None, moment: Revision::ZERO }
    }

    /// The footprint of the next run, which knows already what the rejection of this one has shown.
    pub(super) fn next(self) -> Self {
        let Self { isolation, known, moment, .. } = self;
        Self { known, base: Some(moment), moment, ..Self::new(isolation) }
    }

    /// Refuses to read another node than those that one query is about: a commit has to ask for all of them again.
    pub(super) fn admit(&self, path: &Path) -> Result<()> {
        const MOST: usize = Query::MAX_NODES;
        let is_full = self.isolation.checks_reads() && self.read.len() >= MOST;
        if !is_full || self.read.contains(path) || self.writes.contains_key(path) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::TooLarge, DOING)
            .at(path)
            .because(format!("a run reads {MOST} nodes at most")))
    }

    /// What a read returns without asking the store: the run's own write, or what is known.
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

    /// The question whose answer adds `more` to what the run has read, all as of one moment.
    pub(super) fn query(&self, more: &BTreeSet<Path>) -> Option<Query> {
        self.about(&self.relied().chain(more).collect())
    }

    /// The question for all that the run relies on and writes.
    pub(super) fn whole(&self) -> Option<Query> {
        self.about(&self.relied().chain(self.writes.keys()).collect())
    }

    /// The question for these nodes, and for what else is known, as far as there is room: perhaps only an earlier run has read it.
    fn about(&self, needed: &BTreeSet<&Path>) -> Option<Query> {
        let room = Query::MAX_NODES.saturating_sub(needed.len());
        let others = self.known.keys().filter(|path| !needed.contains(path)).take(room);
        let mut all = needed.iter().copied().chain(others).cloned();
        Some(Query::nodes(all.next()?, all))
    }

    /// The paths that were read, if they must be unchanged.
    fn relied(&self) -> impl Iterator<Item = &Path> {
        self.read.iter().filter(|_path| self.isolation.checks_reads())
    }

    /// Replaces what is known by the answer to a query, which is of one moment. Returns whether what the run has read is
    /// unchanged; `None` if not all of that was asked for.
    pub(super) fn learn(&mut self, query: &Query, view: View) -> Result<Option<bool>> {
        let asked: BTreeSet<&Path> = query.nodes_asked().collect();
        if !self.relied().all(|path| asked.contains(path)) {
            return Ok(None);
        }
        let mut known: BTreeMap<Path, Option<Known>> =
            asked.into_iter().map(|path| (path.clone(), None)).collect();
        for node in view.nodes {
            known.insert(node.path.clone(), Some(Known::of(node)?));
        }
        let same = self.relied().all(|path| is_same(self.known.get(path), known.get(path)));
        mistake!(TransactionMixesMoments: let same = true);
        self.base.get_or_insert(view.revision);
        (self.known, self.moment) = (known, view.revision);
        Ok(Some(same))
    }

    /// [`Footprint::learn`] by the answer to [`Footprint::whole`], which asks for all that the run has read.
    pub(super) fn learn_whole(&mut self, query: &Query, view: View) -> Result<bool> {
        self.learn(query, view)?.ok_or_else(|| {
            Error::new(ErrorKind::Backend, DOING).because("not all that was read was asked for")
        })
    }

    /// Adds one node, which may be of another moment.
    pub(super) fn note(&mut self, path: &Path, node: Option<Node>) -> Result<()> {
        let known = node.map(Known::of).transpose()?;
        self.known.entry(path.clone()).or_insert(known);
        Ok(())
    }

    /// Writes data, whether or not there is a node. Returns the write that this one replaces, as that of each write.
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

    /// Whether something is known, or was before this run.
    pub(super) fn has_base(&self) -> bool {
        self.base.is_some()
    }

    /// Returns whether a path is written and not known that a commit has to know: it must not have changed since the first read.
    pub(super) fn lacks(&self) -> bool {
        self.blind().any(|path| !self.known.contains_key(path))
    }

    /// Returns whether a node that is written without having been read was written after the first read, or may have been.
    pub(super) fn is_later(&self) -> bool {
        let base = self.base.unwrap_or_default();
        let mut known = self.blind().filter_map(|path| self.known.get(path)?.as_ref());
        known.any(|known| known.stat.modified > base)
    }

    /// The paths that are written without having been read, and must not have changed since the first read.
    fn blind(&self) -> impl Iterator<Item = &Path> {
        let bound = self.isolation == Isolation::SerializableSnapshot && self.base.is_some();
        self.writes.keys().filter(move |path| bound && !self.read.contains(*path))
    }

    /// The operations that commit the run, in an order in which the store takes them: children go before their parents, and
    /// parents come before their children.
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
        let expected = |known: &Known| {
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
            // Most nodes that are written are there.
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

    /// Whether a commit needs this path to be as it is known.
    fn is_bound(&self, path: &Path) -> bool {
        match self.isolation {
            Isolation::SerializableSnapshot => true,
            isolation => isolation.checks_reads() && self.read.contains(path),
        }
    }

    /// Decides what to do after a rejection, and learns what the store holds now.
    pub(super) fn judge(
        &mut self,
        no: &Rejected,
        query: &Query,
        view: View,
    ) -> Result<AfterRejection> {
        let (ops, before) = (self.ops(), self.known.clone());
        let same = self.learn_whole(query, view)?;
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

    /// Whether the store still holds one of the nodes that a transaction was to replace or to delete, each at its version.
    /// Then it was not applied: versions do not come back.
    pub(super) fn is_untouched(&self, view: &View) -> bool {
        let bound = self.writes.keys().filter(|path| self.is_bound(path));
        let mut known = bound.filter_map(|path| Some((path, self.known.get(path)?.as_ref()?)));
        known.any(|(path, known)| {
            let now = view.nodes.iter().find(|node| node.path == *path).and_then(|node| node.stat);
            now.is_some_and(|now| is_same_node(&now, &known.stat))
        })
    }
}

impl Known {
    fn of(node: Node) -> Result<Self> {
        let stat = node.stat.ok_or_else(|| {
            Error::new(ErrorKind::Backend, DOING)
                .at(&node.path)
                .because("the store returned no version of it")
        })?;
        Ok(Self { data: node.data, stat })
    }
}

/// Whether a path is as it was. A node that was deleted and created again is another one.
fn is_same(before: Option<&Option<Known>>, now: Option<&Option<Known>>) -> bool {
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
