//! [`Member`]: a member of a group. [`GroupChange`]: a change of a group.

use bytes::Bytes;
use synod_core::error::Error;
use synod_core::name::Name;
use synod_core::path::Path;
use synod_core::store::{Node, Revision, SessionId};

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its name in the group.
    pub name: String,
    /// Its data.
    pub data: Bytes,
    /// The revision at which it joined in its current session. A member of the same name with
    /// another revision is another incarnation.
    pub since: Revision,
    /// Its session.
    pub session: SessionId,
}

/// A change of a group.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum GroupChange {
    /// This member joined.
    Joined(Member),
    /// This member has other data.
    Changed(Member),
    /// This member left, or its session was lost. Has its last data.
    Left(Member),
    /// The store rejects reads. They are retried.
    Failed(Error),
}

impl Member {
    /// The member that a node represents, if any.
    pub(super) fn of(node: Node) -> Option<Self> {
        let stat = node.stat?;
        let name = name_at(&node.path);
        Some(Self { name, data: node.data, since: stat.created, session: stat.owner? })
    }
}

/// The name of the member whose node is at a path. Names of other programs that this library would
/// not write are returned unchanged.
pub(super) fn name_at(path: &Path) -> String {
    let decoded = Name::new(path.name()).ok().and_then(|name| name.decode());
    decoded.unwrap_or_else(|| path.name().to_owned())
}
