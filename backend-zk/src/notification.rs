//! [`Notification`]: a translated event of the server, and its meaning for queries. Pure.

use synod_core::path::Path;
use synod_core::store::{Change, Detail, Kind, Query, Revision, Scope};

use crate::client::{EventType, WatchedEvent};
use crate::containers::is_probe;
use crate::selection::is_ours;

/// A translated event of the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Notification {
    pub(crate) path: Path,
    pub(crate) kind: Kind,
    revision: Option<Revision>,
}

impl Notification {
    /// `None` if the event concerns no observer.
    pub(crate) fn of(event: &WatchedEvent) -> Option<Self> {
        let kind = match event.event_type {
            EventType::NodeCreated => Kind::Created,
            EventType::NodeDeleted => Kind::Deleted,
            EventType::NodeDataChanged => Kind::Updated,
            EventType::NodeChildrenChanged => Kind::Children,
            EventType::Session => return None,
        };
        if is_probe(&event.path) {
            return None;
        }
        let path = Path::new(&event.path).ok()?;
        // Only newer servers report it (ZOOKEEPER-4655).
        let revision = u64::try_from(event.zxid).ok().filter(|zxid| *zxid > 0).map(Revision::new);
        Some(Self { path, kind, revision })
    }
}

/// The change that an observer of this query gets for an event, if any.
pub(crate) fn change_for(query: &Query, notification: &Notification) -> Option<Change> {
    let own = notification.path == query.path;
    let covered = match (query.scope, notification.kind) {
        (Scope::Node | Scope::Subtree, Kind::Children) => false,
        (Scope::Node, kind) => own && (kind == Kind::Deleted || !query.is_until_gone()),
        (Scope::Children, Kind::Children) => own && query.detail == Detail::Names,
        (Scope::Children, kind) => {
            notification.path.parent_str() == Some(query.path.as_str())
                && notification.path.name().starts_with(&query.prefix)
                && (query.detail == Detail::Data || kind != Kind::Updated)
                && is_ours(query.path.as_str(), notification.path.name())
        }
        (Scope::Subtree, _) => own || notification.path.is_below(&query.path),
    };
    covered.then(|| {
        let mut change = Change::new(notification.path.clone(), notification.kind);
        change.revision = notification.revision;
        change
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::SessionState;

    fn path(text: &str) -> Path {
        Path::new(text).expect("valid")
    }

    #[test]
    fn a_server_that_knows_no_revision_says_none() {
        for (zxid, revision) in [(-1, None), (0, None), (7, Some(Revision::new(7)))] {
            let (event_type, session_state) = (EventType::NodeCreated, SessionState::SyncConnected);
            let event = WatchedEvent { event_type, session_state, path: "/a".to_owned(), zxid };
            assert_eq!(Notification::of(&event).expect("it is a change").revision, revision);
        }
    }

    #[test]
    fn every_watch_reports_what_it_observes_and_nothing_else() {
        let node = Query::node(path("/a"));
        let names = Query::children(path("/a")).names_only();
        let data = Query::children(path("/a")).starting_with("b");
        let tree = Query::subtree(path("/a"));
        // The queries of these four that are notified.
        let table = [
            ("/a", Kind::Updated, [true, false, false, true]),
            ("/a", Kind::Children, [false, true, false, false]),
            ("/a/b", Kind::Created, [false, true, true, true]),
            ("/a/b", Kind::Updated, [false, false, true, true]),
            ("/a/c", Kind::Deleted, [false, true, false, true]),
            ("/a/b/c", Kind::Deleted, [false, false, false, true]),
            ("/ab", Kind::Created, [false, false, false, false]),
        ];
        for (at, kind, expected) in table {
            let notification = Notification { path: path(at), kind, revision: None };
            let notified = [&node, &names, &data, &tree]
                .map(|query| change_for(query, &notification).is_some());
            assert_eq!(notified, expected, "{at} {kind:?}");
        }
    }
}
