//! [`Attempts`]: what a worker has, and what it does of that.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::future::AbortHandle;
use synod_core::path::Path;
use synod_core::store::{Node, Revision};
use synod_core::value::decode;

use crate::crew::task_terms::TaskTerms;
use crate::mirror::snapshot::Snapshot;

/// A task that is assigned to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) task: String,
    /// The node by which the worker has it.
    pub(super) assigned: Path,
    /// Since when: no two assignments have the same revision.
    pub(super) since: Revision,
    pub(super) terms: TaskTerms,
    /// The terms as they are stored: perhaps with some that this worker does not know.
    pub(super) stored: Bytes,
}

/// The assignments of a worker, by the path of each.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    waiting: BTreeMap<Revision, Given>,
    /// Each attempt with the handle that stops it.
    running: BTreeMap<Revision, AbortHandle>,
    /// Attempts that have ended, as long as their nodes are shown.
    ended: Vec<Revision>,
}

impl Given {
    fn of(node: &Node) -> Option<Self> {
        let terms = decode(&node.path, &node.data).ok()?;
        let (task, assigned) = (node.path.name().to_owned(), node.path.clone());
        let (since, stored) = (node.stat?.created, node.data.clone());
        Some(Self { task, assigned, since, terms, stored })
    }
}

impl Attempts {
    /// Takes over what is assigned now. Attempts of what is not assigned any more are stopped.
    pub(super) fn learn(&mut self, shown: &Snapshot) {
        let given = shown.iter().filter_map(Given::of);
        let mut given: BTreeMap<_, _> = given.map(|given| (given.since, given)).collect();
        self.running.retain(|since, handle| {
            let is_given = given.contains_key(since);
            if !is_given {
                handle.abort();
            }
            is_given
        });
        self.ended.retain(|since| given.contains_key(since));
        given.retain(|since, _| !self.running.contains_key(since) && !self.ended.contains(since));
        self.waiting = given;
    }

    /// How many attempts are being made.
    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// The next task to begin with, in the order in which they were assigned.
    pub(super) fn start(&mut self, handle: AbortHandle) -> Option<Given> {
        let (since, given) = self.waiting.pop_first()?;
        self.running.insert(since, handle);
        Some(given)
    }

    /// An attempt has ended, and its end was reported.
    pub(super) fn ended(&mut self, given: &Given) {
        if self.running.remove(&given.since).is_some() {
            self.ended.push(given.since);
        }
    }
}
