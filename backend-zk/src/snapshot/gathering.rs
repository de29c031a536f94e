//! [`Gathering`]: computes a consistent snapshot from answers of different times. Pure.
//!
//! Nodes that do not fit into one request are read in parts, each with a snapshot of its own, and
//! other clients write in between. A recursive watch reports the paths of those writes. The
//! reported nodes are requested again, in one request. If nodes change during that request, the
//! next answer shows which changes came before its snapshot, until the state of all nodes at one
//! revision is known.
//!
//! This relies on the order of a connection: an event arrives before the answer to any request that
//! the server processed after the change. So a node without an event is unchanged since it was
//! read.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use synod_core::store::{Kind, Query, Revision, Scope};

use super::{Snapshot, below};
use crate::selection::is_ours;

/// The nodes to gather: a node and all nodes below it, or some of its children.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    root: String,
    /// The prefix of the names, if only children are gathered.
    children: Option<String>,
}

/// The events of each path since a request was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reported(BTreeMap<String, Events>);

/// The events of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Events {
    /// The node was deleted, and nothing else was reported.
    Deleted,
    /// Anything else.
    Changed,
}

/// The paths to request next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    /// The paths that are requested with the names of their children.
    pub(super) full: BTreeSet<String>,
    /// The paths that are requested without.
    pub(super) data: BTreeSet<String>,
}

/// The nodes read so far.
pub(super) struct Gathering {
    reach: Reach,
    /// The nodes as of the last answers. Each node is as it was at the moment of `known.revision`,
    /// unless it was reported.
    known: Snapshot,
    /// The nodes that are listed but not read yet.
    unread: BTreeSet<String>,
    /// The nodes that are read but whose children are not listed yet.
    unlisted: BTreeSet<String>,
    /// The events that arrived during the last request.
    reported: Reported,
    /// The paths that the last answer shows as of `known.revision`, even if they were reported:
    /// with the names of the children. Empty if the answer came in parts.
    current: BTreeSet<String>,
}

/// The state of a node at a moment before an answer.
enum StateThen {
    Absent,
    /// The state in `known`.
    AsKnown,
    /// The state in the answer.
    AsAnswered,
}

impl Gathering {
    pub(super) fn new(reach: Reach) -> Self {
        Self {
            known: Snapshot::default(),
            unread: BTreeSet::new(),
            unlisted: BTreeSet::from([reach.root.clone()]),
            reported: Reported::default(),
            current: BTreeSet::new(),
            reach,
        }
    }

    pub(super) fn reach(&self) -> &Reach {
        &self.reach
    }

    /// The paths to request: paths that were reported, and paths that are not known yet. The answer
    /// about a listed node shows whether it has children.
    pub(super) fn batch(&self) -> Batch {
        let (full, leaves): (Vec<&String>, Vec<&String>) =
            self.reported.0.keys().partition(|path| self.reach.descends(path));
        let full: BTreeSet<String> = full.into_iter().chain(&self.unlisted).cloned().collect();
        let data = leaves.into_iter().chain(&self.unread).filter(|path| !full.contains(*path));
        Batch { data: data.cloned().collect(), full }
    }

    /// The number of known nodes.
    pub(super) fn len(&self) -> usize {
        self.known.nodes.len()
    }

    /// The number of nodes that are listed but not read yet.
    pub(super) fn left(&self) -> usize {
        self.unread.len()
    }

    /// Takes the answer to a batch, and the events that arrived between its request and the answer.
    /// Returns the snapshot once it is complete.
    pub(super) fn take(
        &mut self,
        batch: Batch,
        mut answer: Snapshot,
        reported: Reported,
    ) -> Option<Snapshot> {
        answer.names.values_mut().for_each(|names| names.sort_unstable());
        if self.complete(&batch, &answer) {
            return Some(take(&mut self.known));
        }
        let whole = answer.whole;
        let mut requested: BTreeSet<String> = batch.full.into_iter().chain(batch.data).collect();
        self.known.revision = self.known.revision.max(answer.revision);
        for path in &requested {
            self.learn(path, &mut answer);
        }
        requested.retain(|path| whole && !self.unlisted.contains(path));
        self.current = requested;
        self.reported = reported;
        let complete =
            self.reported.0.is_empty() && self.unread.is_empty() && self.unlisted.is_empty();
        complete.then(|| take(&mut self.known))
    }

    /// Completes the snapshot as of `known.revision`, if a later answer shows the state of the
    /// other nodes at that moment.
    fn complete(&mut self, batch: &Batch, answer: &Snapshot) -> bool {
        let requested = batch.full.iter().chain(&batch.data);
        let open: Vec<&String> = requested.filter(|path| !self.current.contains(*path)).collect();
        let state_then = open.into_iter().map(|path| Some((path, self.state_then(path, answer)?)));
        let Some(state_then) = state_then.collect::<Option<Vec<(&String, StateThen)>>>() else {
            return false;
        };
        for (path, state_then) in state_then {
            match state_then {
                StateThen::Absent => {
                    self.known.nodes.remove(path);
                }
                StateThen::AsKnown => {}
                StateThen::AsAnswered => {
                    let (found, names) = (answer.nodes.get(path), answer.names.get(path));
                    self.known.nodes.extend(found.map(|found| (path.clone(), found.clone())));
                    self.known.names.extend(names.map(|names| (path.clone(), names.clone())));
                }
            }
        }
        true
    }

