//! Keeps one persistent watch: it is set again on each connection, and its events are verified
//! before they are reported.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use synod_core::path::Path;
use synod_core::store::Kind;
use synod_core::task::{Task, spawn};

use crate::client::{
    AddWatchMode, Answer, Client, EventType, PersistentWatcher, SessionState, WatchedEvent, ZkError,
};
use crate::connection::Connection;
use crate::error::{Sort, Trouble};
use crate::notification::Notification;
use crate::watch_registry::WatchRegistry;
use crate::watch_registry::created_path::read_created;

impl WatchRegistry {
    /// Starts to watch a path. The request has been sent when this returns, and nothing has been
    /// polled: this runs under the lock.
    pub(super) fn watch_task(
        self: &Arc<Self>,
        client: &Arc<Client>,
        path: &Path,
        recursive: bool,
        resync: bool,
    ) -> Task {
        let mode =
            if recursive { AddWatchMode::PersistentRecursive } else { AddWatchMode::Persistent };
        let request = client.watch(path.as_str(), mode);
        spawn(keep(
            Arc::downgrade(self),
            self.connection.clone(),
            path.clone(),
            mode,
            resync,
            request,
        ))
    }
}

/// Watches one path until it has no observer left, or the session is over. The first request for
/// the watch was sent already.
async fn keep(
    registry: Weak<WatchRegistry>,
    connection: Arc<Connection>,
    path: Path,
    mode: AddWatchMode,
    resync: bool,
    request: Answer<PersistentWatcher>,
) {
    let (mut resync, mut request) = (resync, request);
    // The watcher of the last connection is dropped only after the next one is requested: without
    // any watcher, the client would ask the server to remove a watch that the new connection does
    // not have.
    let mut watcher = None;
    loop {
        match request.await {
            Ok(new) => {
                let Some(upgraded) = registry.upgrade() else { return };
                if resync {
                    upgraded.resync(&path);
                }
                drop(upgraded);
                if !listen(&registry, &connection, &path, watcher.insert(new)).await {
                    return;
                }
            }
            Err(
                ZkError::SessionExpired
                | ZkError::ClientClosed
                | ZkError::AuthFailed
                | ZkError::Abandoned,
            ) => return,
            // The next request waits for a new connection.
            Err(ZkError::ConnectionLoss) => tokio::time::sleep(Duration::from_millis(10)).await,
            Err(error) => {
                let error = Trouble::Zk(error).translate("watch", Sort::Read).at(&path);
                if let Some(registry) = registry.upgrade() {
                    registry.fail(&path, error);
                }
                return;
            }
        }
        resync = true;
        let Ok(client) = connection.client("watch") else { return };
        request = client.watch(path.as_str(), mode);
        drop(watcher.take());
    }
}

/// Reports the events of a watch. `true` if the watch must be set again.
async fn listen(
    registry: &Weak<WatchRegistry>,
    connection: &Connection,
    path: &Path,
    watcher: &mut PersistentWatcher,
) -> bool {
    let mut events: Vec<WatchedEvent> = Vec::new();
    loop {
        if events.is_empty() {
            events.push(watcher.changed().await);
        }
        drain(watcher, &mut events);
        let Some(upgraded) = registry.upgrade() else { return false };
        let (count, unverified) = (events.len(), unverified(&upgraded, path, &events));
        drop(upgraded);
        let created_paths = read_created(connection, &unverified).await;
        // Every event that a read reflects has arrived before the response. It is reported in the
        // next round, after the unverified creations of that round were read too.
        drain(watcher, &mut events);
        let Some(upgraded) = registry.upgrade() else { return false };
        for (index, event) in events.iter().enumerate().take(count) {
            if event.event_type == EventType::Session {
                match event.session_state {
                    SessionState::SyncConnected => return true,
                    state if state.is_terminated() => return false,
                    _ => continue,
                }
            }
            let Some(notification) = Notification::of(event) else { continue };
            // An event about the children, such as a guard, shows nothing about the node itself.
            let of_node = |later: &&WatchedEvent| {
                later.path == event.path && later.event_type != EventType::NodeChildrenChanged
            };
            let later = events[index + 1..].iter().filter(of_node);
            let later: Vec<EventType> = later.map(|later| later.event_type).collect();
            let created_path = created_paths
                .get(&notification.path)
                .map(|created_path| created_path.after(&later));
            upgraded.deliver(path, &notification, created_path.as_ref());
        }
        events.drain(..count);
    }
}

/// Takes the events that have already arrived, up to the end of the session.
fn drain(watcher: &mut PersistentWatcher, events: &mut Vec<WatchedEvent>) {
    let over = |event: &WatchedEvent| {
        event.event_type == EventType::Session && event.session_state.is_terminated()
    };
    while !events.last().is_some_and(over)
        && let Some(event) = watcher.changed().now_or_never()
    {
        events.push(event);
    }
}

/// The created paths that may be containers, and whose events are reported only after verification.
fn unverified(registry: &WatchRegistry, path: &Path, events: &[WatchedEvent]) -> BTreeSet<Path> {
    let notification = events.iter().filter_map(Notification::of);
    let created = notification.filter(|notification| {
        notification.kind == Kind::Created && registry.verifies(path, notification)
    });
    created.map(|notification| notification.path).collect()
}
