//! [`Namespaced`]: a store whose root is a node of another store.
//!
//! Its holder sees a whole store, and cannot name anything outside of the namespace:
//!
//! - In the namespace `/app`, what is called `/x` is `/app/x` in the store below. A path that is too long once it was moved
//!   is [`ErrorKind::Invalid`], and nothing is sent.
//! - The namespace's root is `/`, and is no more a node than any root: it cannot be written, a node query about
//!   it finds nothing, a subtree query about it returns only what is below it, and no event reports its data.
//!   That holds even if the store below has data at that node.
//! - Every path that comes back is as the caller would write it: in views, results, rejections, errors and
//!   events. What the store below reports of other places is left out, with a warning. A child of the root that
//!   is called `zookeeper` is left out too: no path can name it.
//! - Sessions, revisions and limits are those of the store below, and so is what closing does.
//! - A namespace of a namespace is a namespace.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::error::{Error, ErrorKind, Result};
use crate::mutant::mistake;
use crate::path::Path;
use crate::store::{
    Backend, Change, Commit, End, Event, Kind, Node, Op, OpResult, Outcome, Query, Rejected,
    SessionInfo, SessionOptions, Status, Store, Txn, View, Watch,
};

/// A session on the part of a store that is below one path: see the [module](self).
#[derive(Debug)]
pub struct Namespaced {
    store: Arc<dyn Store>,
    root: Root,
}

/// Opens sessions on the part of a store that is below one path.
#[derive(Debug)]
pub struct NamespacedBackend<B> {
    backend: B,
    root: Path,
}

impl Namespaced {
    /// The part of `store` that is below `root`. The root of the store itself changes nothing.
    pub fn new(store: Arc<dyn Store>, root: Path) -> Self {
        Self { store, root: Root(root) }
    }
}

