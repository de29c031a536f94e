//! Reading: one node in one request, names in one, data in as many as it takes for a view of one
//! moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use bytes::Bytes;
use futures_util::future::try_join_all;
use synod_core::path::Path;
use synod_core::store::{
    Detail, Freshness, Node, Query, Revision, Scope, Sequence, SessionId, Stat, Version, View,
};
use zookeeper_client::{Client, Error as ZkError, MultiReadResult, Stat as ZkStat};

use crate::container::is_container;
use crate::error::Trouble;
use crate::sift::{is_ours, sift};
use crate::wire::Wire;

/// [`read`], once more on the next connection if the one that it left by was lost.
pub(crate) async fn read_through(
    wire: &Wire,
    client: &Client,
    query: &Query,
) -> Result<(View, Vec<Path>), Trouble> {
    /// What loses every connection that it goes by may be the reason.
    const CONNECTIONS: usize = 3;

    let own = OnceLock::new();
    let mut answer = read(wire, client, query, &own).await;
    for _ in 1..CONNECTIONS {
        match answer {
            Err(Trouble::Said(ZkError::ConnectionLoss | ZkError::Custom(_))) => {
                answer = read(wire, client, query, &own).await;
            }
            _ => break,
        }
    }
    answer
}

/// Answers a query. With the view come the containers that were found, hidden ones too.
///
/// Windows show nothing above `own`, which may become known as late as the listing does.
pub(crate) async fn read(
    wire: &Wire,
    client: &Client,
    query: &Query,
    own: &OnceLock<Sequence>,
) -> Result<(View, Vec<Path>), Trouble> {
    let seen = wire.seen();
    let sync = query.freshness == Freshness::Latest;
    match (query.scope, query.detail) {
        (Scope::Node, _) => node(wire, client, query, sync, seen).await,
        (Scope::Children, Detail::Names) => names(wire, client, query, sync, own).await,
        (Scope::Children, Detail::Data) => {
            let snapshot = Snapshot::children(wire, client, query, sync, own).await?;
            Ok(snapshot.listing(query, own, seen))
        }
        (Scope::Subtree, _) => {
            let snapshot = Snapshot::take(wire, client, &query.path, sync).await?;
            Ok(snapshot.tree(query, seen))
        }
    }
}

async fn node(
    wire: &Wire,
    client: &Client,
    query: &Query,
    sync: bool,
    seen: Revision,
) -> Result<(View, Vec<Path>), Trouble> {
    let path = &query.path;
    let ahead = sync.then(|| client.sync("/"));
    let data = client.get_data(path.as_str());
    let found = wire.answer(behind(ahead, data)).await;
    let (data, stat) = match found {
        Ok(found) => found,
        Err(Trouble::Said(ZkError::NoNode)) => return Ok((View::new(seen, vec![]), vec![])),
        Err(trouble) => return Err(trouble),
    };
    let revision = wire.see(&stat).max(seen);
    if is_container(&data, &stat) {
        return Ok((View::new(revision, vec![]), vec![path.clone()]));
    }
    if path.is_root() {
        return Ok((View::new(revision, vec![]), vec![]));
    }
    let data = if query.detail == Detail::Names { Bytes::new() } else { data.into() };
    let node = Node::new(path.clone()).with(data, translate(&stat));
    Ok((View::new(revision, vec![node]), vec![]))
}

async fn names(
    wire: &Wire,
    client: &Client,
    query: &Query,
    sync: bool,
    own: &OnceLock<Sequence>,
) -> Result<(View, Vec<Path>), Trouble> {
    let seen = wire.seen();
    let ahead = sync.then(|| client.sync("/"));
    let children = client.get_children(query.path.as_str());
    let (names, revision) = match wire.answer(behind(ahead, children)).await {
        Ok((names, stat)) => (names, wire.see(&stat).max(seen)),
        Err(Trouble::Said(ZkError::NoNode)) => (Vec::new(), seen),
        Err(trouble) => return Err(trouble),
    };
    let children = sift(query, names, own.get().copied()).into_iter();
    let nodes = children.filter_map(|(sequence, name)| {
        Some(Node::new(query.path.join(&name).ok()?).with_sequence(sequence))
    });
    Ok((View::new(revision, nodes.collect()), vec![]))
}

