//! [`Content`]: the nodes of a mirror, and the rules by which they follow the events of the store.
//! Pure.

use std::mem::take;
use std::sync::Arc;

use synod_core::path::Path;
use synod_core::store::{Change, Kind, Node, Revision, View};

use crate::mirror::event::CacheEvent;
use crate::mirror::event_log::MAX_EVENTS;
use crate::mirror::extent::Extent;
use crate::mirror::snapshot::NodesByPath;
use crate::mutant::mistake;

/// The nodes of a mirror. A version that is older than the known one is never applied, from any
/// source: revisions order all writes of a path, even across a deletion and a new create, after
/// which the versions start again.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    /// Shared with snapshots, and copied by the next change while a snapshot exists.
    pub(super) nodes: Arc<NodesByPath>,
    /// The newest revision that it shows.
    pub(super) newest: Revision,
    /// The revision at which every path without a node had none, or a later read found none. An
    /// event that is not newer than this does not prove that a node exists.
    floor: Revision,
}

/// The result if a node must be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unread;

/// The content after a view of the whole extent, and the differences from the content before.
#[derive(Debug)]
pub(super) struct Replacement {
    nodes: NodesByPath,
    revision: Revision,
    /// `None` if there are more than the log can hold, or if the store went back.
    events: Option<Vec<CacheEvent>>,
    /// True if the view shows that the store went back.
    goes_back: bool,
}

impl Content {
    /// Applies a reported change of a path in the extent, as far as that is possible without a
    /// read.
    pub(super) fn apply(
        &mut self,
        extent: &Extent,
        change: Change,
    ) -> Result<Option<CacheEvent>, Unread> {
        let Change { path, kind, revision, node, .. } = change;
        match (kind, revision, node) {
            (Kind::Deleted, Some(revision), _) => Ok(self.remove_at(&path, revision)),
            (Kind::Deleted, None, _) if extent.takes_deletions_as_reported() => {
                Ok(self.remove(&path))
            }
            (Kind::Created | Kind::Updated, _, Some(node)) if node.stat.is_some() => {
                let Some(node) = extent.narrowed(node) else { return Ok(None) };
                if !self.nodes.has(path.as_str()) && modified(&node) <= self.floor {
                    return Err(Unread);
                }
                Ok(self.put(node))
            }
            (Kind::Children, ..) => Ok(None),
            (Kind::Created, _, None) if extent.is_known_by_name(&path) => {
                Ok(self.put(Node::new(path)))
            }
            _ => Err(Unread),
        }
    }

    /// Applies the result of a read of one node, which was sent after all known changes were
    /// reported.
    pub(super) fn apply_read(
        &mut self,
        path: &Path,
        node: Option<Node>,
        at: Revision,
    ) -> Option<CacheEvent> {
        if let Some(node) = node {
            return self.put(node);
        }
        let last = self.nodes.get(path.as_str()).map(modified).unwrap_or_default();
        self.floor = self.floor.max(at).max(last);
        self.remove(path)
    }

    fn remove(&mut self, path: &Path) -> Option<CacheEvent> {
        if !self.nodes.has(path.as_str()) {
            return None;
        }
        Arc::make_mut(&mut self.nodes).take(path.as_str()).map(CacheEvent::Deleted)
    }

    /// Applies a view, by its [`Content::difference`].
    pub(super) fn replace(
        &mut self,
        by: Replacement,
    ) -> (Arc<NodesByPath>, Option<Vec<CacheEvent>>) {
        self.newest = if by.goes_back { by.revision } else { self.newest.max(by.revision) };
        self.floor = self.newest;
        (std::mem::replace(&mut self.nodes, Arc::new(by.nodes)), by.events)
    }

