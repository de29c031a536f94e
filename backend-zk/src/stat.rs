//! What the stat of a node says: its versions, its owner, and whether it is a container.

use synod_core::store::{Revision, SessionId, Stat, Version};

use crate::client::ZkStat;

/// The data of a container, chosen so that no application writes it by accident.
pub(crate) const MARK: &[u8] = b"\x00synod container 5f0e\x9c\x00";

/// Whether a node that was read is a container. A container is never written, and has no owner.
pub(crate) fn is_container(data: &[u8], stat: &ZkStat) -> bool {
    data == MARK && stat.version == 0 && stat.ephemeral_owner == 0
}

/// How many children a node was ever given. The server appends this number to the names of
/// sequential children; its stat contains a number computed from it and from the number of present
/// children.
pub(crate) fn births(stat: &ZkStat) -> i32 {
    stat.cversion.wrapping_add(stat.num_children) / 2
}

/// The stat of a node.
pub(crate) fn translate(stat: &ZkStat) -> Stat {
    let revision = |zxid: i64| Revision::new(u64::try_from(zxid).unwrap_or(0));
    let version = Version::new(stat.version.cast_unsigned().into());
    let owner = stat.ephemeral_owner.cast_unsigned();
    let owner = (owner != 0).then_some(SessionId::new(owner));
    Stat::new(revision(stat.czxid), revision(stat.mzxid), version, owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn births_follow_from_the_changes_and_the_children_that_are_left() {
        let stat = |cversion, num_children| ZkStat { cversion, num_children, ..ZkStat::NEW };
        // Five were created, and two of them deleted.
        assert_eq!(births(&stat(7, 3)), 5);
        assert_eq!(births(&stat(0, 0)), 0);
    }
}
