//! Reading: one node in one request, names in one, the data of several by a [`Snapshot`].

use std::sync::OnceLock;

use bytes::Bytes;
use synod_core::path::Path;
use synod_core::store::{
    Detail, Freshness, Node, Query, Revision, Scope, Sequence, SessionId, Stat, Version, View,
};
use zookeeper_client::{Client, Error as ZkError, OneshotWatcher, Stat as ZkStat};

use crate::container::is_container;
use crate::error::Trouble;
use crate::sift::sift;
use crate::snapshot::Snapshot;
use crate::wire::Wire;

/// [`read`], once more on the next connection if the one that it left by was lost.
pub(crate) async fn read_through(
    wire: &Wire,
    client: &Client,
    query: &Query,
) -> Result<(View, Vec<Path>), Trouble> {
    let own = OnceLock::new();
    through(|| read(wire, client, query, &own)).await
}

/// What is there, with a watch that tells once; of nothing there is none.
pub(crate) async fn watched_once(
    wire: &Wire,
    client: &Client,
    query: &Query,
) -> Result<(View, Option<OneshotWatcher>), Trouble> {
    let ask = || async {
        let seen = wire.seen();
        let ahead = (query.freshness == Freshness::Latest).then(|| client.sync("/"));
        let path = query.path.as_str();
        let answer = if query.is_until_gone() {
            // The watch of a node's children tells that it goes, too, and what is written to it does not use it up.
            let children = client.get_and_watch_children(path);
            let told = wire.answer(behind(ahead, children)).await;
            told.map(|(_names, stat, watcher)| (Vec::new(), stat, watcher))
        } else {
            wire.answer(behind(ahead, client.get_and_watch_data(path))).await
        };
        match answer {
            Ok((data, stat, watcher)) => {
                let (view, _) = shown(wire, query, seen, data, &stat);
                Ok((view, Some(watcher)))
            }
            Err(Trouble::Said(ZkError::NoNode)) => Ok((View::new(seen, vec![]), None)),
            Err(trouble) => Err(trouble),
        }
    };
    through(ask).await
}

/// Asks, and once more on the next connection if the one that it left by was lost.
async fn through<T, F>(mut ask: impl FnMut() -> F) -> Result<T, Trouble>
where
    F: Future<Output = Result<T, Trouble>>,
{
    /// What loses every connection that it goes by may be the reason.
    const CONNECTIONS: usize = 3;

    let mut answer = ask().await;
    for _ in 1..CONNECTIONS {
        match answer {
            Err(Trouble::Said(ZkError::ConnectionLoss | ZkError::Custom(_))) => {
                answer = ask().await;
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
        // On the heap: what asks for less, and most does, should not carry their state.
        (Scope::Children, Detail::Data) => {
            let snapshot = Box::pin(Snapshot::children(wire, client, query, sync, own)).await?;
            Ok(snapshot.listing(query, own, seen))
        }
        (Scope::Subtree, _) => {
            let snapshot = Box::pin(Snapshot::take(wire, client, &query.path, sync)).await?;
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
    let ahead = sync.then(|| client.sync("/"));
    let data = client.get_data(query.path.as_str());
    match wire.answer(behind(ahead, data)).await {
        Ok((data, stat)) => Ok(shown(wire, query, seen, data, &stat)),
        Err(Trouble::Said(ZkError::NoNode)) => Ok((View::new(seen, vec![]), vec![])),
        Err(trouble) => Err(trouble),
    }
}

/// What a query about a node is told of what was found there.
fn shown(
    wire: &Wire,
    query: &Query,
    seen: Revision,
    data: Vec<u8>,
    stat: &ZkStat,
) -> (View, Vec<Path>) {
    let path = &query.path;
    let revision = wire.see(stat).max(seen);
    if is_container(&data, stat) {
        return (View::new(revision, vec![]), vec![path.clone()]);
    }
    if path.is_root() {
        return (View::new(revision, vec![]), vec![]);
    }
    let data = if query.detail == Detail::Names { Bytes::new() } else { data.into() };
    let node = Node::new(path.clone()).with(data, translate(stat));
    (View::new(revision, vec![node]), vec![])
}

async fn names(
    wire: &Wire,
    client: &Client,
    query: &Query,
    sync: bool,
    own: &OnceLock<Sequence>,
) -> Result<(View, Vec<Path>), Trouble> {
    let seen = wire.seen();
    let (names, stat) = listed(wire, client, query, sync).await?;
    let revision = stat.map_or(seen, |stat| wire.see(&stat).max(seen));
    Ok((named(query, names, own.get().copied(), revision), vec![]))
}

/// All children, as the server lists them, and what their directory is like, if it is there.
pub(crate) async fn listed(
    wire: &Wire,
    client: &Client,
    query: &Query,
    sync: bool,
) -> Result<(Vec<String>, Option<ZkStat>), Trouble> {
    let ahead = sync.then(|| client.sync("/"));
    let children = client.get_children(query.path.as_str());
    match wire.answer(behind(ahead, children)).await {
        Ok((names, stat)) => Ok((names, Some(stat))),
        Err(Trouble::Said(ZkError::NoNode)) => Ok((Vec::new(), None)),
        Err(trouble) => Err(trouble),
    }
}

/// What a query about names is told of all children.
pub(crate) fn named(
    query: &Query,
    names: Vec<String>,
    own: Option<Sequence>,
    revision: Revision,
) -> View {
    let children = sift(query, names, own).into_iter();
    let nodes = children.filter_map(|(sequence, name)| {
        Some(Node::new(query.path.join(&name).ok()?).with_sequence(sequence))
    });
    View::new(revision, nodes.collect())
}

/// Waits for the request that was sent ahead, then for the one behind it.
pub(crate) async fn behind<T>(
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
