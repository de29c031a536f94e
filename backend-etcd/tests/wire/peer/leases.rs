//! [`Leases`]: leases, each with its keys and the time when it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;
use tonic::Code;

use super::refusal::Refusal;

/// All leases that are alive.
#[derive(Clone, Debug)]
pub(crate) struct Leases {
    all: BTreeMap<i64, Lease>,
    /// The shortest time to live that is granted.
    pub(crate) shortest: i64,
    /// Seconds that are added to a requested time to live.
    pub(crate) longer: i64,
    /// The thousandths of a granted second that a lease lives: a server's clock may be 1 % fast,
    /// and a client's 1 % slow.
    pub(crate) rate: u32,
}

#[derive(Clone, Debug)]
struct Lease {
    ttl: i64,
    ends: Instant,
    keys: BTreeSet<Vec<u8>>,
}

impl Default for Leases {
    fn default() -> Self {
        Self { all: BTreeMap::new(), shortest: 1, longer: 0, rate: 1_000 }
    }
}

pub(crate) fn not_found() -> Refusal {
    Refusal::etcd(Code::NotFound, "requested lease not found")
}

impl Leases {
    fn ends(&self, ttl: i64) -> Instant {
        let seconds = Duration::from_secs(u64::try_from(ttl).unwrap_or_default());
        Instant::now() + seconds / 1_000 * self.rate
    }

    /// Grants a lease. Returns its time to live.
    pub(crate) fn grant(&mut self, id: i64, ttl: i64) -> Result<i64, Refusal> {
        if self.all.contains_key(&id) {
            return Err(Refusal::etcd(Code::FailedPrecondition, "lease already exists"));
        }
        let ttl = ttl.max(self.shortest) + self.longer;
        let lease = Lease { ttl, ends: self.ends(ttl), keys: BTreeSet::new() };
        self.all.insert(id, lease);
        Ok(ttl)
    }

    /// Restarts the time of a lease. Returns that time; zero if there is no such lease.
    pub(crate) fn renew(&mut self, id: i64) -> i64 {
        let Some(ttl) = self.all.get(&id).map(|lease| lease.ttl) else { return 0 };
        let ends = self.ends(ttl);
        if let Some(lease) = self.all.get_mut(&id) {
            lease.ends = lease.ends.max(ends);
        }
        ttl
    }

    /// Ends a lease. Returns the keys that are deleted with it.
    pub(crate) fn end(&mut self, id: i64) -> Result<BTreeSet<Vec<u8>>, Refusal> {
        self.all.remove(&id).map(|lease| lease.keys).ok_or_else(not_found)
    }

    pub(crate) fn is_alive(&self, id: i64) -> bool {
        self.all.contains_key(&id)
    }

    /// Moves a key from one lease to another; zero is none.
    pub(crate) fn attach(&mut self, key: &[u8], from: i64, to: i64) {
        if let Some(lease) = self.all.get_mut(&from) {
            lease.keys.remove(key);
        }
        if let Some(lease) = self.all.get_mut(&to) {
            lease.keys.insert(key.to_vec());
        }
    }

    /// A new leader restarts the time of every lease.
    pub(crate) fn renew_all(&mut self) {
        let all: Vec<i64> = self.all.keys().copied().collect();
        for id in all {
            self.renew(id);
        }
    }

    /// The first lease to expire, and when.
    pub(crate) fn first(&self) -> Option<(i64, Instant)> {
        self.all.iter().map(|(id, lease)| (*id, lease.ends)).min_by_key(|(_, ends)| *ends)
    }

    pub(crate) fn ids(&self) -> Vec<i64> {
        self.all.keys().copied().collect()
    }
}