/// Waits for the request that was sent ahead, then for the one behind it.
async fn behind<T>(
    ahead: Option<impl Future<Output = Result<(), ZkError>>>,
    request: impl Future<Output = Result<T, ZkError>>,
) -> Result<T, ZkError> {
    if let Some(ahead) = ahead {
        ahead.await?;
    }
    request.await
}

/// What a node is, in our words.
pub(crate) fn translate(stat: &ZkStat) -> Stat {
    let revision = |zxid: i64| Revision::new(u64::try_from(zxid).unwrap_or(0));
    let version = Version::new(stat.version.cast_unsigned().into());
    let owner = stat.ephemeral_owner.cast_unsigned();
    let owner = (owner != 0).then_some(SessionId::new(owner));
    Stat::new(revision(stat.czxid), revision(stat.mzxid), version, owner)
}

/// Nodes as they were at one moment.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// By their paths.
    pub(crate) nodes: BTreeMap<String, Found>,
    /// The names of the children of those that were asked for theirs.
    names: BTreeMap<String, Vec<String>>,
    revision: Revision,
}

/// A node as it was read.
#[derive(Debug)]
pub(crate) struct Found {
    data: Vec<u8>,
    pub(crate) stat: ZkStat,
}

impl Found {
    pub(crate) fn is_container(&self) -> bool {
        is_container(&self.data, &self.stat)
    }
}

/// How often a moment is looked for in which nothing changes between two requests.
const ROUNDS: usize = 50;

impl Snapshot {
    /// A node and all below it. Each round reads all that the last one heard of, at once; when it
    /// hears of nothing more, what it read is of one moment.
    pub(crate) async fn take(
        wire: &Wire,
        client: &Client,
        path: &Path,
        sync: bool,
    ) -> Result<Self, Trouble> {
        let mut sync = sync;
        let mut wanted = BTreeSet::from([path.as_str().to_owned()]);
        for _ in 0..ROUNDS {
            let asked: Vec<Ask> =
                wanted.iter().flat_map(|path| [Ask::Children(path), Ask::Data(path)]).collect();
            let answers = ask(wire, client, &asked, std::mem::take(&mut sync)).await?;
            let snapshot = Self::collect(wire, &asked, answers)?;
            let reached = reach(path, &snapshot.names);
            if reached == wanted || snapshot.nodes.is_empty() {
                return Ok(snapshot);
            }
            wanted = reached;
        }
        Err(Trouble::Restless)
    }

    /// The children that a query asks for, the same way.
    async fn children(
        wire: &Wire,
        client: &Client,
        query: &Query,
        sync: bool,
        own: &OnceLock<Sequence>,
    ) -> Result<Self, Trouble> {
        let dir = query.path.as_str();
        let ahead = sync.then(|| client.sync("/"));
        let list = client.get_children(dir);
        let mut names = match wire.answer(behind(ahead, list)).await {
            Ok((names, _stat)) => names,
            Err(Trouble::Said(ZkError::NoNode)) => return Ok(Self::default()),
            Err(trouble) => return Err(trouble),
        };
        for _ in 0..ROUNDS {
            let shown = sift(query, names, own.get().copied());
            let paths: Vec<String> = shown.iter().map(|(_, name)| below(dir, name)).collect();
            let mut asked = vec![Ask::Children(dir)];
            asked.extend(paths.iter().map(|path| Ask::Data(path)));
            let answers = ask(wire, client, &asked, false).await?;
            let snapshot = Self::collect(wire, &asked, answers)?;
            names = snapshot.names.get(dir).cloned().unwrap_or_default();
            if sift(query, names.clone(), own.get().copied()) == shown {
                return Ok(snapshot);
            }
        }
        Err(Trouble::Restless)
    }

