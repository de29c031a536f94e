//! [`History`]: the history of the store that a session belongs to.
//!
//! A store that is restored from a backup has a different history: revisions and fencing tokens
//! start again at their values in the backup, and everything that was written after the backup is
//! lost. But leases are in the backup, so their keep-alives are still answered. Nothing that a
//! session has read is valid in another history, so the session ends.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use etcd_client::proto::PbResponseHeader;
use synod_core::error::{Error, ErrorKind, Result};

/// The cluster that a session belongs to, and the revisions that the session has seen.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The id of the cluster; zero before an answer contained one.
    cluster: AtomicU64,
    /// The highest revision that the session has seen.
    seen: AtomicI64,
    /// The highest revision of a heartbeat. The session has not used the content of the store as of
    /// this revision, so its local reads may be older.
    beaten: AtomicI64,
}

impl History {
    /// Records that the session has seen this revision.
    pub(crate) fn saw(&self, revision: i64) {
        self.seen.fetch_max(revision, Ordering::AcqRel);
    }

    pub(crate) fn seen(&self) -> i64 {
        self.seen.load(Ordering::Acquire)
    }

    /// Records the revision of the linearizable read of a heartbeat.
    pub(crate) fn heartbeat(&self, revision: i64) {
        self.beaten.fetch_max(revision, Ordering::AcqRel);
    }

    /// The highest revision that the store is known to have reached.
    pub(crate) fn reached(&self) -> i64 {
        self.seen().max(self.beaten.load(Ordering::Acquire))
    }

    /// Records an answer of any member, which may lag. Fails if it is from another cluster.
    pub(crate) fn same_cluster(&self, cluster: u64) -> Result<()> {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        if cluster == 0 {
            return Ok(());
        }
        match self.cluster.compare_exchange(0, cluster, success, failure) {
            Err(known) if known != cluster => Err(ended("the id of the cluster has changed")),
            _ => Ok(()),
        }
    }

    /// Records the header of a linearizable answer, and returns its revision. `seen` is
    /// [`History::seen`] before the request was sent. Fails if the answer is of another history.
    pub(crate) fn answered(&self, header: Option<&PbResponseHeader>, seen: i64) -> Result<i64> {
        let Some(header) = header else { return Ok(0) };
        self.same_cluster(header.cluster_id)?;
        if is_before(header.revision, seen) {
            return Err(ended("its revision is lower than before"));
        }
        self.saw(header.revision);
        Ok(header.revision)
    }
}

/// True if the revision of an answer is lower than one that was seen. Zero means none.
pub(crate) fn is_before(revision: i64, seen: i64) -> bool {
    revision != 0 && revision < seen
}

/// The error of a session whose store now has another history.
pub(crate) fn ended(sign: &'static str) -> Error {
    let why = format!("the store was restored from a backup or replaced: {sign}");
    Error::new(ErrorKind::SessionLost, "session").because(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(cluster_id: u64, revision: i64) -> PbResponseHeader {
        PbResponseHeader { cluster_id, revision, ..PbResponseHeader::default() }
    }

    #[test]
    fn another_cluster_is_another_history() {
        let history = History::default();
        assert!(history.same_cluster(0).is_ok());
        assert!(history.same_cluster(7).is_ok());
        assert!(history.same_cluster(0).is_ok(), "not every answer has the id");
        assert!(history.same_cluster(7).is_ok());
        let error = history.answered(Some(&header(8, 100)), 0).expect_err("another cluster");
        assert_eq!(error.kind(), ErrorKind::SessionLost);
    }

    #[test]
    fn a_revision_may_stay_and_not_fall() {
        let history = History::default();
        assert_eq!(history.answered(Some(&header(7, 20)), 0).expect("the first"), 20);
        assert_eq!(history.seen(), 20);
        assert_eq!(history.answered(Some(&header(7, 20)), 20).expect("the same"), 20);
        // The request was sent before the session saw the higher revision.
        assert_eq!(history.answered(Some(&header(7, 19)), 19).expect("concurrent"), 19);
        assert_eq!(history.seen(), 20);
        assert!(history.answered(Some(&header(7, 19)), 20).is_err());
        assert_eq!(history.answered(None, 20).expect("nothing is said"), 0);
        assert_eq!(history.answered(Some(&header(7, 0)), 20).expect("nothing is said"), 0);
    }
}
