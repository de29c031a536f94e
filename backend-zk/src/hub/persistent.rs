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
use crate::hub::Hub;
use crate::hub::proof::prove;
use crate::notification::Notification;

impl Hub {
    /// Starts to watch a path. The request has been sent when this returns, and nothing has been
    /// polled: this runs under the lock.
    pub(super) fn keeper(
        self: &Arc<Self>,
        client: &Arc<Client>,
        path: &Path,
        recursive: bool,
        resync: bool,
    ) -> Task {
        let mode =
            if recursive { AddWatchMode::PersistentRecursive } else { AddWatchMode::Persistent };
        let asked = client.watch(path.as_str(), mode);
        spawn(keep(Arc::downgrade(self), self.wire.clone(), path.clone(), mode, resync, asked))
    }
}

/// Watches one path until it has no observer any more, or the session is over. The first request
/// for the watch was sent already.
async fn keep(
    hub: Weak<Hub>,
    wire: Arc<Connection>,
    path: Path,
    mode: AddWatchMode,
    resync: bool,
    asked: Answer<PersistentWatcher>,
) {
    let (mut resync, mut asked) = (resync, asked);
    // That of the last connection is dropped after the next one is requested: without any, the client would ask the server to remove
    // what a new connection does not have.
    let mut watcher = None;
    loop {
        match asked.await {
            Ok(new) => {
                let Some(held) = hub.upgrade() else { return };
                if resync {
                    held.resync(&path);
                }
                drop(held);
                if !listen(&hub, &wire, &path, watcher.insert(new)).await {
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
            Err(said) => {
                let error = Trouble::Said(said).translate("watch", Sort::Read).at(&path);
                if let Some(hub) = hub.upgrade() {
                    hub.fail(&path, error);
                }
                return;
            }
        }
        resync = true;
        let Ok(client) = wire.client("watch") else { return };
        asked = client.watch(path.as_str(), mode);
        drop(watcher.take());
    }
}

/// Reports the events of a watch. `true` if the watch must be set again.
async fn listen(
    hub: &Weak<Hub>,
    wire: &Connection,
    path: &Path,
    watcher: &mut PersistentWatcher,
) -> bool {
    let mut events: Vec<WatchedEvent> = Vec::new();
    loop {
        if events.is_empty() {
            events.push(watcher.changed().await);
        }
        drain(watcher, &mut events);
        let Some(held) = hub.upgrade() else { return false };
        let (now, doubtful) = (events.len(), doubtful(&held, path, &events));
        drop(held);
        let proofs = prove(wire, &doubtful).await;
        // Every event that a proof reflects has arrived before the proof. It is reported in the
        // next round, after its own doubtful events were verified too.
        drain(watcher, &mut events);
        let Some(held) = hub.upgrade() else { return false };
        for (place, event) in events.iter().enumerate().take(now) {
            if event.event_type == EventType::Session {
                match event.session_state {
                    SessionState::SyncConnected => return true,
                    state if state.is_terminated() => return false,
                    _ => continue,
                }
            }
            let Some(notification) = Notification::of(event) else { continue };
            // An event about its children, such as a guard, says nothing about the node itself.
            let of_it = |later: &&WatchedEvent| {
                later.path == event.path && later.event_type != EventType::NodeChildrenChanged
            };
            let later = events[place + 1..].iter().filter(of_it);
            let later: Vec<EventType> = later.map(|later| later.event_type).collect();
            let proof = proofs.get(&notification.path).map(|proof| proof.weaken(&later));
            held.deliver(path, &notification, proof.as_ref());
        }
        events.drain(..now);
    }
}

/// Takes the events that are there already, up to the end of the session.
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

/// The paths that were created and may be containers, whose events are not reported to observers that rely on them.
fn doubtful(hub: &Hub, path: &Path, events: &[WatchedEvent]) -> BTreeSet<Path> {
    let notification = events.iter().filter_map(Notification::of);
    let created = notification.filter(|notification| {
        notification.kind == Kind::Created && hub.verifies(path, notification)
    });
    created.map(|notification| notification.path).collect()
}
