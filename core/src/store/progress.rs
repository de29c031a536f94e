//! The progress of a read of many nodes, [`Progress`].

use tokio::sync::watch;

/// The progress of a read of many nodes, while its caller waits for the view. Clones share the
/// counts.
///
/// Set it in a [query](crate::store::Query::progress). It can be used again in a further read,
/// which starts at zero.
///
/// # Examples
///
/// ```
/// use synod_core::path;
/// use synod_core::store::{Progress, Query};
///
/// let progress = Progress::default();
/// let query = Query::subtree(path!("/services")).progress(&progress);
/// let seen = progress.watch();
/// assert_eq!(seen.borrow().read, 0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Progress {
    loaded: watch::Sender<Loaded>,
}

/// The counts of a read so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loaded {
    /// The number of nodes read.
    pub read: usize,
    /// The number of nodes known to exist, including the nodes read: more may be found during the
    /// read. When the read has ended, both are the number of nodes in the view.
    pub found: usize,
}

impl Progress {
    /// Returns a receiver of the current counts and of each change.
    pub fn watch(&self) -> watch::Receiver<Loaded> {
        self.loaded.subscribe()
    }

    /// Reports the number of nodes read, and the number of nodes known to be left.
    pub(super) fn report(&self, read: usize, left: usize) {
        self.loaded.send_replace(Loaded { read, found: read + left });
    }
}

/// Two queries are equal whoever receives their progress.
impl PartialEq for Progress {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Progress {}
