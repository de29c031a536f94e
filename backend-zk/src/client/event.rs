//! Events: of nodes that are watched, and of the session.

use std::future::pending;

use tokio::sync::watch;

use crate::client::jute::Decoder;
use crate::client::zk_error::ZkError;

/// The state of the session's connection, or of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionState {
    Disconnected,
    SyncConnected,
    /// The servers do not accept the login. The session is over.
    AuthFailed,
    /// A server reported that the session is over, or no server was found for too long.
    Expired,
    /// The client ended it.
    Closed,
    /// The runtime of the session's task has ended, and no server was informed: the session
    /// expires.
    Abandoned,
}

impl SessionState {
    pub(crate) fn is_terminated(self) -> bool {
        matches!(self, Self::AuthFailed | Self::Expired | Self::Closed | Self::Abandoned)
    }

    /// The error of a request in this state.
    pub(super) fn error(self) -> ZkError {
        match self {
            Self::Disconnected | Self::SyncConnected => ZkError::ConnectionLoss,
            Self::AuthFailed => ZkError::AuthFailed,
            Self::Expired => ZkError::SessionExpired,
            Self::Closed => ZkError::ClientClosed,
            Self::Abandoned => ZkError::Abandoned,
        }
    }
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventType {
    /// No node: the session has another state.
    Session,
    NodeCreated,
    NodeDeleted,
    NodeDataChanged,
    NodeChildrenChanged,
}

/// An event as a watcher gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WatchedEvent {
    pub(crate) event_type: EventType,
    /// The new state, for an event of the session.
    pub(crate) session_state: SessionState,
    pub(crate) path: String,
    /// The change that is reported, if the server sends it: servers of 3.9 and newer do
    /// (ZOOKEEPER-4655).
    pub(crate) zxid: i64,
}

impl WatchedEvent {
    pub(super) fn of_session(session_state: SessionState) -> Self {
        Self { event_type: EventType::Session, session_state, path: String::new(), zxid: -1 }
    }

    /// The event in a message of the server. `None` for an event of an unknown kind.
    pub(super) fn read(zxid: i64, body: &[u8]) -> Result<Option<Self>, ZkError> {
        let mut reading = Decoder::new(body);
        let event_type = match reading.int()? {
            1 => EventType::NodeCreated,
            2 => EventType::NodeDeleted,
            3 => EventType::NodeDataChanged,
            4 => EventType::NodeChildrenChanged,
            _ => return Ok(None),
        };
        let _state = reading.int()?;
        let path = reading.text()?.to_owned();
        Ok(Some(Self { event_type, session_state: SessionState::SyncConnected, path, zxid }))
    }
}

/// Follows the state of a session.
#[derive(Clone, Debug)]
pub(crate) struct StateWatcher(watch::Receiver<SessionState>);

impl StateWatcher {
    pub(super) fn new(states: watch::Receiver<SessionState>) -> Self {
        Self(states)
    }

    /// Returns the current state, and marks it as seen.
    pub(crate) fn state(&mut self) -> SessionState {
        // The task reports its last state before it ends.
        let has_task = self.0.has_changed().is_ok();
        let state = *self.0.borrow_and_update();
        if has_task || state.is_terminated() { state } else { SessionState::Abandoned }
    }

    /// Waits until the state differs from the one that was last seen. After the last state it waits
    /// forever.
    pub(crate) async fn changed(&mut self) -> SessionState {
        match self.0.changed().await {
            Ok(()) => self.state(),
            Err(_no_task) if self.state() == SessionState::Abandoned => SessionState::Abandoned,
            Err(_over) => pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::client::jute::Encoder;

    #[tokio::test]
    async fn a_session_without_its_task_is_abandoned_unless_it_was_over() {
        for (last, seen) in [
            (SessionState::SyncConnected, SessionState::Abandoned),
            (SessionState::Closed, SessionState::Closed),
        ] {
            let (sender, states) = watch::channel(SessionState::Disconnected);
            let mut states = StateWatcher::new(states);
            sender.send_replace(last);
            assert_eq!(states.changed().await, last);
            drop(sender);
            assert_eq!(states.state(), seen);
            assert_eq!(states.changed().now_or_never(), Some(seen).filter(|it| *it != last));
        }
    }

    #[test]
    fn every_event_of_a_server_is_known() {
        let read = |number: i32| {
            let mut body = Encoder::default();
            body.int(number).int(3).text("/a");
            let event = WatchedEvent::read(-1, &body.finish()).expect("it is whole");
            event.map(|event| (event.event_type, event.path))
        };
        let known = [
            EventType::NodeCreated,
            EventType::NodeDeleted,
            EventType::NodeDataChanged,
            EventType::NodeChildrenChanged,
        ];
        for (number, event) in (1..).zip(known) {
            assert_eq!(read(number), Some((event, "/a".to_owned())));
        }
        assert_eq!([0, 5, -1].map(read), [None, None, None]);
    }
}
