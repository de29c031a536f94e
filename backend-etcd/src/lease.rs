//! Leases: of sessions, and of nodes with a time to live. Their ids, which the client chooses,
//! distinguish the two.

use std::time::Duration;

use synod_core::random::Random;
use synod_core::store::SessionId;

/// The upper 16 bits of the lease ids of nodes with a time to live.
const TTL_MARK: i64 = 0x7474;
const MARK_SHIFT: u32 = 48;

/// A new id for a session's lease.
pub(crate) fn of_session(random: &Random) -> i64 {
    loop {
        let id = i64::from_ne_bytes(random.number().to_ne_bytes()) & i64::MAX;
        if id != 0 && !is_ttl(id) {
            return id;
        }
    }
}

/// A new id for the lease of a node with a time to live.
pub(crate) fn of_ttl(random: &Random) -> i64 {
    let low = i64::from_ne_bytes(random.number().to_ne_bytes()) & ((1 << MARK_SHIFT) - 1);
    TTL_MARK << MARK_SHIFT | low
}

pub(crate) fn is_ttl(lease: i64) -> bool {
    lease >> MARK_SHIFT == TTL_MARK
}

/// The session that a node with this lease belongs to.
pub(crate) fn owner(lease: i64) -> Option<SessionId> {
    (lease != 0 && !is_ttl(lease)).then(|| session(lease))
}

pub(crate) fn session(lease: i64) -> SessionId {
    SessionId::new(u64::from_ne_bytes(lease.to_ne_bytes()))
}

/// The lease of a session.
pub(crate) fn of_id(session: SessionId) -> i64 {
    i64::from_ne_bytes(session.get().to_ne_bytes())
}

/// A duration in the whole seconds that etcd counts in, rounded up.
pub(crate) fn seconds(duration: Duration) -> i64 {
    let whole = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    i64::try_from(whole).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_of_nodes_are_distinguished_from_those_of_sessions() {
        let random = Random::seeded(1);
        // One of 65,536 random ids would be of a node.
        for _ in 0..1 << 20 {
            let (session, node) = (of_session(&random), of_ttl(&random));
            assert!(session > 0 && !is_ttl(session) && owner(session).is_some());
            assert!(node > 0 && is_ttl(node) && owner(node).is_none());
        }
        assert_eq!(owner(0), None);
    }

    #[test]
    fn seconds_are_rounded_up() {
        for (millis, whole) in [(1, 1), (1_000, 1), (1_001, 2), (2_500, 3)] {
            assert_eq!(seconds(Duration::from_millis(millis)), whole);
        }
        assert_eq!(seconds(Duration::MAX), i64::MAX);
    }
}
