//! The properties of a node in requests and in answers.

use std::time::Duration;

use crate::acl::Acl;

/// The fields of a node's stat that this client uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZkStat {
    /// The change that created it.
    pub(crate) czxid: i64,
    /// The last change of its data.
    pub(crate) mzxid: i64,
    /// The last change of its children.
    pub(crate) pzxid: i64,
    pub(crate) version: i32,
    /// The number of changes of its children.
    pub(crate) cversion: i32,
    /// The version of its access list.
    pub(crate) aversion: i32,
    /// The session of an ephemeral node, or zero.
    pub(crate) ephemeral_owner: i64,
    pub(crate) num_children: i32,
}

impl ZkStat {
    /// The stat of a node that the first change created, for tests.
    #[cfg(test)]
    pub(crate) const NEW: Self = Self {
        czxid: 1,
        mzxid: 1,
        pzxid: 1,
        version: 0,
        cversion: 0,
        aversion: 0,
        ephemeral_owner: 0,
        num_children: 0,
    };

    /// Replaces the stat that some servers do not return for a create in a transaction of several
    /// (ZOOKEEPER-4026).
    pub(super) const UNKNOWN: Self = Self {
        czxid: -1,
        mzxid: -1,
        pzxid: -1,
        version: -1,
        cversion: -1,
        aversion: -1,
        ephemeral_owner: 0,
        num_children: 0,
    };

    pub(crate) fn is_unknown(&self) -> bool {
        self.czxid == Self::UNKNOWN.czxid
    }
}

/// The kinds of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CreateMode {
    Persistent,
    PersistentSequential,
    Ephemeral,
    EphemeralSequential,
    Container,
}

/// The properties of a created node besides its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateOptions {
    mode: CreateMode,
    pub(super) acl: Acl,
    ttl: Option<Duration>,
}

/// The events that a persistent watch reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddWatchMode {
    /// The events of a node, and the creations and deletions of its children.
    Persistent,
    /// The events of a node and of all nodes below it.
    PersistentRecursive,
}

/// The longest time to live that a server can store.
const MAX_TTL_MS: i64 = 0xff_ffff_ffff;

impl CreateMode {
    pub(crate) fn with_acl(self, acl: &Acl) -> CreateOptions {
        CreateOptions { mode: self, acl: acl.clone(), ttl: None }
    }
}

impl CreateOptions {
    /// A persistent node that is removed when it has neither changed nor had children for this
    /// long.
    pub(crate) fn with_ttl(self, ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    pub(crate) fn acl(&self) -> &Acl {
        &self.acl
    }

    pub(super) fn is_container(&self) -> bool {
        self.mode == CreateMode::Container
    }

    /// The time to live in milliseconds.
    pub(super) fn ttl(&self) -> Option<i64> {
        self.ttl.map(|ttl| i64::try_from(ttl.as_millis()).unwrap_or(MAX_TTL_MS).min(MAX_TTL_MS))
    }

    /// The number of the mode in requests.
    pub(super) fn flags(&self) -> i32 {
        match (self.mode, self.ttl) {
            (CreateMode::Persistent, None) => 0,
            (CreateMode::Ephemeral, _) => 1,
            (CreateMode::PersistentSequential, None) => 2,
            (CreateMode::EphemeralSequential, _) => 3,
            (CreateMode::Container, _) => 4,
            (CreateMode::Persistent, Some(_)) => 5,
            (CreateMode::PersistentSequential, Some(_)) => 6,
        }
    }
}
