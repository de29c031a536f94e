//! [`Personality`]: the kind of store that a simulated one imitates.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use synod_core::store::Feature;
use synod_mem::state_machine::{Habits, Naming};

use crate::cluster::site::{Fault, Rates, Site};

/// The tick of the personality `zk`: sessions expire up to one tick after their time to live.
const TICK: Duration = Duration::from_millis(50);

/// The kind of store that a simulated one imitates. All keep the same contract, but differ where it
/// leaves a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Personality {
    /// A store with no stronger guarantees than the contract.
    Ideal,
    /// Like ZooKeeper: a counter in each directory, empty containers that stay for a while,
    /// sessions that expire at a tick and move with their connection, watches that cannot report
    /// the events that they missed.
    Zk,
    /// Like etcd: sequences are revisions, watches resume unless the revision is compacted, late
    /// writes are not stopped by a new connection.
    Etcd,
    /// Like etcd 3.4.23, with defects that later versions fixed.
    Etcd34,
}

impl Personality {
    /// All personalities.
    pub const ALL: [Self; 4] = [Self::Ideal, Self::Zk, Self::Etcd, Self::Etcd34];

    pub(super) fn habits(self) -> Habits {
        match self {
            Self::Ideal => Habits { naming: Naming::Gaps, linger: true, tick: Duration::ZERO },
            Self::Zk => Habits { naming: Naming::Counter, linger: true, tick: TICK },
            Self::Etcd | Self::Etcd34 => {
                Habits { naming: Naming::Revision, linger: false, tick: Duration::ZERO }
            }
        }
    }

    /// The features that the store does not have.
    pub(super) fn missing_features(self) -> Vec<Feature> {
        match self {
            Self::Etcd | Self::Etcd34 => vec![Feature::NumberedNames],
            Self::Ideal | Self::Zk => Vec::new(),
        }
    }

    pub(super) fn rates(self, rates: Rates) -> Rates {
        let defects = Fault::all().filter(|fault| fault.is_defect());
        match self {
            Self::Etcd34 => defects.fold(rates, Rates::with),
            _ => rates,
        }
    }

    /// Returns `true` if a fault never happens to a store of this personality, because it gives
    /// stronger guarantees than the contract or works differently.
    pub fn never(self, site: Site) -> bool {
        match site {
            Site::RequestAhead | Site::AnswerAhead | Site::EventAhead => self.keeps_order(),
            Site::ReportLate => !self.reports_sessions(),
            _ => false,
        }
    }

    /// Returns `true` if a watch resumes at its last position after a reconnect.
    pub(super) fn resumes_watches(self) -> bool {
        !matches!(self, Self::Zk)
    }

    /// Returns `true` if a watch for one event ends after it.
    pub(super) fn tells_once(self) -> bool {
        matches!(self, Self::Zk | Self::Ideal)
    }

    /// Returns `true` if an event for an observer of hints contains only the path and the kind of
    /// the change.
    pub(super) fn gives_bare_hints(self) -> bool {
        matches!(self, Self::Zk | Self::Ideal)
    }

    /// Returns `true` if a request of an old connection is refused once there is a new one.
    pub(super) fn moves_sessions(self) -> bool {
        matches!(self, Self::Zk | Self::Ideal)
    }

    /// Returns `true` if servers close the connections of their clients when they have no leader.
    pub(super) fn hangs_up_without_leader(self) -> bool {
        matches!(self, Self::Zk)
    }

    /// Returns `true` if a heartbeat is answered in order with a server's reports to its leader,
    /// and extends the session only with the next report. Otherwise the leader extends the session
    /// before it answers.
    pub(super) fn reports_sessions(self) -> bool {
        matches!(self, Self::Zk)
    }

    /// Returns `true` if a server that has been without its leader for too long closes the
    /// connections of its clients.
    pub(super) fn gives_up_alone(self) -> bool {
        matches!(self, Self::Zk | Self::Ideal)
    }

    /// Returns `true` if the requests of a session, and its answers and events, arrive in the order
    /// in which they were sent.
    pub(super) fn keeps_order(self) -> bool {
        matches!(self, Self::Zk)
    }
}

impl fmt::Display for Personality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ideal => "ideal",
            Self::Zk => "zk",
            Self::Etcd => "etcd",
            Self::Etcd34 => "etcd-3.4",
        })
    }
}

/// A name that no personality has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownPersonality(String);

impl fmt::Display for UnknownPersonality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is none of ideal, zk, etcd and etcd-3.4", self.0)
    }
}

impl std::error::Error for UnknownPersonality {}

impl FromStr for Personality {
    type Err = UnknownPersonality;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|one| one.to_string() == text);
        found.ok_or_else(|| UnknownPersonality(text.to_owned()))
    }
}
