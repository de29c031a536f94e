//! [`Gathering`]: puts a view of one moment together from answers of many moments. Pure.
//!
//! What does not fit into one request is answered in parts, each as of a moment of its own, and other clients write in
//! between. A recursive watch reports where. What was reported is requested again, together, until what changed
//! meanwhile is known as of the moment before.
//!
//! This relies on the order of a connection: an event arrives before the answer to any request that the server
//! processed after the change. So a node without an event is as it was when it was read.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use synod_core::store::{Kind, Query, Revision, Scope};

use super::{Snapshot, below};
use crate::selection::is_ours;

/// Which nodes are gathered: a node, and all below it, or some of its children.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    root: String,
    /// The prefix of the names, where it is children only.
    children: Option<String>,
}

/// What happened to each path since a request was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reported(BTreeMap<String, Happened>);

/// What the events about a path were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Happened {
    /// The node was deleted, and nothing else was reported.
    Deleted,
    /// Anything else.
    Changed,
}

/// The paths to request next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    /// With the names of their children.
    pub(super) full: BTreeSet<String>,
    /// Without.
    pub(super) data: BTreeSet<String>,
}

/// What is known of the nodes.
pub(super) struct Gathering {
    reach: Reach,
    /// As the last answers show it. Each node is as it was at the moment of `known.revision`, unless it was reported.
    known: Snapshot,
    /// Listed, and not read yet.
    unread: BTreeSet<String>,
    /// Read, and their children are not listed yet.
    unlisted: BTreeSet<String>,
    /// What was reported while the last answer was awaited.
    reported: Reported,
    /// What the last answer shows as of `known.revision`, whatever was reported: with the names of the children. Empty if
    /// it came in parts.
    vouched: BTreeSet<String>,
}

/// What a node was at a moment before an answer.
enum Then {
    Absent,
    /// As it is known.
    AsKnown,
    /// As the answer shows it.
    AsAnswered,
}

impl Gathering {
    pub(super) fn new(reach: Reach) -> Self {
        Self {
            known: Snapshot::default(),
            unread: BTreeSet::new(),
            unlisted: BTreeSet::from([reach.root.clone()]),
            reported: Reported::default(),
            vouched: BTreeSet::new(),
            reach,
        }
    }

    pub(super) fn reach(&self) -> &Reach {
        &self.reach
    }

    /// The paths that have to be requested: those that were reported, and those that are not known yet. Of a node that
    /// was listed, the answer itself says whether there is anything below.
    pub(super) fn batch(&self) -> Batch {
        let (full, leaves): (Vec<&String>, Vec<&String>) =
            self.reported.0.keys().partition(|path| self.reach.descends(path));
        let full: BTreeSet<String> = full.into_iter().chain(&self.unlisted).cloned().collect();
        let data = leaves.into_iter().chain(&self.unread).filter(|path| !full.contains(*path));
        Batch { data: data.cloned().collect(), full }
    }

    /// How many nodes are known.
    pub(super) fn len(&self) -> usize {
        self.known.nodes.len()
    }

    /// How many nodes are known to be there, and not read yet.
    pub(super) fn left(&self) -> usize {
        self.unread.len()
    }