    /// The state of a node at the moment of `known.revision`. `None` if it, or the set of nodes
    /// below it, is unknown.
    fn state_then(&self, path: &str, answer: &Snapshot) -> Option<StateThen> {
        if !self.was_there(path, answer)? {
            return Some(StateThen::Absent);
        }
        if is_of(answer, path, self.known.revision) {
            let shows_all = !self.reach.descends(path)
                || answer.nodes.get(path).is_some_and(|found| found.stat.num_children == 0)
                || answer.names.get(path).is_some_and(|names| {
                    let mut names = names.iter().filter(|name| self.reach.has(path, name));
                    names.all(|name| self.is_read(&below(path, name), answer))
                });
            return shows_all.then_some(StateThen::AsAnswered);
        }
        let is_deleted = self.reported.0.get(path) == Some(&Events::Deleted);
        (is_deleted && self.known.nodes.contains_key(path)).then_some(StateThen::AsKnown)
    }

    fn is_read(&self, path: &str, answer: &Snapshot) -> bool {
        self.known.nodes.contains_key(path) || answer.nodes.contains_key(path)
    }

    /// Returns whether a node existed at the moment of `known.revision`. `None` if that is unknown.
    fn was_there(&self, path: &str, answer: &Snapshot) -> Option<bool> {
        if path == self.reach.root {
            return answer.nodes.contains_key(path).then_some(true);
        }
        let (dir, name) = split(path);
        let is_current = self.current.contains(dir);
        if is_current && !self.known.nodes.contains_key(dir) {
            return Some(false);
        }
        if (is_current || !self.reported.0.contains_key(dir))
            && let Some(lists) = lists(&self.known, dir, name)
        {
            return Some(lists);
        }
        if is_of(answer, dir, self.known.revision) { lists(answer, dir, name) } else { None }
    }

    /// Copies the state of a path from an answer.
    fn learn(&mut self, path: &str, answer: &mut Snapshot) {
        self.unread.remove(path);
        self.unlisted.remove(path);
        let Some(found) = answer.nodes.remove(path) else {
            self.known.nodes.remove(path);
            self.known.names.remove(path);
            return;
        };
        match answer.names.remove(path) {
            Some(names) => {
                for name in names.iter().filter(|name| self.reach.has(path, name)) {
                    let child = below(path, name);
                    if !self.known.nodes.contains_key(&child) {
                        self.unread.insert(child);
                    }
                }
                self.known.names.insert(path.to_owned(), names);
            }
            None if found.stat.num_children > 0 && self.reach.descends(path) => {
                self.unlisted.insert(path.to_owned());
            }
            None => {}
        }
        self.known.nodes.insert(path.to_owned(), found);
    }
}

impl Reach {
    pub(super) fn of(query: &Query) -> Self {
        let children = (query.scope == Scope::Children).then(|| query.prefix.clone());
        Self { root: query.path.as_str().to_owned(), children }
    }

    /// Returns `true` if the children of a node are gathered.
    fn descends(&self, path: &str) -> bool {
        self.children.is_none() || path == self.root
    }

    /// Returns `true` if a child of a node is gathered, given that the node's children are.
    fn has(&self, dir: &str, name: &str) -> bool {
        is_ours(dir, name) && self.children.as_ref().is_none_or(|prefix| name.starts_with(prefix))
    }

    /// Returns `true` if a node is gathered.
    fn covers(&self, path: &str) -> bool {
        let mut path = path;
        while path != self.root {
            let (dir, name) = split(path);
            if dir.len() < self.root.len() || !self.descends(dir) || !self.has(dir, name) {
                return false;
            }
            path = dir;
        }
        true
    }
}

impl Reported {
    /// Adds an event. A creation or deletion changes the directory, too.
    pub(super) fn add(&mut self, reach: &Reach, path: &str, kind: Kind) {
        if !reach.covers(path) {
            return;
        }
        let is_first = !self.0.contains_key(path);
        let events =
            if is_first && kind == Kind::Deleted { Events::Deleted } else { Events::Changed };
        self.0.insert(path.to_owned(), events);
        if kind != Kind::Updated && path != reach.root {
            self.0.insert(split(path).0.to_owned(), Events::Changed);
        }
    }
}

/// Returns `true` if a snapshot shows a node that has not changed since this revision.
fn is_of(snapshot: &Snapshot, path: &str, revision: Revision) -> bool {
    snapshot.nodes.get(path).is_some_and(|found| found.newest() <= revision)
}

/// Returns whether a snapshot lists a name in a directory. `None` if it does not show that. The
/// names are sorted.
fn lists(snapshot: &Snapshot, dir: &str, name: &str) -> Option<bool> {
    match (snapshot.nodes.get(dir), snapshot.names.get(dir)) {
        (Some(_), Some(names)) => {
            Some(names.binary_search_by(|listed| listed.as_str().cmp(name)).is_ok())
        }
        (Some(found), None) => (found.stat.num_children == 0).then_some(false),
        (None, _) => None,
    }
}

/// The directory of a path, and its name there.
fn split(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some(parts) => parts,
        None => ("", path),
    }
}

#[cfg(test)]
mod tests;
