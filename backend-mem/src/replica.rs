//! [`Replica`]: a copy of the tree that lags, for reads with
//! [`Freshness::Local`](synod_core::store::Freshness).

use std::collections::VecDeque;

use synod_core::random::mix;
use synod_core::store::Revision;

use crate::apply::Effect;
use crate::tree::Tree;

/// The maximum lag of the copy, in commits.
const LAG: usize = 32;

/// A copy of the tree as of some commits ago, and those commits.
#[derive(Debug)]
pub(crate) struct Replica {
    tree: Tree,
    at: Revision,
    ahead: VecDeque<(Revision, Vec<Effect>)>,
    /// The number of reads, by which the copy advances, so that no lag lasts for ever.
    reads: u64,
}

impl Replica {
    /// A copy that does not lag yet.
    pub(crate) fn new(tree: &Tree, at: Revision) -> Self {
        Self { tree: tree.clone(), at, ahead: VecDeque::new(), reads: 0 }
    }

    /// Adds a commit.
    pub(crate) fn learn(&mut self, at: Revision, effects: &[Effect]) {
        self.ahead.push_back((at, effects.to_vec()));
        if self.ahead.len() > LAG {
            self.step();
        }
    }

    /// Advances at least to `seen`, so that no reader that has seen this revision goes back, and
    /// possibly further.
    pub(crate) fn advance_to(&mut self, seen: Revision) {
        self.reads += 1;
        let advances = |at: Revision, reads| mix(at.get() ^ mix(reads)).is_multiple_of(3);
        while let Some((at, _)) = self.ahead.front()
            && (*at <= seen || advances(*at, self.reads))
        {
            self.step();
        }
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(crate) fn at(&self) -> Revision {
        self.at
    }

    /// The commits that the copy does not include yet.
    pub(crate) fn ahead(&self) -> impl Iterator<Item = (Revision, &[Effect])> {
        self.ahead.iter().map(|(at, effects)| (*at, effects.as_slice()))
    }

    fn step(&mut self) {
        let Some((at, effects)) = self.ahead.pop_front() else { return };
        for effect in &effects {
            effect.apply_to(&mut self.tree);
        }
        self.tree.collect(at.get());
        self.at = at;
    }
}
