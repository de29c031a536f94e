//! Reads: one node in one request, names in one request, the data of several nodes by a
//! [`Snapshot`].

use std::sync::OnceLock;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, TryFutureExt as _};
use synod_core::path::Path;
use synod_core::store::{Detail, Freshness, Node, Query, Revision, Scope, Sequence, View};

use crate::client::{Client, OneshotWatcher, ZkError, ZkStat, behind};
use crate::connection::Connection;
use crate::containers::{is_container, translate};
use crate::error::Trouble;
use crate::selection::select_children;
use crate::snapshot::Snapshot;

/// [`read`], repeated on the next connection if the first one was lost.
pub(crate) async fn read_through(
    connection: &Connection,
    client: &Client,
    query: &Query,
) -> Result<(View, Vec<Path>), Trouble> {
    let own = OnceLock::new();
    let generation = connection.generation();
    let local = query.freshness == Freshness::Local;
    if !local || !connection.may_be_behind(generation) {
        let answer = through(|| read(connection, client, query, &own)).await;
        // The answer may have arrived on the next connection.
        if !local || connection.generation() == generation {
            return answer;
        }
    }
    Box::pin(caught_up(connection, client, query)).await
}

/// Reads nodes that do not fit into one request or one answer, while a recursive watch at `watched`
/// reports their changes.
pub(crate) async fn gather_through(
    connection: &Connection,
    client: &Client,
    watched: &Path,
    query: &Query,
) -> Result<(View, Vec<Path>), Trouble> {
    let seen = connection.seen();
    let gather =
        async |most| through(|| Snapshot::gather(connection, client, watched, (query, most))).await;
    let mut snapshot = gather(usize::MAX).await;
    if is_too_long(&snapshot) {
        snapshot = gather(connection.max_nodes).await;
    }
    let snapshot = snapshot?;
    Ok(match query.scope {
        Scope::Children => snapshot.listing(query, &OnceLock::new(), seen),
        Scope::Node | Scope::Subtree => snapshot.tree(query, seen),
    })
}

/// Makes a local read on a new connection after a `sync`, so that it reflects the events that were
/// received on the last connection.
async fn caught_up(
    connection: &Connection,
    client: &Client,
    query: &Query,
) -> Result<(View, Vec<Path>), Trouble> {
    let own = OnceLock::new();
    let generation = connection.generation();
    let mut latest = query.clone();
    latest.freshness = Freshness::Latest;
    let answer = through(|| read(connection, client, &latest, &own)).await;
    if answer.is_ok() {
        connection.caught_up(generation);
    }
    answer
}

/// The answer to a request for a one-event watch on an existing node: its data, if requested, its
/// stat, and the watch.
pub(crate) type Once = (Vec<u8>, ZkStat, OneshotWatcher);

/// Requests the current state with a one-event watch. The requests have been sent when this
/// returns.
pub(crate) fn request_once(
    connection: &Connection,
    client: &Client,
    query: &Query,
) -> BoxFuture<'static, Result<Once, ZkError>> {
    let path = query.path.as_str();
    let sync =
        query.freshness == Freshness::Latest || connection.may_be_behind(connection.generation());
    let sync = sync.then(|| client.sync("/"));
    if query.is_until_gone() {
        // A watch on the children of the node also reports its deletion, and does not fire at a
        // write of the node.
        let children = behind(sync, client.get_and_watch_children(path));
        children.map_ok(|(_names, stat, watcher)| (Vec::new(), stat, watcher)).boxed()
    } else {
        behind(sync, client.get_and_watch_data(path)).boxed()
    }
}

/// The view for such an answer; it is empty if the node does not exist. `seen` is the revision up
/// to which the session had seen changes when the request was sent.
pub(crate) fn view_of_once(
    connection: &Connection,
    query: &Query,
    seen: Revision,
    answer: Result<Once, Trouble>,
) -> Result<(View, Option<OneshotWatcher>), Trouble> {
    match answer {
        Ok((data, stat, watcher)) => {
            let (view, _) = view_of(connection, query, seen, data, &stat);
            Ok((view, Some(watcher)))
        }
        Err(Trouble::Zk(ZkError::NoNode)) => Ok((View::new(seen, vec![]), None)),
        Err(trouble) => Err(trouble),
    }
}

/// The maximum number of connections for a read: the read itself may be the reason that each is
/// lost.
pub(crate) const MAX_CONNECTIONS: usize = 3;

