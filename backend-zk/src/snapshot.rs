//! [`Snapshot`]: a consistent snapshot of several nodes.
//!
//! One request for many nodes is answered with a consistent snapshot. The nodes to request must be
//! known first, but may change before the request; so it is repeated with all nodes found so far,
//! until an answer lists only requested nodes. Nodes that do not fit into one request are read
//! under a watch: see [`Gathering`](gathering::Gathering).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use futures_util::TryFutureExt as _;
use futures_util::future::try_join_all;
use synod_core::path::Path;
use synod_core::store::{Detail, Node, Query, Revision, Sequence, View};
use tokio::time::Instant;

use crate::client::{Client, MultiReadResult, ZkError, ZkStat, behind};
use crate::connection::Connection;
use crate::containers::is_guard;
use crate::containers::{is_container, translate};
use crate::error::Trouble;
use crate::selection::{is_ours, select_children};

mod gather;
mod gathering;

/// A consistent snapshot of nodes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// The nodes by path.
    pub(crate) nodes: BTreeMap<String, ReadNode>,
    /// The names of children, for the nodes whose children were requested.
    names: BTreeMap<String, Vec<String>>,
    /// The revision up to which it reflects all changes.
    revision: Revision,
    /// The snapshot is one answer.
    whole: bool,
}

/// A node as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadNode {
    data: Vec<u8>,
    pub(crate) stat: ZkStat,
}

/// The nodes that a snapshot is for.
#[derive(Clone, Copy, Debug)]
enum Target<'a> {
    /// A node and all nodes below it.
    Tree(&'a Path),
    /// The nodes that a query names.
    Nodes(&'a Query),
    /// A node and those of its children that are in the view of a query, up to a sequence that may
    /// become known while the request is in flight.
    Children(&'a Query, &'a OnceLock<Sequence>),
}

/// The treatment of nodes that do not fit into one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TooLarge {
    /// The caller gathers them under a watch.
    Refuse,
    /// They are read until two successive readings are equal.
    Compare,
}

impl Snapshot {
    /// A node and all nodes below it. [`Trouble::TooLarge`] if they do not fit into one request.
    pub(crate) async fn take(
        connection: &Connection,
        client: &Client,
        path: &Path,
        sync: bool,
    ) -> Result<Self, Trouble> {
        Self::settle(connection, client, Target::Tree(path), sync, TooLarge::Refuse).await
    }

    /// [`Self::take`] of any size, without a watch.
    pub(crate) async fn take_unwatched(
        connection: &Connection,
        client: &Client,
        path: &Path,
    ) -> Result<Self, Trouble> {
        Self::settle(connection, client, Target::Tree(path), true, TooLarge::Compare).await
    }

    /// Several nodes.
    pub(crate) async fn nodes(
        connection: &Connection,
        client: &Client,
        query: &Query,
        sync: bool,
    ) -> Result<Self, Trouble> {
        Self::settle(connection, client, Target::Nodes(query), sync, TooLarge::Compare).await
    }

    /// The children in the view of a query. [`Trouble::TooLarge`] if all of them are requested, and
    /// do not fit into one request.
    pub(crate) async fn children(
        connection: &Connection,
        client: &Client,
        query: &Query,
        sync: bool,
        own: &OnceLock<Sequence>,
    ) -> Result<Self, Trouble> {
        let too_large = if query.window.is_none() { TooLarge::Refuse } else { TooLarge::Compare };
        Self::settle(connection, client, Target::Children(query, own), sync, too_large).await
    }

    async fn settle(
        connection: &Connection,
        client: &Client,
        target: Target<'_>,
        sync: bool,
        too_large: TooLarge,
    ) -> Result<Self, Trouble> {
        // No call takes longer than the session's time to live.
        let end = Instant::now() + connection.life.ttl() / 2;
        let mut sync = sync;
        let mut requested = target.reached(&BTreeMap::new());
        let mut last: Option<Self> = None;
        loop {
            if too_large == TooLarge::Refuse && !target.fits(&requested) {
                return Err(Trouble::TooLarge);
            }
            let snapshot =
                Self::read_paths(connection, client, target, &requested, std::mem::take(&mut sync))
                    .await?;
            let reached = target.reached(&snapshot.names);
            // Several answers are a consistent snapshot if two in succession are equal.
            let complete = reached.is_subset(&requested);
            if complete && (snapshot.whole || last.as_ref().is_some_and(|last| *last == snapshot)) {
                return Ok(snapshot);
            }
            if let Some(mut last) = last.take()
                && last.complete(target, &snapshot)
            {
                return Ok(last);
            }
            // A removed node may be created again, so it is requested again; but such nodes must
            // not become most of the request.
            if requested.len() > 2 * reached.len() + 100 {
                requested.clear();
            }
            requested.extend(reached);
            last = Some(snapshot);
            if Instant::now() >= end {
                return Err(Trouble::Restless);
            }
        }
    }