impl<B: Backend> NamespacedBackend<B> {
    /// Sessions of `backend`, all of them below `root`.
    pub fn new(backend: B, root: Path) -> Self {
        Self { backend, root }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: Backend> Backend for NamespacedBackend<B> {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        let store = self.backend.open(options).await?;
        Ok(Box::new(Namespaced::new(Arc::from(store), self.root.clone())))
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for Namespaced {
    fn session(&self) -> &SessionInfo {
        self.store.session()
    }

    fn status(&self) -> watch::Receiver<Status> {
        self.store.status()
    }

    async fn read(&self, query: Query) -> Result<View> {
        let query = self.root.add_to_query(query, "read")?;
        let view = self.store.read(query).await.map_err(|error| self.root.strip_error(error))?;
        Ok(self.root.strip_view(view))
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        query.validate_observed()?;
        let query = self.root.add_to_query(query, "watch")?;
        let (view, watch) =
            self.store.watch(query).await.map_err(|error| self.root.strip_error(error))?;
        let root = self.root.clone();
        Ok((self.root.strip_view(view), watch.map(move |event| root.strip_event(event))))
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        // Below, the root would be a node like any other.
        txn.validate(&self.store.session().limits)?;
        let asked: Vec<Path> = txn.ops.iter().map(|op| op.path().clone()).collect();
        let txn = self.root.add_to_txn(txn)?;
        let outcome = self.store.commit(txn).await.map_err(|error| self.root.strip_error(error))?;
        Ok(self.root.strip_outcome(outcome, &asked))
    }

    async fn close(&self) -> Result<()> {
        self.store.close().await.map_err(|error| self.root.strip_error(error))
    }
}

/// Where a namespace is. The one place where its path is put on and taken off.
#[derive(Clone, Debug)]
struct Root(Path);

/// From the caller to the store below.
impl Root {
    fn add(&self, path: &Path, doing: &'static str) -> Result<Path> {
        path.within(&self.0).map_err(|invalid| {
            Error::new(ErrorKind::Invalid, doing).at(path).because(format!(
                "in the namespace {}: {}",
                self.0,
                invalid.why()
            ))
        })
    }

    fn add_to_query(&self, mut query: Query, doing: &'static str) -> Result<Query> {
        query.validate()?;
        query.path = self.add(&query.path, doing)?;
        for path in &mut query.more {
            *path = self.add(path, doing)?;
        }
        Ok(query)
    }

    fn add_to_txn(&self, mut txn: Txn) -> Result<Txn> {
        for op in &mut txn.ops {
            let (Op::Check { path, .. }
            | Op::Create { path, .. }
            | Op::Set { path, .. }
            | Op::Delete { path, .. }) = op;
            *path = self.add(path, "commit")?;
        }
        if let Some(look) = txn.look.take() {
            let look = self.add_to_query(look, "commit")?;
            mistake!(NamespaceAddsTwice: let look = self.add_to_query(look, "commit")?);
            txn.look = Some(look);
        }
        Ok(txn)
    }
}

/// From the store below to the caller.
impl Root {
    fn strip(&self, path: &Path) -> Option<Path> {
        mistake!(NamespaceStripsByText: return crate::mutant::session::strip_text(path, &self.0));
        path.relative_to(&self.0)
    }

    fn strip_view(&self, view: View) -> View {
        let received = view.nodes.len();
        let mut strangers = 0;
        let mut nodes = Vec::with_capacity(received);
        for mut node in view.nodes {
            match self.strip(&node.path) {
                Some(path) if path.is_root() => {}
                Some(path) => {
                    node.path = path;
                    nodes.push(node);
                }
                None => strangers += 1,
            }
        }
        if strangers > 0 {
            tracing::warn!(root = %self.0, received, strangers, "a view has nodes of other places; left out");
        }
        View::new(view.revision, nodes)
    }

    fn strip_outcome(&self, outcome: Outcome, asked: &[Path]) -> Outcome {
        match outcome {
            Outcome::Committed(commit) => Outcome::Committed(self.strip_commit(commit, asked)),
            Outcome::Rejected(Rejected { index, path, reason, look }) => {
                let path = self.strip_answered(&path, asked.get(index));
                let look = look.map(|view| self.strip_view(view));
                Outcome::Rejected(Rejected::new(index, path, reason).with_look(look))
            }
        }
    }

    fn strip_commit(&self, commit: Commit, asked: &[Path]) -> Commit {
        let strip = |(index, done): (usize, OpResult)| OpResult {
            path: self.strip_answered(&done.path, asked.get(index)),
            ..done
        };
        let done = commit.results.into_iter().enumerate().map(strip).collect();
        Commit::new(commit.revision, done, commit.look.map(|view| self.strip_view(view)))
    }

    /// The path of an operation that was answered. An answer is identified by its place, so none can be left
    /// out: a path outside of the namespace is replaced by the path that was asked for.
    fn strip_answered(&self, path: &Path, asked: Option<&Path>) -> Path {
        self.strip(path).unwrap_or_else(|| {
            tracing::warn!(root = %self.0, %path, "an answer is about another place; path replaced");
            asked.cloned().unwrap_or_else(Path::root)
        })
    }

    fn strip_error(&self, error: Error) -> Error {
        error.map_path(|path| self.strip(path))
    }

    fn strip_event(&self, event: Event) -> Option<Event> {
        mistake!(NamespaceForgetsEvents: return Some(event));
        match event {
            Event::Changed(change) => self.strip_change(change).map(Event::Changed),
            Event::Resync => Some(Event::Resync),
            Event::Ended(End::Failed(error)) => {
                let error = self.strip_error(Arc::unwrap_or_clone(error));
                Some(Event::Ended(End::Failed(Arc::new(error))))
            }
            Event::Ended(end) => Some(Event::Ended(end)),
        }
    }

    fn strip_change(&self, change: Change) -> Option<Change> {
        let Some(path) = self.strip(&change.path) else {
            tracing::warn!(root = %self.0, path = %change.path, "an event is about another place; left out");
            return None;
        };
        if path.is_root() && change.kind != Kind::Children {
            return None;
        }
        let node = change.node.and_then(|node| {
            let path = self.strip(&node.path)?;
            Some(Node { path, ..node })
        });
        Some(Change { path, node, ..change })
    }
}

#[cfg(test)]
mod tests;
