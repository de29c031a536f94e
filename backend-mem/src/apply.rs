//! Applies a judged transaction to a [`Tree`].

use bytes::Bytes;
use synod_core::path::Path;
use synod_core::random::mix;
use synod_core::store::{
    Change, Kind, Lifetime, Op, OpResult, Query, RejectReason, Rejected, Revision, Sequence,
    SessionId, Stat, Version,
};

use crate::tree::{Body, LAST_SEQUENCE, Tree};

/// One node after a write; `None` if it was deleted.
#[derive(Clone, Debug)]
pub struct Effect {
    /// The node.
    pub path: Path,
    /// The kind of the change.
    pub kind: Kind,
    /// The content of the node after the change.
    pub body: Option<Body>,
    /// The session that owns the node, or owned it.
    pub owner: Option<SessionId>,
}

impl Effect {
    /// Deletes a node.
    pub(crate) fn remove(tree: &mut Tree, path: Path) -> Option<Self> {
        let owner = tree.remove(&path)?.stat.owner;
        Some(Self { path, kind: Kind::Deleted, body: None, owner })
    }

    /// Applies it to another copy of the tree.
    pub fn apply_to(&self, tree: &mut Tree) {
        match &self.body {
            Some(body) => tree.put(&self.path, body.clone()),
            None => drop(tree.remove(&self.path)),
        }
    }

    /// Returns `true` if a watch of `query` is notified of the effect.
    #[must_use]
    pub fn concerns(&self, query: &Query) -> bool {
        query.covers(&self.path, self.kind)
    }

    /// The effect as the change that a watch reports.
    pub fn to_change(&self, at: Revision) -> Change {
        let change = Change::new(self.path.clone(), self.kind).at(at);
        match &self.body {
            Some(body) => change.with_node(body.to_node(&self.path).with_sequence(None)),
            None => change,
        }
    }

    /// The effect as the change that is reported to an observer that reads the node itself.
    pub fn to_hint(&self) -> Change {
        Change::new(self.path.clone(), self.kind)
    }
}

/// The result of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    pub(crate) done: Vec<OpResult>,
    pub(crate) effects: Vec<Effect>,
    /// The last sequential node that it created.
    pub(crate) own: Option<(Path, Sequence)>,
}

/// The names that a store gives to sequential nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Naming {
    /// By a counter, with gaps.
    Gaps,
    /// By a counter, as ZooKeeper does.
    Counter,
    /// By the revision, without appending it to the name, as etcd does.
    Revision,
}

/// An operation, and its assigned sequence.
pub(crate) type Named = (Op, Option<Sequence>);

/// Assigns names to the sequential creates of a transaction.
///
/// # Errors
///
/// The path of the first operation whose directory has no sequence left.
pub(crate) fn name(
    tree: &Tree,
    mut ops: Vec<Op>,
    at: Revision,
    naming: Naming,
) -> Result<Vec<Named>, Rejected> {
    let mut sequences = vec![None; ops.len()];
    for index in 0..ops.len() {
        if ops[index].is_sequential() {
            let (path, sequence) = next_name(tree, &ops, index, at, naming)?;
            sequences[index] = Some(sequence);
            if let Op::Create { path: prefix, .. } = &mut ops[index] {
                *prefix = path;
            }
        }
    }
    Ok(ops.into_iter().zip(sequences).collect())
}

/// The next name for the sequential create at `index` that is unique in the tree and in the
/// transaction.
fn next_name(
    tree: &Tree,
    ops: &[Op],
    index: usize,
    at: Revision,
    naming: Naming,
) -> Result<(Path, Sequence), Rejected> {
    let prefix = ops[index].path();
    let dir = prefix.parent().unwrap_or_else(Path::root);
    let mut number = match naming {
        Naming::Gaps => tree.next_sequence_or_so(&dir, mix(at.get()) ^ index as u64),
        Naming::Counter => tree.next_sequence(&dir),
        Naming::Revision if tree.contains(prefix) => {
            return Err(Rejected::new(index, prefix.clone(), RejectReason::Exists));
        }
        Naming::Revision => return Ok((prefix.clone(), Sequence::new(at.get()))),
    };
    while number <= LAST_SEQUENCE {
        let name = format!("{}{number:010}", prefix.name());
        let path = dir.join(&name).expect("the transaction was validated to leave room");
        if !tree.contains(&path) && ops.iter().all(|op| *op.path() != path) {
            return Ok((path, Sequence::new(number)));
        }
        number += 1;
    }
    Err(Rejected::new(index, prefix.clone(), RejectReason::SequenceExhausted))
}

/// Applies operations that were judged to be possible.
pub(crate) fn apply(
    tree: &mut Tree,
    ops: Vec<Named>,
    at: Revision,
    session: SessionId,
    naming: Naming,
) -> Applied {
    // Versions that are revisions are unique per path, even across a delete and a new create.
    let first = Version::new(if naming == Naming::Revision { at.get() } else { 0 });
    let mut applied = Applied::default();
    for (op, sequence) in ops {
        let (path, stat) = match op {
            Op::Check { path, .. } | Op::Create { path, lifetime: Lifetime::Container, .. } => {
                (path, None)
            }
            Op::Create { path, data, lifetime, .. } => {
                let body = Body::new(data, at, lifetime, session, sequence, first);
                applied.own = sequence.map(|sequence| (path.clone(), sequence)).or(applied.own);
                applied.write(tree, path, Kind::Created, body)
            }
            Op::Set { path, data, .. } => {
                let body = rewritten(tree, &path, data, at);
                applied.write(tree, path, Kind::Updated, body)
            }
            Op::Delete { path, .. } => {
                applied.effects.extend(Effect::remove(tree, path.clone()));
                (path, None)
            }
        };
        applied.done.push(done(path, sequence, stat));
    }
    applied
}

fn rewritten(tree: &Tree, path: &Path, data: Bytes, at: Revision) -> Body {
    tree.body(path).expect("the operation was judged possible").rewritten(data, at)
}

fn done(path: Path, sequence: Option<Sequence>, stat: Option<Stat>) -> OpResult {
    let mut done = OpResult::new(path);
    done.sequence = sequence;
    done.stat = stat;
    done
}

impl Applied {
    fn write(
        &mut self,
        tree: &mut Tree,
        path: Path,
        kind: Kind,
        body: Body,
    ) -> (Path, Option<Stat>) {
        let stat = body.stat;
        tree.put(&path, body.clone());
        self.effects.push(Effect { path: path.clone(), kind, body: Some(body), owner: stat.owner });
        (path, Some(stat))
    }
}