    /// The effect of a view of the whole extent on these nodes. It takes time in proportion to the
    /// number of nodes, and needs no lock.
    ///
    /// A view in another session is not older than the known content. If it shows an older version
    /// of a node, or other data in the same version, the store was restored from a backup, and the
    /// view replaces everything.
    pub(super) fn difference(
        old: &NodesByPath,
        extent: &Extent,
        view: View,
        is_other_session: bool,
    ) -> Replacement {
        let mut revision = view.revision;
        let view: Vec<_> = view.nodes.into_iter().filter_map(|node| extent.kept(node)).collect();
        let goes_back =
            |node: &Node| old.get(node.path.as_str()).is_some_and(|it| is_undone(it, node));
        if is_other_session && view.iter().any(goes_back) {
            revision = view.iter().map(modified).fold(revision, Revision::max);
            let nodes = view.into_iter().collect();
            return Replacement { nodes, revision, events: None, goes_back: true };
        }
        let mut nodes = Vec::with_capacity(view.len());
        let (mut events, mut gone) = (Vec::new(), Vec::new());
        let mut before = old.iter().peekable();
        for node in view {
            revision = revision.max(modified(&node));
            while let Some(last) = before.next_if(|last| last.path < node.path) {
                gone.push(last.clone());
            }
            let known = before.next_if(|known| known.path == node.path);
            let node = match known {
                Some(known) if !is_newer(&node, known) => known.clone(),
                _ => {
                    // Events need memory, and no reader gets them if there are too many.
                    if events.len() <= MAX_EVENTS {
                        events.push(written(known, &node));
                    }
                    node
                }
            };
            nodes.push(node);
        }
        gone.extend(before.cloned());
        mistake!(ResyncOnlyAdds: nodes.append(&mut gone));
        // Children are deleted before their parents: in the order of paths they follow them.
        let mut all: Vec<_> = take(&mut gone).into_iter().rev().map(CacheEvent::Deleted).collect();
        all.append(&mut events);
        let nodes = nodes.into_iter().collect();
        let events = Some(all).filter(|all| all.len() <= MAX_EVENTS);
        Replacement { nodes, revision, events, goes_back: false }
    }

    fn put(&mut self, node: Node) -> Option<CacheEvent> {
        self.newest = self.newest.max(modified(&node));
        let known = self.nodes.get(node.path.as_str());
        if known.is_some_and(|known| !is_newer(&node, known)) {
            return None;
        }
        let event = written(known, &node);
        Arc::make_mut(&mut self.nodes).put(node);
        Some(event)
    }

    /// Applies a deletion at this revision. A newer node was created again afterwards.
    fn remove_at(&mut self, path: &Path, at: Revision) -> Option<CacheEvent> {
        self.newest = self.newest.max(at);
        let is_known = self.nodes.get(path.as_str()).is_some_and(|known| modified(known) < at);
        if is_known { self.remove(path) } else { None }
    }
}

/// Returns `true` if a reported node is newer than the known one.
fn is_newer(node: &Node, known: &Node) -> bool {
    let is_newer = modified(node) > modified(known);
    mistake!(NewerByVersion: let is_newer = {
        let version = |node: &Node| node.stat.map(|stat| stat.version.get());
        version(node) > version(known)
    });
    is_newer
}

/// Returns `true` if the store has undone the known version of a node, given that it now returns
/// this one.
fn is_undone(known: &Node, now: &Node) -> bool {
    let is_same = modified(now) == modified(known);
    known.stat.is_some() && (modified(now) < modified(known) || is_same && now != known)
}

/// The event for a node that is newer than the known one.
fn written(known: Option<&Node>, node: &Node) -> CacheEvent {
    match known {
        None => CacheEvent::Created(node.clone()),
        Some(known) => CacheEvent::Updated { before: known.clone(), node: node.clone() },
    }
}

