//! Wrong algorithms of sessions.

use crate::chance::Chance;
use crate::error::Result;
use crate::path::Path;
use crate::store::{Op, Txn};

/// A sequential create under a name that the store has not received yet, if it is a repetition.
pub(crate) fn renamed(mut txn: Txn, is_repetition: bool, chance: &Chance) -> Result<Txn> {
    for op in txn.ops.iter_mut().filter(|op| is_repetition && op.is_sequential()) {
        if let Op::Create { path, .. } = op {
            *path = Path::new(&format!("{path}{}-", chance.id()))?;
        }
    }
    Ok(txn)
}

/// The part of a path behind `root`, compared as text.
pub(crate) fn strip_text(path: &Path, root: &Path) -> Option<Path> {
    let rest = path.as_str().strip_prefix(root.as_str())?;
    Path::new(&format!("/{}", rest.trim_start_matches('/'))).ok()
}
