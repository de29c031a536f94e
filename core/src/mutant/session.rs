//! Wrong algorithms of sessions.

use bytes::Bytes;

use crate::error::Result;
use crate::path::Path;
use crate::random::Random;
use crate::session::Session;
use crate::session::deadline::Deadline;
use crate::session::session_state::StatusKind;
use crate::store::{Lifetime, Op, OpResult, Txn};

impl Session {
    /// Creates a node, and accepts an existing node as the created one.
    pub(crate) async fn create_or_keep(
        &self,
        path: &Path,
        data: &Bytes,
        by: Deadline,
    ) -> Result<OpResult> {
        let create = Txn::new().create(path, data.clone(), Lifetime::Persistent);
        let _either_way = self.commit_by(create, by).await?;
        Ok(OpResult::new(path.clone()))
    }

    /// Waits until the session is lost, or connected again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    #[doc(hidden)]
    pub async fn lost_or_reconnected(&self) {
        if self.state().kind_changed(StatusKind::Live).await != StatusKind::Lost {
            self.state().kind_changed(StatusKind::Suspended).await;
        }
    }
}

/// Returns the transaction; a repetition gets a name that the store has not received yet.
pub(crate) fn renamed(mut txn: Txn, is_repetition: bool, random: &Random) -> Result<Txn> {
    for op in txn.ops.iter_mut().filter(|op| is_repetition && op.is_sequential()) {
        if let Op::Create { path, .. } = op {
            *path = Path::new(&format!("{path}{}-", random.id()))?;
        }
    }
    Ok(txn)
}

/// Returns the part of a path after `root`; compares them as text.
pub(crate) fn strip_text(path: &Path, root: &Path) -> Option<Path> {
    let rest = path.as_str().strip_prefix(root.as_str())?;
    Path::new(&format!("/{}", rest.trim_start_matches('/'))).ok()
}
