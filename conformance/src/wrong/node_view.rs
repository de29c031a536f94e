//! [`NodeView`]: mistakes in the representation of a node, in every kind of answer.

use synod_core::store::{Change, Commit, Node, Rejected, Revision, Sequence, Stat, View};

use crate::wrong::mistake::Mistake;

/// The representation of nodes in one session.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeView {
    pub(super) mistake: Option<Mistake>,
    /// The lag of this session's clock.
    pub(super) behind: u64,
}

impl NodeView {
    pub(super) fn view(self, view: &mut View) {
        view.nodes.iter_mut().for_each(|node| self.node(node));
    }

    pub(super) fn commit(self, commit: &mut Commit) {
        for done in &mut commit.results {
            done.stat = done.stat.map(|stat| self.stat(stat));
            done.sequence = done.sequence.map(|sequence| self.sequence(sequence));
        }
        if let Some(view) = &mut commit.look {
            self.view(view);
        }
    }

    pub(super) fn rejected(self, rejected: &mut Rejected) {
        if let Some(view) = &mut rejected.look {
            self.view(view);
        }
    }

    pub(super) fn change(self, change: &mut Change) {
        if let Some(node) = &mut change.node {
            self.node(node);
        }
    }

    fn node(self, node: &mut Node) {
        node.stat = node.stat.map(|stat| self.stat(stat));
        node.sequence = node.sequence.map(|sequence| self.sequence(sequence));
        if self.mistake == Some(Mistake::TextOnly) {
            node.data = String::from_utf8_lossy(&node.data).into_owned().into();
        }
    }

    fn stat(self, mut stat: Stat) -> Stat {
        const COARSE: u64 = 8;
        match self.mistake {
            Some(Mistake::WriteMovesCreated) => stat.created = stat.modified,
            Some(Mistake::TwoNodesShareCreated) => {
                stat.created = Revision::new(stat.created.get() / COARSE * COARSE);
            }
            Some(Mistake::RevisionFalls) => {
                for revision in [&mut stat.created, &mut stat.modified] {
                    *revision = Revision::new(revision.get().saturating_sub(self.behind));
                }
            }
            _ => {}
        }
        stat
    }

    fn sequence(self, sequence: Sequence) -> Sequence {
        const BITS: u64 = 0b11;
        match self.mistake {
            Some(Mistake::SequenceFalls) => Sequence::new(sequence.get() & BITS),
            _ => sequence,
        }
    }
}
