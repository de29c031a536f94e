//! [`Progress`]: how far a read of many nodes is.

use tokio::sync::watch;

/// How far a read of many nodes is, while its caller waits for the view. Clones are the same.
///
/// A [query](crate::store::Query::progress) carries it, and may carry it again in a further read, which counts anew.
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

/// What a read has brought so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loaded {
    /// The nodes that were read.
    pub read: usize,
    /// The nodes that are known to be there, with those that were read: more of them may be found on the way. Once the read
    /// has ended, both are the number of nodes in the view.
    pub found: usize,
}

impl Progress {
    /// The counts of now, and a notification of each change.
    pub fn watch(&self) -> watch::Receiver<Loaded> {
        self.loaded.subscribe()
    }

    /// So many nodes were read, and so many more are known to be there.
    pub(super) fn report(&self, read: usize, left: usize) {
        self.loaded.send_replace(Loaded { read, found: read + left });
    }
}

/// What is asked for is the same, whoever waits for it.
impl PartialEq for Progress {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Progress {}