/// The revision of a node's last write. All nodes have a stat, except those that are known by name.
fn modified(node: &Node) -> Revision {
    node.stat.map(|stat| stat.modified).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use synod_core::path;
    use synod_core::store::{Stat, Version};

    use super::*;

    fn node(path: &str, created: u64, modified: u64) -> Node {
        let version = Version::new(modified - created);
        let stat = Stat::new(Revision::new(created), Revision::new(modified), version, None);
        let path = Path::new(path).expect("valid");
        Node::new(path).with(Bytes::from(modified.to_string()), stat)
    }

    fn all() -> Extent {
        Extent::subtree(path!("/a"))
    }

    /// A content with these nodes, as of a revision.
    fn content(at: u64, nodes: &[Node]) -> Content {
        let mut content = Content::default();
        let view = View::new(Revision::new(at), nodes.to_vec());
        content.replace(Content::difference(&NodesByPath::default(), &all(), view, true));
        content
    }

    fn change(node: &Node) -> Change {
        let kind = match node.stat {
            Some(stat) if stat.created == stat.modified => Kind::Created,
            _ => Kind::Updated,
        };
        Change::new(node.path.clone(), kind).at(modified(node)).with_node(node.clone())
    }

    fn deleted(path: &str, at: u64) -> Change {
        Change::new(Path::new(path).expect("valid"), Kind::Deleted).at(Revision::new(at))
    }

    #[track_caller]
    fn assert_applied(news: &Result<Option<CacheEvent>, Unread>, expected: &str) {
        let shown = match news {
            Ok(None) => "nothing".to_owned(),
            Ok(Some(event)) => shown(event),
            Err(Unread) => "unread".to_owned(),
        };
        assert_eq!(shown, expected);
    }

    fn shown(event: &CacheEvent) -> String {
        match event {
            CacheEvent::Created(node) => format!("+{} {}", node.path, modified(node).get()),
            CacheEvent::Updated { node, .. } => format!("~{} {}", node.path, modified(node).get()),
            CacheEvent::Deleted(node) => format!("-{}", node.path),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn an_event_that_is_older_than_the_read_content_changes_nothing() {
        let mut content = content(10, &[node("/a/b", 5, 8)]);
        assert_applied(&content.apply(&all(), change(&node("/a/b", 5, 7))), "nothing");
        assert_applied(&content.apply(&all(), change(&node("/a/b", 5, 8))), "nothing");
        assert_applied(&content.apply(&all(), deleted("/a/b", 4)), "nothing");
        assert_applied(&content.apply(&all(), deleted("/a/c", 11)), "nothing");
        assert_eq!(content.nodes.len(), 1);

        assert_applied(&content.apply(&all(), change(&node("/a/b", 5, 11))), "~/a/b 11");
        assert_applied(&content.apply(&all(), deleted("/a/b", 12)), "-/a/b");
        assert_applied(&content.apply(&all(), change(&node("/a/b", 13, 13))), "+/a/b 13");
        assert_eq!(content.newest, Revision::new(13));
    }

    #[test]
    fn a_node_that_a_read_did_not_find_is_not_created_again_by_an_older_event() {
        let mut content = content(10, &[node("/a/b", 5, 8)]);
        assert_applied(&content.apply(&all(), change(&node("/a/c", 9, 9))), "unread");
        let gone = content.apply_read(&path!("/a/b"), None, Revision::new(14));
        assert!(matches!(gone, Some(CacheEvent::Deleted(_))));
        assert_applied(&content.apply(&all(), change(&node("/a/b", 5, 12))), "unread");
        assert_applied(&content.apply(&all(), change(&node("/a/b", 15, 15))), "+/a/b 15");
    }

    #[test]
    fn a_node_with_an_incomplete_event_is_read() {
        let mut content = content(10, &[node("/a/b", 5, 8)]);
        for kind in [Kind::Created, Kind::Updated, Kind::Deleted] {
            assert_applied(&content.apply(&all(), Change::new(path!("/a/b"), kind)), "unread");
        }
        assert_applied(&content.apply(&all(), Change::new(path!("/a"), Kind::Children)), "nothing");
        let found =
            content.apply_read(&path!("/a/b"), Some(node("/a/b", 11, 11)), Revision::new(11));
        assert_eq!(shown(&found.expect("it is another node")), "~/a/b 11");
        let again =
            content.apply_read(&path!("/a/b"), Some(node("/a/b", 11, 11)), Revision::new(12));
        assert!(again.is_none(), "it is known");
    }

    #[test]
    fn a_deletion_that_is_taken_as_reported_is_not_read() {
        let (extent, mut content) =
            (all().deletions_as_reported(), content(10, &[node("/a/b", 5, 8)]));
        let gone = |path: &Path| Change::new(path.clone(), Kind::Deleted);
        assert_applied(&content.apply(&extent, gone(&path!("/a/b"))), "-/a/b");
        assert_applied(&content.apply(&extent, gone(&path!("/a/b"))), "nothing");
        assert_applied(&content.apply(&extent, gone(&path!("/a/c"))), "nothing");
        assert_applied(
            &content.apply(&extent, Change::new(path!("/a/c"), Kind::Created)),
            "unread",
        );
    }

    #[test]
    fn a_view_is_applied_as_the_difference() {
        let old = content(10, &["/a", "/a/b", "/a/c", "/a/d"].map(|path| node(path, 2, 4)));
        // The last version of the second, another node with the same version, and a new one.
        let found =
            [node("/a", 2, 4), node("/a/b", 2, 12), node("/a/c", 11, 13), node("/a/e", 14, 14)];
        let places = [Node::new(path!("/a/f"))];
        let view = View::new(Revision::new(14), [&found[..], &places].concat());
        let difference = Content::difference(&old.nodes, &all(), view, true);
        let mut new = old.clone();
        let (last, events) = new.replace(difference);
        assert!(last.iter().eq(old.nodes.iter()), "{last:?}");
        let events = events.expect("they are few");
        let shown: Vec<_> = events.iter().map(shown).collect();
        assert_eq!(shown, ["-/a/d", "~/a/b 12", "~/a/c 13", "+/a/e 14"]);

        let by_path = |node: &Node| (node.path.clone(), node.clone());
        let mut replayed: BTreeMap<_, _> = old.nodes.iter().map(by_path).collect();
        for event in events {
            event.apply(&mut replayed);
        }
        assert!(replayed.values().eq(new.nodes.iter()), "{replayed:?}");
        assert_eq!(new.newest, Revision::new(14));
    }

    #[test]
    fn deletions_are_of_children_before_their_parents() {
        let paths = ["/a", "/a/b", "/a/b-c", "/a/b/c"];
        let old = content(10, &paths.map(|path| node(path, 2, 4)));
        let view = View::new(Revision::new(12), vec![node("/a/d", 12, 12)]);
        let events = Content::difference(&old.nodes, &all(), view, false).events;
        let shown: Vec<_> = events.expect("they are few").iter().map(shown).collect();
        assert_eq!(shown, ["-/a/b/c", "-/a/b-c", "-/a/b", "-/a", "+/a/d 12"]);
    }

    #[test]
    fn a_view_of_another_session_that_shows_less_than_the_known_content_is_of_a_restored_store() {
        let known = content(20, &[node("/a/b", 5, 18), node("/a/c", 19, 19), node("/a/d", 2, 4)]);
        let mut other = node("/a/b", 5, 18);
        other.data = Bytes::from_static(b"other");
        for first in [node("/a/b", 5, 8), other] {
            let nodes = vec![first.clone(), node("/a/d", 2, 4)];
            let view = || View::new(Revision::new(10), nodes.clone());
            let mut same = known.clone();
            same.replace(Content::difference(&known.nodes, &all(), view(), false));
            assert_eq!(same.nodes.get("/a/b"), known.nodes.get("/a/b"), "no session goes back");
            let mut restored = known.clone();
            let (_, events) =
                restored.replace(Content::difference(&known.nodes, &all(), view(), true));
            assert!(events.is_none(), "readers start again");
            assert!(restored.nodes.iter().eq(&nodes));
            assert_eq!(restored.newest, modified(&first).max(Revision::new(10)));
            let next = restored.newest.get() + 1;
            assert_applied(
                &restored.apply(&all(), change(&node("/a/e", next, next))),
                &format!("+/a/e {next}"),
            );
        }
    }

    #[test]
    fn more_events_than_any_reader_gets_are_not_created() {
        let nodes =
            |count: usize| (0..count).map(|it| node(&format!("/a/{it:05}"), 2, 4)).collect();
        let view = |count| View::new(Revision::new(9), nodes(count));
        let made = |old: &NodesByPath, count| {
            let difference = Content::difference(old, &all(), view(count), true);
            (difference.nodes.len(), difference.events.map(|events| events.len()))
        };
        let none = NodesByPath::default();
        assert_eq!(made(&none, MAX_EVENTS), (MAX_EVENTS, Some(MAX_EVENTS)));
        assert_eq!(made(&none, MAX_EVENTS + 1), (MAX_EVENTS + 1, None));
        let old = content(9, &nodes(MAX_EVENTS + 1));
        assert_eq!(made(&old.nodes, 1), (1, Some(MAX_EVENTS)));
        assert_eq!(made(&old.nodes, 0), (0, None));
    }

    #[test]
    fn a_snapshot_stays_as_it_was() {
        let mut content = content(10, &[node("/a/b", 5, 8)]);
        let snapshot = content.nodes.clone();
        assert_applied(&content.apply(&all(), deleted("/a/b", 11)), "-/a/b");
        assert_eq!((snapshot.len(), content.nodes.len()), (1, 0));
    }
}