    fn collect(
        wire: &Wire,
        asked: &[Ask<'_>],
        answers: Vec<MultiReadResult>,
    ) -> Result<Self, Trouble> {
        let mut snapshot = Self::default();
        for (ask, answer) in asked.iter().zip(answers) {
            match (ask, answer) {
                (Ask::Children(dir), MultiReadResult::Children { children }) => {
                    snapshot.names.insert((*dir).to_owned(), children);
                }
                (Ask::Data(path), MultiReadResult::Data { data, stat }) => {
                    snapshot.revision = snapshot.revision.max(wire.see(&stat));
                    snapshot.nodes.insert((*path).to_owned(), Found { data, stat });
                }
                (_, MultiReadResult::Error { err: ZkError::NoNode }) => {}
                (_, MultiReadResult::Error { err }) => return Err(Trouble::Said(err)),
                _ => return Err(unexpected()),
            }
        }
        Ok(snapshot)
    }

    /// As the answer to a query about children.
    fn listing(
        mut self,
        query: &Query,
        own: &OnceLock<Sequence>,
        seen: Revision,
    ) -> (View, Vec<Path>) {
        let mut containers = Vec::new();
        let mut nodes = Vec::new();
        let names = self.names.remove(query.path.as_str()).unwrap_or_default();
        for (sequence, name) in sift(query, names, own.get().copied()) {
            let Ok(path) = query.path.join(&name) else { continue };
            let Some(found) = self.nodes.remove(path.as_str()) else { continue };
            if found.is_container() {
                containers.push(path.clone());
                if found.stat.num_children > 0 && query.window.is_none() {
                    nodes.push(Node::new(path));
                }
            } else {
                nodes.push(found.into_node(path).with_sequence(sequence));
            }
        }
        (View::new(self.revision.max(seen), nodes), containers)
    }

    /// As the answer to a query about a subtree.
    fn tree(self, query: &Query, seen: Revision) -> (View, Vec<Path>) {
        let revision = self.revision.max(seen);
        let all: Vec<(Path, Found)> = self
            .nodes
            .into_iter()
            .filter_map(|(path, found)| Some((Path::new(&path).ok()?, found)))
            .filter(|(path, _)| !path.is_root())
            .collect();
        let real: Vec<&Path> =
            all.iter().filter(|(_, found)| !found.is_container()).map(|(path, _)| path).collect();
        // A container is named for the nodes below it, and the query's own path never is.
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
            if path != query.path && named.contains(&path) {
                nodes.push(Node::new(path));
            }
        }
        nodes.sort_by(|a, b| a.path.cmp(&b.path));
        (View::new(revision, nodes), containers)
    }
}

impl Found {
    fn into_node(self, path: Path) -> Node {
        let stat = translate(&self.stat);
        Node::new(path).with(self.data.into(), stat)
    }
}

fn below(dir: &str, name: &str) -> String {
    let dir = if dir == "/" { "" } else { dir };
    format!("{dir}/{name}")
}

/// All that can be reached from `path` by what is known of the children.
fn reach(path: &Path, children: &BTreeMap<String, Vec<String>>) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![path.as_str().to_owned()];
    while let Some(next) = open.pop() {
        let names = children.get(&next).into_iter().flatten();
        let ours = names.filter(|name| next != "/" || is_ours(&Path::root(), name));
        open.extend(ours.map(|name| below(&next, name)));
        reached.insert(next);
    }
    reached
}

/// One question of a request that asks many.
#[derive(Clone, Copy, Debug)]
enum Ask<'a> {
    Children(&'a str),
    Data(&'a str),
}

/// Asks much in one request, which the server answers as of one moment; in several behind each
/// other if it does not fit.
async fn ask(
    wire: &Wire,
    client: &Client,
    asked: &[Ask<'_>],
    sync: bool,
) -> Result<Vec<MultiReadResult>, Trouble> {
    /// Half of what a server takes.
    const REQUEST: usize = 500_000;
    const HEADER: usize = 24;

    let ahead = sync.then(|| client.sync("/"));
    let mut answers = Vec::new();
    let mut reader = client.new_multi_reader();
    let mut size = 0;
    for ask in asked {
        let (Ask::Children(path) | Ask::Data(path)) = *ask;
        if size + path.len() + HEADER > REQUEST {
            answers.push(reader.commit());
            size = 0;
        }
        size += path.len() + HEADER;
        let added = match ask {
            Ask::Children(path) => reader.add_get_children(path),
            Ask::Data(path) => reader.add_get_data(path),
        };
        added.map_err(Trouble::Said)?;
    }
    answers.push(reader.commit());
    let answers = wire.answer(behind(ahead, try_join_all(answers))).await?;
    Ok(answers.into_iter().flatten().collect())
}

fn unexpected() -> Trouble {
    Trouble::Said(ZkError::UnexpectedError("an answer to another question".to_owned()))
}
