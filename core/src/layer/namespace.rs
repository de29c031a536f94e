//! A store whose root is a node of another store: [`Namespaced`].
//!
//! Its user has a complete store, and cannot name a node outside of the namespace:
//!
//! - In the namespace `/app`, the path `/x` is `/app/x` in the underlying store. A path that is too
//!   long after this translation is [`ErrorKind::Invalid`], and nothing is sent.
//! - The root of the namespace is `/`, and is not a node, like every root: it cannot be written, a
//!   node query for it finds nothing, a subtree query for it returns only the nodes below it, and
//!   no event reports its data. That holds even if the underlying store has data at that node.
//! - Every returned path is translated back: in views, results, rejections, errors and events.
//!   Paths of the underlying store outside the namespace are omitted, with a warning. A child of
//!   the root with the name `zookeeper` is omitted too: no path can name it.
//! - Sessions, revisions and limits are those of the underlying store, and so is the effect of a
//!   close.
//! - A namespace of a namespace is a namespace.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use tokio::sync::watch;

use crate::error::{Error, ErrorKind, Result};
use crate::mutant::mistake;
use crate::path::Path;
use crate::store::{
    Backend, Change, Commit, End, Event, Kind, Node, Op, OpResult, Outcome, Query, Rejected,
    SessionInfo, SessionOptions, Status, Store, Txn, View, Watch,
};

/// A session on the part of a store below one path: see the [module](self).
#[derive(Debug)]
pub struct Namespaced {
    store: Arc<dyn Store>,
    root: Root,
    /// Computed when it is used: a client in a namespace makes one of these for each call.
    info: OnceLock<SessionInfo>,
}

/// A backend whose sessions are on the part of a store below one path.
#[derive(Debug)]
pub struct NamespacedBackend<B> {
    backend: B,
    root: Path,
}

impl Namespaced {
    /// Restricts `store` to the nodes below `root`. The root of the store itself has no effect.
    pub fn new(store: Arc<dyn Store>, root: Path) -> Self {
        Self { store, root: Root(root), info: OnceLock::new() }
    }
}

impl<B: Backend> NamespacedBackend<B> {
    /// Creates a backend whose sessions are those of `backend`, restricted to the nodes below
    /// `root`.
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
        self.info.get_or_init(|| self.store.session().clone().in_namespace(&self.root.0))
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
        // In the underlying store, the root would be a node like any other.
        txn.validate(&self.store.session().limits)?;
        let requested: Vec<Path> = txn.ops.iter().map(|op| op.path().clone()).collect();
        let txn = self.root.add_to_txn(txn)?;
        let outcome = self.store.commit(txn).await.map_err(|error| self.root.strip_error(error))?;
        Ok(self.root.strip_outcome(outcome, &requested))
    }

    async fn close(&self) -> Result<()> {
        self.store.close().await.map_err(|error| self.root.strip_error(error))
    }
}

/// The root of a namespace. The only place where it is added to paths and removed from them.
#[derive(Clone, Debug)]
struct Root(Path);

/// From the caller to the underlying store.
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

/// From the underlying store to the caller.
impl Root {
    fn strip(&self, path: &Path) -> Option<Path> {
        mistake!(NamespaceStripsByText: return crate::mutant::session::strip_text(path, &self.0));
        path.relative_to(&self.0)
    }

    fn strip_view(&self, view: View) -> View {
        let received = view.nodes.len();
        let mut outside = 0;
        let mut nodes = Vec::with_capacity(received);
        for mut node in view.nodes {
            match self.strip(&node.path) {
                Some(path) if path.is_root() => {}
                Some(path) => {
                    node.path = path;
                    nodes.push(node);
                }
                None => outside += 1,
            }
        }
        if outside > 0 {
            tracing::warn!(root = %self.0, received, outside, "a view has nodes outside the namespace; omitted");
        }
        View::new(view.revision, nodes)
    }

    fn strip_outcome(&self, outcome: Outcome, requested: &[Path]) -> Outcome {
        match outcome {
            Outcome::Committed(commit) => Outcome::Committed(self.strip_commit(commit, requested)),
            Outcome::Rejected(Rejected { index, path, reason, look }) => {
                let path = self.strip_result(&path, requested.get(index));
                let look = look.map(|view| self.strip_view(view));
                Outcome::Rejected(Rejected::new(index, path, reason).with_look(look))
            }
        }
    }

    fn strip_commit(&self, commit: Commit, requested: &[Path]) -> Commit {
        let strip = |(index, done): (usize, OpResult)| OpResult {
            path: self.strip_result(&done.path, requested.get(index)),
            ..done
        };
        let done = commit.results.into_iter().enumerate().map(strip).collect();
        Commit::new(commit.revision, done, commit.look.map(|view| self.strip_view(view)))
    }

    /// Returns the path of an operation's result. A result is identified by its index, so none can
    /// be omitted: a path outside of the namespace is replaced by the path of the request.
    fn strip_result(&self, path: &Path, requested: Option<&Path>) -> Path {
        self.strip(path).unwrap_or_else(|| {
            tracing::warn!(root = %self.0, %path, "a result is outside the namespace; path replaced");
            requested.cloned().unwrap_or_else(Path::root)
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
            tracing::warn!(root = %self.0, path = %change.path, "an event is outside the namespace; omitted");
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