    /// Takes the answer to a batch, and what was reported between its request and the answer. Returns the nodes as of one
    /// moment once they are known.
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
        let mut asked: BTreeSet<String> = batch.full.into_iter().chain(batch.data).collect();
        self.known.revision = self.known.revision.max(answer.revision);
        for path in &asked {
            self.learn(path, &mut answer);
        }
        asked.retain(|path| whole && !self.unlisted.contains(path));
        self.vouched = asked;
        self.reported = reported;
        let complete =
            self.reported.0.is_empty() && self.unread.is_empty() && self.unlisted.is_empty();
        complete.then(|| take(&mut self.known))
    }

    /// Completes what is known as of `known.revision`, if a later answer shows what the rest was then.
    fn complete(&mut self, batch: &Batch, answer: &Snapshot) -> bool {
        let asked = batch.full.iter().chain(&batch.data);
        let open: Vec<&String> = asked.filter(|path| !self.vouched.contains(*path)).collect();
        let then = open.into_iter().map(|path| Some((path, self.then(path, answer)?)));
        let Some(then) = then.collect::<Option<Vec<(&String, Then)>>>() else { return false };
        for (path, then) in then {
            match then {
                Then::Absent => {
                    self.known.nodes.remove(path);
                }
                Then::AsKnown => {}
                Then::AsAnswered => {
                    let (found, names) = (answer.nodes.get(path), answer.names.get(path));
                    self.known.nodes.extend(found.map(|found| (path.clone(), found.clone())));
                    self.known.names.extend(names.map(|names| (path.clone(), names.clone())));
                }
            }
        }
        true
    }

    /// What a node was at the moment of `known.revision`. `None` if that is not known, or what was below it then.
    fn then(&self, path: &str, answer: &Snapshot) -> Option<Then> {
        if !self.was_there(path, answer)? {
            return Some(Then::Absent);
        }
        if is_of(answer, path, self.known.revision) {
            let shows_all = !self.reach.descends(path)
                || answer.nodes.get(path).is_some_and(|found| found.stat.num_children == 0)
                || answer.names.get(path).is_some_and(|names| {
                    let mut names = names.iter().filter(|name| self.reach.has(path, name));
                    names.all(|name| self.is_read(&below(path, name), answer))
                });
            return shows_all.then_some(Then::AsAnswered);
        }
        let is_deleted = self.reported.0.get(path) == Some(&Happened::Deleted);
        (is_deleted && self.known.nodes.contains_key(path)).then_some(Then::AsKnown)
    }

    fn is_read(&self, path: &str, answer: &Snapshot) -> bool {
        self.known.nodes.contains_key(path) || answer.nodes.contains_key(path)
    }

    /// Whether a node was there at the moment of `known.revision`.
    fn was_there(&self, path: &str, answer: &Snapshot) -> Option<bool> {
        if path == self.reach.root {
            return answer.nodes.contains_key(path).then_some(true);
        }
        let (dir, name) = parted(path);
        let is_vouched = self.vouched.contains(dir);
        if is_vouched && !self.known.nodes.contains_key(dir) {
            return Some(false);
        }
        if (is_vouched || !self.reported.0.contains_key(dir))
            && let Some(lists) = lists(&self.known, dir, name)
        {
            return Some(lists);
        }
        if is_of(answer, dir, self.known.revision) { lists(answer, dir, name) } else { None }
    }

    /// Takes over what an answer shows of a path.
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

    /// Whether the children of a node are gathered.
    fn descends(&self, path: &str) -> bool {
        self.children.is_none() || path == self.root
    }

    /// Whether a child of a node that is descended into is gathered.
    fn has(&self, dir: &str, name: &str) -> bool {
        is_ours(dir, name) && self.children.as_ref().is_none_or(|prefix| name.starts_with(prefix))
    }

    /// Whether a node is gathered.
    fn covers(&self, path: &str) -> bool {
        let mut path = path;
        while path != self.root {
            let (dir, name) = parted(path);
            if dir.len() < self.root.len() || !self.descends(dir) || !self.has(dir, name) {
                return false;
            }
            path = dir;
        }
        true
    }
}

impl Reported {
    /// Adds an event. A node that came or went changes its directory, too.
    pub(super) fn add(&mut self, reach: &Reach, path: &str, kind: Kind) {
        if !reach.covers(path) {
            return;
        }
        let is_first = !self.0.contains_key(path);
        let happened =
            if is_first && kind == Kind::Deleted { Happened::Deleted } else { Happened::Changed };
        self.0.insert(path.to_owned(), happened);
        if kind != Kind::Updated && path != reach.root {
            self.0.insert(parted(path).0.to_owned(), Happened::Changed);
        }
    }
}

/// Whether a snapshot shows a node that has not changed since this revision.
fn is_of(snapshot: &Snapshot, path: &str, revision: Revision) -> bool {
    snapshot.nodes.get(path).is_some_and(|found| found.newest() <= revision)
}

/// Whether a snapshot lists a name in a directory. `None` if it does not show that. The names are sorted.
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
fn parted(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some(parts) => parts,
        None => ("", path),
    }
}

#[cfg(test)]
mod tests;