/// Returns `true` if the connection of the request was lost.
pub(crate) fn is_lost<T>(answer: &Result<T, Trouble>) -> bool {
    matches!(answer, Err(Trouble::Zk(ZkError::ConnectionLoss)))
}

/// Returns `true` if the answer was longer than the limit.
pub(crate) fn is_too_long<T>(answer: &Result<T, Trouble>) -> bool {
    matches!(answer, Err(Trouble::Zk(ZkError::TooLong)))
}

/// Sends a request, and again on the next connection if the first one was lost.
async fn through<T, F>(mut request: impl FnMut() -> F) -> Result<T, Trouble>
where
    F: Future<Output = Result<T, Trouble>>,
{
    let mut answer = request().await;
    for _ in 1..MAX_CONNECTIONS {
        if !is_lost(&answer) {
            break;
        }
        answer = request().await;
    }
    answer
}

/// Answers a query. Returns the view, and the containers that were found, including hidden ones.
///
/// Windows show nothing above `own`, which may become known while the listing is in flight.
pub(crate) async fn read(
    connection: &Connection,
    client: &Client,
    query: &Query,
    own: &OnceLock<Sequence>,
) -> Result<(View, Vec<Path>), Trouble> {
    let seen = connection.seen();
    let sync = query.freshness == Freshness::Latest;
    match (query.scope, query.detail) {
        (Scope::Node, _) if !query.more.is_empty() => {
            let snapshot = Box::pin(Snapshot::nodes(connection, client, query, sync)).await?;
            Ok(snapshot.tree(query, seen))
        }
        (Scope::Node, _) => node(connection, client, query, sync, seen).await,
        (Scope::Children, Detail::Names) => names(connection, client, query, sync, own).await,
        // Boxed: most queries need neither branch, and should not carry their state.
        (Scope::Children, Detail::Data) => {
            let snapshot =
                Box::pin(Snapshot::children(connection, client, query, sync, own)).await?;
            Ok(snapshot.listing(query, own, seen))
        }
        (Scope::Subtree, _) => {
            let snapshot = Box::pin(Snapshot::take(connection, client, &query.path, sync)).await?;
            Ok(snapshot.tree(query, seen))
        }
    }
}

async fn node(
    connection: &Connection,
    client: &Client,
    query: &Query,
    sync: bool,
    seen: Revision,
) -> Result<(View, Vec<Path>), Trouble> {
    let sync = sync.then(|| client.sync("/"));
    let data = client.get_data(query.path.as_str());
    match connection.answer(behind(sync, data)).await {
        Ok((data, stat)) => Ok(view_of(connection, query, seen, data, &stat)),
        Err(Trouble::Zk(ZkError::NoNode)) => Ok((View::new(seen, vec![]), vec![])),
        Err(trouble) => Err(trouble),
    }
}

/// The view of a query about one node.
fn view_of(
    connection: &Connection,
    query: &Query,
    seen: Revision,
    data: Vec<u8>,
    stat: &ZkStat,
) -> (View, Vec<Path>) {
    let path = &query.path;
    let revision = connection.see(stat).max(seen);
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
    connection: &Connection,
    client: &Client,
    query: &Query,
    sync: bool,
    own: &OnceLock<Sequence>,
) -> Result<(View, Vec<Path>), Trouble> {
    let seen = connection.seen();
    let (names, stat) = listed(connection, client, query, sync).await?;
    let revision = stat.map_or(seen, |stat| connection.see(&stat).max(seen));
    Ok((named(query, names, own.get().copied(), revision), vec![]))
}

/// All children as the server lists them, and the stat of their directory, if it exists.
pub(crate) async fn listed(
    connection: &Connection,
    client: &Client,
    query: &Query,
    sync: bool,
) -> Result<(Vec<String>, Option<ZkStat>), Trouble> {
    let sync = sync.then(|| client.sync("/"));
    let children = client.get_children(query.path.as_str());
    match connection.answer(behind(sync, children)).await {
        Ok((names, stat)) => Ok((names, Some(stat))),
        Err(Trouble::Zk(ZkError::NoNode)) => Ok((Vec::new(), None)),
        Err(trouble) => Err(trouble),
    }
}

/// The view of a query about names, from all children.
pub(crate) fn named(
    query: &Query,
    names: Vec<String>,
    own: Option<Sequence>,
    revision: Revision,
) -> View {
    let children = select_children(query, names, own).into_iter();
    let nodes = children.filter_map(|(sequence, name)| {
        Some(Node::new(query.path.join(&name).ok()?).with_sequence(sequence))
    });
    View::new(revision, nodes.collect())
}
