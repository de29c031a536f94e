//! Answers a [`Query`] from a [`Tree`].

use synod_core::path::Path;
use synod_core::store::{Detail, Facts as _, Node, Query, Revision, Scope, Sequence, View, Window};

use crate::tree::Tree;

/// Answers `query` from `tree` at `revision`. In the follow-up read of a transaction, `own` is the
/// sequential node that it created.
pub fn answer(
    tree: &Tree,
    query: &Query,
    revision: Revision,
    own: Option<(&Path, Sequence)>,
) -> View {
    let nodes = match (query.scope, query.window) {
        (Scope::Node, _) => {
            let nodes = query.nodes_asked();
            nodes.filter_map(|path| Some(tree.body(path)?.to_node(path))).collect()
        }
        (Scope::Children, None) => tree
            .children(&query.path)
            .filter(|child| child.name().starts_with(&query.prefix))
            .map(|child| node(tree, child))
            .collect(),
        (Scope::Children, Some(window)) => {
            let own = own.filter(|(path, _)| path.parent_str() == Some(query.path.as_str()));
            in_window(tree, query, window, own.map(|(_, sequence)| sequence))
        }
        (Scope::Subtree, _) => subtree(tree, &query.path),
    };
    View::new(revision, nodes.into_iter().map(|node| narrowed(node, query.detail)).collect())
}

/// The nodes in a window, oldest first.
fn in_window(tree: &Tree, query: &Query, window: Window, own: Option<Sequence>) -> Vec<Node> {
    let line = tree
        .line(&query.path)
        .filter(|(_, path)| path.name().starts_with(&query.prefix))
        .map(|(sequence, path)| (sequence, node(tree, path)));
    match window {
        Window::Oldest { count } => line.take(count).map(|(_, node)| node).collect(),
        Window::Newest { count, before } => {
            let mut newest: Vec<Node> = line
                .rev()
                .filter(|(sequence, _)| before.is_none_or(|before| *sequence < before))
                .filter(|(sequence, _)| own.is_none_or(|own| *sequence <= own))
                .take(count)
                .map(|(_, node)| node)
                .collect();
            newest.reverse();
            newest
        }
    }
}

/// A node and all nodes below it, sorted by path.
fn subtree(tree: &Tree, path: &Path) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    let mut open = vec![path.clone()];
    while let Some(path) = open.pop() {
        open.extend(tree.children(&path).cloned());
        if !path.is_root() {
            nodes.push(node(tree, &path));
        }
    }
    // A container is listed if a node is below it; the query's own path only if it is a node.
    nodes.retain(|node| {
        node.stat.is_some() || (node.path != *path && tree.occupied(&node.path, &|_| false))
    });
    nodes.sort_by(|a, b| a.path.cmp(&b.path));
    nodes
}

/// A node with its data, or a container without.
fn node(tree: &Tree, path: &Path) -> Node {
    tree.body(path).map_or_else(|| Node::new(path.clone()), |body| body.to_node(path))
}

fn narrowed(mut node: Node, detail: Detail) -> Node {
    if detail == Detail::Names {
        node.data = bytes::Bytes::new();
    }
    node
}
