//! [`Round`]: the members that enter together, as the node `ready` has them.

use std::collections::BTreeSet;

use bytes::Bytes;
use synod_core::store::{Expect, Node, Version};

use crate::double_barrier::member::is_our_name;
use crate::mutant::mistake;

/// The name of the node that says that a round has begun.
pub(super) const READY: &str = "ready";

/// The first line of its data, if this library wrote it.
const OURS: &str = "synod";

/// A round that has begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// The names of its members. `None` if another library wrote it: then it is open for all.
    members: Option<BTreeSet<String>>,
    version: Option<Version>,
}

impl Round {
    pub(super) fn of(node: &Node) -> Self {
        let text = std::str::from_utf8(&node.data).unwrap_or_default();
        let mut lines = text.split('\n');
        let members = (lines.next() == Some(OURS)).then(|| lines.map(str::to_owned).collect());
        Self { members, version: node.stat.map(|stat| stat.version) }
    }

    pub(super) fn new(members: BTreeSet<String>, version: Option<Version>) -> Self {
        Self { members: Some(members), version }
    }

    /// The data of the node.
    pub(super) fn data(members: &BTreeSet<String>) -> Bytes {
        let names = members.iter().map(String::as_str);
        Bytes::from([OURS].into_iter().chain(names).collect::<Vec<_>>().join("\n"))
    }

    /// Whether all its members are of this library.
    pub(super) fn is_ours(&self) -> bool {
        let members = self.members.as_ref();
        members.is_some_and(|members| members.iter().all(|name| is_our_name(name)))
    }

    /// That no other round has begun since.
    pub(super) fn expected(&self) -> Expect {
        self.version.map_or(Expect::Any, Expect::Version)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        mistake!(ReadyIsForAll: return true);
        self.members.as_ref().is_none_or(|members| members.contains(name))
    }

    /// The members of the round but one. Of a round that another library began, all that are there.
    pub(super) fn others<'a>(
        &self,
        me: &str,
        present: impl Iterator<Item = &'a String>,
    ) -> BTreeSet<String> {
        let mut others = self.members.clone().unwrap_or_else(|| present.cloned().collect());
        others.remove(me);
        others
    }

    /// The members, if this library wrote them.
    pub(super) fn members(&self) -> Option<&BTreeSet<String>> {
        self.members.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use synod_core::path;

    use super::*;

    #[test]
    fn what_is_written_is_read_and_other_bytes_are_of_another_library() {
        let read = |data: Bytes| {
            let mut node = Node::new(path!("/b/ready"));
            node.data = data;
            Round::of(&node)
        };
        let members = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        assert_eq!(read(Round::data(&members)).members, Some(members));
        for other in [&b""[..], b"127.0.0.1", b"synodical\na", b"\xff"] {
            assert!(read(Bytes::from_static(other)).members.is_none(), "{other:?}");
        }
    }
}
