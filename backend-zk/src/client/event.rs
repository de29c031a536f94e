//! Events: of nodes that are watched, and of the session.

use std::future::pending;

use tokio::sync::watch;

use crate::client::jute::Decoder;
use crate::client::zk_error::ZkError;

/// What became of the session's connection, or of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionState {
    Disconnected,
    SyncConnected,
    /// The servers do not accept the login. The session is over.
    AuthFailed,
    /// A server says that the session is over, or no server was found for too long.
    Expired,
    /// The client ended it.
    Closed,
}

impl SessionState {
    pub(crate) fn is_terminated(self) -> bool {
        matches!(self, Self::AuthFailed | Self::Expired | Self::Closed)
    }

    /// What a request gets that is made in this state.
    pub(super) fn error(self) -> ZkError {
        match self {
            Self::Disconnected | Self::SyncConnected => ZkError::ConnectionLoss,
            Self::AuthFailed => ZkError::AuthFailed,
            Self::Expired => ZkError::SessionExpired,
            Self::Closed => ZkError::ClientClosed,
        }
    }
}

/// What happened to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventType {
    /// Nothing: the session has another state.
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
    /// The change that is reported, where the server says so: those of 3.9 and newer do (ZOOKEEPER-4655).
    pub(crate) zxid: i64,
}

impl WatchedEvent {
    pub(super) fn of_session(session_state: SessionState) -> Self {
        Self { event_type: EventType::Session, session_state, path: String::new(), zxid: -1 }
    }

    /// The event in a message of the server.
    pub(super) fn read(zxid: i64, body: &[u8]) -> Result<Self, ZkError> {
        let mut reading = Decoder::new(body);
        let event_type = match reading.int()? {
            1 => EventType::NodeCreated,
            2 => EventType::NodeDeleted,
            3 => EventType::NodeDataChanged,
            4 => EventType::NodeChildrenChanged,
            _ => return Err(ZkError::Malformed("an unknown event")),
        };
        let _state = reading.int()?;
        let path = reading.text()?.to_owned();
        Ok(Self { event_type, session_state: SessionState::SyncConnected, path, zxid })
    }
}

/// Follows the state of a session.
#[derive(Clone, Debug)]
pub(crate) struct StateWatcher(watch::Receiver<SessionState>);

impl StateWatcher {
    pub(super) fn new(states: watch::Receiver<SessionState>) -> Self {
        Self(states)
    }

    /// The state as it is, which is seen then.
    pub(crate) fn state(&mut self) -> SessionState {
        *self.0.borrow_and_update()
    }

    /// Waits until the state is not the one that was seen last. After the last one it waits for ever.
    pub(crate) async fn changed(&mut self) -> SessionState {
        match self.0.changed().await {
            Ok(()) => self.state(),
            Err(_over) => pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::jute::Encoder;

    #[test]
    fn every_event_of_a_server_is_known() {
        let read = |number: i32| {
            let mut body = Encoder::default();
            body.int(number).int(3).text("/a");
            WatchedEvent::read(-1, &body.finish()).map(|event| (event.event_type, event.path))
        };
        let known = [
            EventType::NodeCreated,
            EventType::NodeDeleted,
            EventType::NodeDataChanged,
            EventType::NodeChildrenChanged,
        ];
        for (number, event) in (1..).zip(known) {
            assert_eq!(read(number), Ok((event, "/a".to_owned())));
        }
        assert!(read(0).is_err() && read(5).is_err());
    }
}