    async fn read_paths(
        connection: &Connection,
        client: &Client,
        target: Target<'_>,
        paths: &BTreeSet<String>,
        sync: bool,
    ) -> Result<Self, Trouble> {
        let requested: Vec<ReadOp> = paths.iter().flat_map(|path| target.reads(path)).collect();
        let mut snapshot =
            Self::request(connection, client, (&requested, usize::MAX), sync, |_answers| {})
                .await?;
        snapshot.narrow(target);
        Ok(snapshot)
    }

    /// Reads the nodes, with at most `max_answers` answers in one message. `arrived` is called with
    /// each message.
    async fn request(
        connection: &Connection,
        client: &Client,
        (requested, max_answers): (&[ReadOp<'_>], usize),
        sync: bool,
        arrived: impl Fn(&[MultiReadResult]),
    ) -> Result<Self, Trouble> {
        let (answers, whole) =
            request_all(connection, client, (requested, max_answers), sync, arrived).await?;
        let mut snapshot = Self { whole, ..Self::default() };
        for (op, answer) in requested.iter().zip(answers) {
            match (op, answer) {
                (ReadOp::Children(dir), MultiReadResult::Children { children }) => {
                    snapshot.names.insert((*dir).to_owned(), children);
                }
                (ReadOp::Data(path), MultiReadResult::Data { data, stat }) => {
                    snapshot.revision = snapshot.revision.max(connection.see(&stat));
                    snapshot.nodes.insert((*path).to_owned(), ReadNode { data, stat });
                }
                (_, MultiReadResult::Error { err: ZkError::NoNode }) => {}
                (
                    ReadOp::Children(path) | ReadOp::Data(path),
                    MultiReadResult::Error { err: ZkError::NoAuth },
                ) => return Err(Trouble::Unreadable((*path).to_owned())),
                (_, MultiReadResult::Error { err }) => return Err(Trouble::Zk(err)),
                _ => return Err(unexpected()),
            }
        }
        Ok(snapshot)
    }

    /// Removes the known containers from a listing if only a window is wanted: a window counts
    /// nodes, and a container may have the name of a ticket.
    fn narrow(&mut self, target: Target<'_>) {
        let Target::Children(query, _) = target else { return };
        let dir = query.path.as_str();
        if let (Some(_), Some(names)) = (query.window, self.names.get_mut(dir)) {
            let nodes = &self.nodes;
            names.retain(|name| !nodes.get(&below(dir, name)).is_some_and(ReadNode::is_container));
        }
    }

    /// Adds the nodes that were listed but not requested, from a later snapshot, if they cannot
    /// have changed in between. Returns `true` if this completes it.
    ///
    /// So a snapshot is found even if nodes are created all the time.
    fn complete(&mut self, target: Target<'_>, later: &Self) -> bool {
        if !(self.whole && later.whole) {
            return false;
        }
        for path in target.reached(&self.names) {
            if self.nodes.contains_key(&path) {
                continue;
            }
            match later.nodes.get(&path) {
                Some(found) if found.newest() <= self.revision => {
                    if let Some(names) = later.names.get(&path) {
                        self.names.insert(path.clone(), names.clone());
                    }
                    self.nodes.insert(path, found.clone());
                }
                _ => return false,
            }
        }
        self.narrow(target);
        target.reached(&self.names).iter().all(|path| self.nodes.contains_key(path))
    }

    /// Returns `true` if a node has a guard.
    pub(crate) fn is_guarded(&self, path: &Path) -> bool {
        self.names.get(path.as_str()).is_some_and(|names| names.iter().any(|name| is_guard(name)))
    }

    /// The view for a query about children.
    pub(crate) fn listing(
        mut self,
        query: &Query,
        own: &OnceLock<Sequence>,
        seen: Revision,
    ) -> (View, Vec<Path>) {
        let hidden = |(path, found): (&String, &ReadNode)| {
            let path = Path::new(path).ok().filter(|path| *path != query.path)?;
            found.is_container().then_some(path)
        };
        let containers = self.nodes.iter().filter_map(hidden).collect();
        let mut nodes = Vec::new();
        let names = self.names.remove(query.path.as_str()).unwrap_or_default();
        for (sequence, name) in select_children(query, names, own.get().copied()) {
            let Ok(path) = query.path.join(&name) else { continue };
            let Some(found) = self.nodes.remove(path.as_str()) else { continue };
            if found.is_container() {
                if found.stat.num_children > 0 {
                    nodes.push(Node::new(path));
                }
            } else {
                nodes.push(found.into_node(path).with_sequence(sequence));
            }
        }
        (View::new(self.revision.max(seen), nodes), containers)
    }

    /// The view for a query about a subtree.
    pub(crate) fn tree(self, query: &Query, seen: Revision) -> (View, Vec<Path>) {
        let revision = self.revision.max(seen);
        let all: Vec<(Path, ReadNode)> = self
            .nodes
            .into_iter()
            .filter_map(|(path, found)| Some((Path::new(&path).ok()?, found)))
            .filter(|(path, _)| !path.is_root())
            .collect();
        let real: Vec<&Path> =
            all.iter().filter(|(_, found)| !found.is_container()).map(|(path, _)| path).collect();
        // A container is implied by the nodes below it, and the query's own path is never listed as
        // one.
        let named: BTreeSet<Path> = real.iter().flat_map(|path| path.ancestors()).collect();
        let mut containers = Vec::new();
        let mut nodes = Vec::new();
        for (path, mut found) in all {
            if !found.is_container() {
                if query.detail == Detail::Names {
                    found.data.clear();
                }
                nodes.push(found.into_node(path));
                continue;
            }
            containers.push(path.clone());
            if query.more.is_empty() && path != query.path && named.contains(&path) {
                nodes.push(Node::new(path));
            }
        }
        nodes.sort_by(|a, b| a.path.cmp(&b.path));
        (View::new(revision, nodes), containers)
    }
}

impl ReadNode {
    pub(crate) fn is_container(&self) -> bool {
        is_container(&self.data, &self.stat)
    }

    /// The last change of the node or of its set of children.
    fn newest(&self) -> Revision {
        let newest = self.stat.czxid.max(self.stat.mzxid).max(self.stat.pzxid);
        Revision::new(u64::try_from(newest).unwrap_or(0))
    }

    fn into_node(self, path: Path) -> Node {
        let stat = translate(&self.stat);
        Node::new(path).with(self.data.into(), stat)
    }
}

impl Target<'_> {
    /// All paths to request, given the known children.
    fn reached(self, names: &BTreeMap<String, Vec<String>>) -> BTreeSet<String> {
        match self {
            Self::Tree(path) => reachable(path, names),
            Self::Nodes(query) => {
                query.nodes_asked().map(|path| path.as_str().to_owned()).collect()
            }
            Self::Children(query, own) => {
                let dir = query.path.as_str();
                let names = names.get(dir).cloned().unwrap_or_default();
                let shown = select_children(query, names, own.get().copied());
                let shown = shown.iter().map(|(_, name)| below(dir, name));
                shown.chain([dir.to_owned()]).collect()
            }
        }
    }

    /// Returns `true` if all paths fit into one request.
    fn fits(self, paths: &BTreeSet<String>) -> bool {
        paths.iter().flat_map(|path| self.reads(path)).map(ReadOp::size).sum::<usize>()
            <= MAX_REQUEST
    }

    fn reads(self, path: &str) -> impl Iterator<Item = ReadOp<'_>> {
        let names = match self {
            Self::Tree(_) => true,
            Self::Nodes(_) => false,
            Self::Children(query, _) => path == query.path.as_str(),
        };
        names.then_some(ReadOp::Children(path)).into_iter().chain([ReadOp::Data(path)])
    }
}

