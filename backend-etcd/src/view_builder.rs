//! [`ViewBuilder`]: the view of a query, built from the pages of its answers.

use etcd_client::proto::PbKeyValue;
use synod_core::path::Path;
use synod_core::store::{Node, Query, Scope, View, Window};

use crate::fetch::{as_child, as_node, revision};
use crate::key;

/// The nodes that a query has found so far. The answers to [`gets`](crate::fetch::gets) are added
/// in their order.
#[derive(Debug)]
pub(crate) struct ViewBuilder<'a> {
    query: &'a Query,
    nodes: Vec<Node>,
    /// The directory of the last node, whose containers were added.
    dir: Option<Path>,
}

impl<'a> ViewBuilder<'a> {
    pub(crate) fn new(query: &'a Query) -> Self {
        Self { query, nodes: Vec::new(), dir: None }
    }

    /// Reports the progress, given the number of keys that are left of a range.
    pub(crate) fn report(&self, left: i64) {
        self.query.report(self.nodes.len(), usize::try_from(left).unwrap_or(0));
    }

    /// Adds a page.
    pub(crate) fn add(&mut self, kvs: Vec<PbKeyValue>) {
        let query = self.query;
        match (query.scope, query.window) {
            (Scope::Node, _) => self.nodes.extend(kvs.into_iter().filter_map(asked)),
            (Scope::Children, Some(window)) => {
                self.nodes = through(window, kvs.into_iter().filter_map(child));
            }
            (Scope::Children, None) => {
                self.nodes.extend(kvs.into_iter().filter_map(|kv| child_or_container(query, kv)));
            }
            (Scope::Subtree, _) => kvs.into_iter().for_each(|kv| self.add_below(kv)),
        }
    }

    /// Adds a node of a subtree, and the containers above it, up to the root of the subtree.
    fn add_below(&mut self, kv: PbKeyValue) {
        let Some(path) = key::known(&kv.key) else { return };
        // Most nodes follow another one of their directory.
        if self.dir.as_ref().map(Path::as_str) != path.parent_str() {
            let above = path.ancestors().take_while(|above| above.is_below(&self.query.path));
            self.nodes.extend(above.map(Node::new));
            self.dir = path.parent();
        }
        self.nodes.push(as_node(path, kv));
    }

    /// The view as of a revision.
    pub(crate) fn view(mut self, at: i64) -> View {
        if self.query.window.is_none() {
            // A node comes before its duplicate as a container, which is dropped.
            self.nodes.sort_by(|a, b| {
                a.path.cmp(&b.path).then_with(|| b.stat.is_some().cmp(&a.stat.is_some()))
            });
            self.nodes.dedup_by(|a, b| a.path == b.path);
        }
        View::new(revision(at), self.nodes)
    }
}

/// The nodes in a window, oldest first.
fn through(window: Window, line: impl Iterator<Item = Node>) -> Vec<Node> {
    match window {
        Window::Oldest { count } => line.take(count).collect(),
        Window::Newest { count, before } => {
            let early = |node: &Node| before.is_none_or(|before| node.sequence < Some(before));
            let mut newest: Vec<Node> = line.filter(early).take(count).collect();
            newest.reverse();
            newest
        }
    }
}

/// A node that was queried by its path. The root has no key, and a key of another program at its
/// path is not a node.
fn asked(kv: PbKeyValue) -> Option<Node> {
    let path = key::known(&kv.key).filter(|path| !path.is_root())?;
    Some(as_node(path, kv))
}

fn child_or_container(query: &Query, kv: PbKeyValue) -> Option<Node> {
    let path = key::known(&kv.key)?;
    let child = key::child(&query.path, &path)?;
    if !child.name().starts_with(&query.prefix) {
        return None;
    }
    Some(if child == path { as_child(path, kv) } else { Node::new(child) })
}

fn child(kv: PbKeyValue) -> Option<Node> {
    Some(as_child(key::known(&kv.key)?, kv))
}

#[cfg(test)]
mod tests {
    use synod_core::store::{Progress, Sequence};

    use super::*;

    fn kv(path: &str, created: i64) -> PbKeyValue {
        let key = key::of(Path::new(path).expect("valid"));
        PbKeyValue { key, create_revision: created, mod_revision: created, ..PbKeyValue::default() }
    }

    fn dir() -> Path {
        Path::new("/d").expect("valid")
    }

    /// The view from all answers.
    fn viewed(query: &Query, pages: Vec<Vec<PbKeyValue>>) -> View {
        let mut builder = ViewBuilder::new(query);
        for page in pages {
            builder.add(page);
        }
        builder.view(9)
    }

    fn shown(view: &View) -> Vec<(&str, bool)> {
        view.nodes.iter().map(|node| (node.path.as_str(), node.stat.is_some())).collect()
    }

    #[test]
    fn containers_are_named_once_and_nodes_are_not_taken_for_them() {
        let answers =
            vec![vec![kv("/d/a", 1), kv("/d/n", 2)], vec![kv("/d/c/x", 3), kv("/d/c/y/z", 4)]];
        let view = viewed(&Query::children(dir()), answers);
        assert_eq!(shown(&view), [("/d/a", true), ("/d/c", false), ("/d/n", true)]);

        let answers = vec![vec![kv("/d", 1)], vec![kv("/d/a", 2), kv("/d/a/b/c", 3)]];
        let view = viewed(&Query::subtree(dir()), answers);
        let expected = [("/d", true), ("/d/a", true), ("/d/a/b", false), ("/d/a/b/c", true)];
        assert_eq!(shown(&view), expected);
    }

    #[test]
    fn a_window_shows_so_many_oldest_first() {
        let line = || vec![vec![kv("/d/b", 3), kv("/d/a", 2), kv("/d/c", 1)]];
        let newest = |query: Query| {
            let view = viewed(&query, line());
            view.nodes
                .iter()
                .filter_map(|node| node.sequence)
                .map(Sequence::get)
                .collect::<Vec<_>>()
        };
        assert_eq!(newest(Query::children(dir()).newest(2)), [2, 3]);
        assert_eq!(newest(Query::children(dir()).newest_before(9, Sequence::new(3))), [1, 2]);
        assert_eq!(newest(Query::children(dir()).newest_before(9, Sequence::new(0))), [0_u64; 0]);
        assert_eq!(newest(Query::children(dir()).oldest(0)), [0_u64; 0]);
    }

    #[test]
    fn how_far_it_is_is_reported() {
        let progress = Progress::default();
        let seen = progress.watch();
        let query = Query::children(dir()).progress(&progress);
        let mut builder = ViewBuilder::new(&query);
        builder.add(vec![kv("/d/a", 1), kv("/d/b", 2)]);
        builder.report(7);
        assert_eq!((seen.borrow().read, seen.borrow().found), (2, 9));
    }

    #[test]
    fn what_is_no_node_is_skipped() {
        let foreign = PbKeyValue { key: b"/d//\xff".to_vec(), ..PbKeyValue::default() };
        let other = PbKeyValue { key: b"/d/loose".to_vec(), ..PbKeyValue::default() };
        let answers = vec![vec![foreign.clone(), kv("/d/a", 1)], vec![other, foreign]];
        assert_eq!(shown(&viewed(&Query::children(dir()), answers.clone())), [("/d/a", true)]);
        assert_eq!(shown(&viewed(&Query::subtree(dir()), answers)), [("/d/a", true)]);
    }
}
