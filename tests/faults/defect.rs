//! [`Defect`]: a law that servers of some versions break, and the proof that a breach is of that
//! kind.

use synod_testkit::check::record::{Breach, Record};

use crate::scene::TTL;

/// A defect of a server. A scenario names those that it may show; no other scenario is excused.
#[derive(Debug)]
pub(crate) struct Defect {
    /// What the server does wrong.
    pub(crate) what: &'static str,
    /// The laws that it breaks.
    pub(crate) laws: &'static [&'static str],
    /// The first version without the defect.
    pub(crate) mended: [u32; 3],
    /// Whether the record proves that this breach is caused by the defect.
    pub(crate) proved: fn(&Record, &Breach) -> bool,
}

/// etcd, server issue 15247: the leases that expired by the clock of a paused leader are revoked
/// when it resumes, although the next leader renewed them in the meantime.
pub(crate) const REVOKES_OF_A_DEPOSED_LEADER: Defect = Defect {
    what: "before 3.4.31 a deposed etcd leader revokes leases that its successor renewed",
    laws: &["L-SES-2", "L-SES-15", "L-MX-1", "L-MX-3", "L-RW-1", "L-RW-8", "L-SEM-1", "L-EL-1"],
    mended: [3, 4, 31],
    proved: follows_a_resume,
};

impl Defect {
    /// Whether servers of this version have the defect.
    pub(crate) fn affects(&self, version: &[u32]) -> bool {
        version < self.mended.as_slice()
    }

    /// Whether the defect explains this breach on servers of this version.
    pub(crate) fn excuses(&self, version: &[u32], record: &Record, breach: &Breach) -> bool {
        self.affects(version) && self.laws.contains(&breach.law) && (self.proved)(record, breach)
    }
}

/// The deposed leader revokes right after it was resumed, and a client learns of it with its next
/// heartbeat: a breach at any other time has another cause.
fn follows_a_resume(record: &Record, breach: &Breach) -> bool {
    let window = u64::try_from(TTL.as_nanos()).unwrap_or(u64::MAX);
    breach.at.is_some_and(|at| {
        record.resumed.iter().any(|resumed| (*resumed..=resumed + window).contains(&at))
    })
}
