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
use crate::error::Trouble;
use crate::selection::select_children;
use crate::snapshot::Snapshot;
use crate::stat::{is_container, translate};

/// [`read`], repeated on the next connection if the first one was lost.
pub(crate) async fn read_through(
    wire: &Connection,
    client: &Client,
    query: &Query,
) -> Result<(View, Vec<Path>), Trouble> {
    let own = OnceLock::new();
    let connection = wire.connection();
    let local = query.freshness == Freshness::Local;
    if !local || !wire.may_be_behind(connection) {
        let answer = through(|| read(wire, client, query, &own)).await;
        // The answer may have come by the next connection.
        if !local || wire.connection() == connection {
            return answer;
        }
    }
    Box::pin(caught_up(wire, client, query)).await
}

/// Reads what does not fit into one request or one answer, while a recursive watch at `watched` reports its changes.
pub(crate) async fn gather_through(
    wire: &Connection,
    client: &Client,
    watched: &Path,
    query: &Query,
) -> Result<(View, Vec<Path>), Trouble> {
    let seen = wire.seen();
    let gather =
        async |most| through(|| Snapshot::gather(wire, client, watched, (query, most))).await;
    let mut snapshot = gather(usize::MAX).await;
    if is_too_long(&snapshot) {
        snapshot = gather(wire.few).await;
    }
    let snapshot = snapshot?;
    Ok(match query.scope {
        Scope::Children => snapshot.listing(query, &OnceLock::new(), seen),
        Scope::Node | Scope::Subtree => snapshot.tree(query, seen),
    })
}

/// A local read on a new connection: after a `sync`, so that it reflects the events that were
/// received on the last one.
async fn caught_up(
    wire: &Connection,
    client: &Client,
    query: &Query,
) -> Result<(View, Vec<Path>), Trouble> {
    let own = OnceLock::new();
    let connection = wire.connection();
    let mut latest = query.clone();
    latest.freshness = Freshness::Latest;
    let answer = through(|| read(wire, client, &latest, &own)).await;
    if answer.is_ok() {
        wire.caught_up(connection);
    }
    answer
}

/// The answer to a request for a one-event watch on an existing node: its data, if requested, its
/// stat, and the watch.
pub(crate) type Once = (Vec<u8>, ZkStat, OneshotWatcher);

/// Requests the current state with a one-event watch. The requests have been sent when this
/// returns.
pub(crate) fn ask_once(
    wire: &Connection,
    client: &Client,
    query: &Query,
) -> BoxFuture<'static, Result<Once, ZkError>> {
    let path = query.path.as_str();
    let sync = query.freshness == Freshness::Latest || wire.may_be_behind(wire.connection());
    let ahead = sync.then(|| client.sync("/"));
    if query.is_until_gone() {
        // A watch on the children of the node also reports its deletion, and is not used up by
        // a write of the node.
        let children = behind(ahead, client.get_and_watch_children(path));
        children.map_ok(|(_names, stat, watcher)| (Vec::new(), stat, watcher)).boxed()
    } else {
        behind(ahead, client.get_and_watch_data(path)).boxed()
    }
}

/// The view for such an answer; a missing node has none. The session had seen up to `seen` when it
/// was requested.
pub(crate) fn shown_once(
    wire: &Connection,
    query: &Query,
    seen: Revision,
    answer: Result<Once, Trouble>,
) -> Result<(View, Option<OneshotWatcher>), Trouble> {
    match answer {
        Ok((data, stat, watcher)) => {
            let (view, _) = shown(wire, query, seen, data, &stat);
            Ok((view, Some(watcher)))
        }
        Err(Trouble::Said(ZkError::NoNode)) => Ok((View::new(seen, vec![]), None)),
        Err(trouble) => Err(trouble),
    }
}

/// How many connections a read tries: the read itself may be the reason that each is lost.
pub(crate) const CONNECTIONS: usize = 3;

/// Whether the connection of the request was lost.
pub(crate) fn is_lost<T>(answer: &Result<T, Trouble>) -> bool {
    matches!(answer, Err(Trouble::Said(ZkError::ConnectionLoss)))
}

/// `true` if the answer was longer than the limit.
pub(crate) fn is_too_long<T>(answer: &Result<T, Trouble>) -> bool {
    matches!(answer, Err(Trouble::Said(ZkError::TooLong)))
}

/// Sends a request, and again on the next connection if the first one was lost.
async fn through<T, F>(mut ask: impl FnMut() -> F) -> Result<T, Trouble>
where
    F: Future<Output = Result<T, Trouble>>,
{
    let mut answer = ask().await;
    for _ in 1..CONNECTIONS {
        if !is_lost(&answer) {
            break;
        }
        answer = ask().await;
    }
    answer
}

/// Answers a query. The containers that were found, including hidden ones, are returned with the
/// view.
///
/// Windows show nothing above `own`, which may become known as late as the listing does.
pub(crate) async fn read(
    wire: &Connection,
    client: &Client,
    query: &Query,
    own: &OnceLock<Sequence>,
) -> Result<(View, Vec<Path>), Trouble> {
    let seen = wire.seen();
    let sync = query.freshness == Freshness::Latest;
    match (query.scope, query.detail) {
        (Scope::Node, _) if !query.more.is_empty() => {
            let snapshot = Box::pin(Snapshot::nodes(wire, client, query, sync)).await?;
            Ok(snapshot.tree(query, seen))
        }
        (Scope::Node, _) => node(wire, client, query, sync, seen).await,
        (Scope::Children, Detail::Names) => names(wire, client, query, sync, own).await,
        // Boxed: most queries need neither branch, and should not carry their state.
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
    wire: &Connection,
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

/// The view of a query about one node.
fn shown(
    wire: &Connection,
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
    wire: &Connection,
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

/// All children as the server lists them, and the stat of their directory, if it exists.
pub(crate) async fn listed(
    wire: &Connection,
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