fn below(dir: &str, name: &str) -> String {
    let dir = if dir == "/" { "" } else { dir };
    format!("{dir}/{name}")
}

/// All paths that can be reached from `path` through the known children.
fn reachable(path: &Path, children: &BTreeMap<String, Vec<String>>) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![path.as_str().to_owned()];
    while let Some(next) = open.pop() {
        let names = children.get(&next).into_iter().flatten();
        let ours = names.filter(|name| is_ours(&next, name));
        open.extend(ours.map(|name| below(&next, name)));
        reached.insert(next);
    }
    reached
}

/// One part of a request for many nodes.
#[derive(Clone, Copy, Debug)]
enum ReadOp<'a> {
    Children(&'a str),
    Data(&'a str),
}

impl ReadOp<'_> {
    /// The number of bytes in a request.
    fn size(self) -> usize {
        const HEADER: usize = 14;

        let (Self::Children(path) | Self::Data(path)) = self;
        path.len() + HEADER
    }
}

/// The server's limit of a request, less its frame.
const MAX_REQUEST: usize = 1_048_000;

/// Requests many nodes in one request, which the server answers with a consistent snapshot; in
/// several successive requests if they do not fit. Returns `true` if it was one request.
async fn request_all(
    connection: &Connection,
    client: &Client,
    (requested, max_answers): (&[ReadOp<'_>], usize),
    sync: bool,
    arrived: impl Fn(&[MultiReadResult]),
) -> Result<(Vec<MultiReadResult>, bool), Trouble> {
    let ahead = sync.then(|| client.sync("/"));
    let mut answers = Vec::new();
    let mut reader = client.new_multi_reader();
    let (mut size, mut count) = (0, 0);
    for op in requested {
        if size + op.size() > MAX_REQUEST || count >= max_answers {
            answers.push(std::mem::replace(&mut reader, client.new_multi_reader()).commit());
            (size, count) = (0, 0);
        }
        (size, count) = (size + op.size(), count + 1);
        match op {
            ReadOp::Children(path) => reader.add_get_children(path),
            ReadOp::Data(path) => reader.add_get_data(path),
        }
    }
    answers.push(reader.commit());
    let whole = answers.len() == 1;
    let answers = answers.into_iter().map(|answer| answer.inspect_ok(|came| arrived(came)));
    let answers = connection.answer(behind(ahead, try_join_all(answers))).await?;
    Ok((answers.into_iter().flatten().collect(), whole))
}

fn unexpected() -> Trouble {
    Trouble::Zk(ZkError::Malformed("the answer to another request"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(czxid: i64, mzxid: i64, pzxid: i64) -> ReadNode {
        ReadNode { data: Vec::new(), stat: ZkStat { czxid, mzxid, pzxid, ..ZkStat::NEW } }
    }

    /// A directory that was last changed at 9 and lists these names; some of the nodes were read
    /// too.
    fn snapshot(listed: &[&str], read: &[(&str, ReadNode)]) -> Snapshot {
        let own = [("/d", found(1, 1, 9))];
        let nodes = own.iter().chain(read).map(|(path, found)| ((*path).to_owned(), found.clone()));
        let names = listed.iter().map(|name| (*name).to_owned()).collect();
        let names = BTreeMap::from([("/d".to_owned(), names)]);
        Snapshot { nodes: nodes.collect(), names, revision: Revision::new(9), whole: true }
    }

    #[test]
    fn what_came_in_between_is_added_if_it_is_as_it_was() {
        let query = Query::children(Path::new("/d").expect("valid"));
        let own = OnceLock::new();
        let target = Target::Children(&query, &own);
        let completed = |later: &[(&str, ReadNode)]| {
            let mut early = snapshot(&["a", "b"], &[("/d/a", found(2, 7, 2))]);
            early.complete(target, &snapshot(&[], later)).then_some(early)
        };

        let whole = completed(&[("/d/b", found(9, 9, 9))]).expect("it is as it was");
        assert_eq!(whole.nodes.keys().collect::<Vec<_>>(), ["/d", "/d/a", "/d/b"]);
        for (why, later) in [
            ("it is gone", vec![]),
            ("it was written", vec![("/d/b", found(9, 10, 9))]),
            ("it was made again", vec![("/d/b", found(10, 10, 10))]),
        ] {
            assert!(completed(&later).is_none(), "{why}");
        }
    }

    #[test]
    fn nothing_is_added_to_what_came_in_several_answers_or_from_there() {
        let query = Query::children(Path::new("/d").expect("valid"));
        let own = OnceLock::new();
        for (first, second) in [(true, true), (true, false), (false, true)] {
            let mut early = snapshot(&["a"], &[]);
            let mut later = snapshot(&["a"], &[("/d/a", found(2, 2, 2))]);
            (early.whole, later.whole) = (first, second);
            assert_eq!(early.complete(Target::Children(&query, &own), &later), first && second);
        }
    }

    #[test]
    fn what_is_below_what_came_in_between_has_to_be_known_too() {
        let path = Path::new("/d").expect("valid");
        let target = Target::Tree(&path);
        let mut early = snapshot(&["b"], &[]);
        let mut later = snapshot(&["b"], &[("/d/b", found(9, 9, 9))]);
        later.names.insert("/d/b".to_owned(), vec!["c".to_owned()]);
        assert!(!early.complete(target, &later), "/d/b/c was not read");

        let mut early = snapshot(&["b"], &[]);
        later.names.insert("/d/b".to_owned(), Vec::new());
        assert!(early.complete(target, &later));
    }
}
