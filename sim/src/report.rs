//! [`Report`]: the result of one history.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::cluster::{Fired, Line, Personality, Rates};

use crate::findings::Violation;

/// The result of one history.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The seed that gives the same history again.
    pub seed: u64,
    /// The personality of the store.
    pub personality: Personality,
    /// The rates of the faults, after the swarm was applied.
    pub rates: Rates,
    /// The law that was broken, if there is one.
    pub violation: Option<Violation>,
    /// All faults, in order; [`Sim::without`](crate::Sim::without) takes their spots.
    pub fired: Vec<Fired>,
    /// The events, in order, if they were kept.
    pub lines: Vec<Line>,
    /// A hash of all events, kept or not.
    pub hash: u64,
    /// Number of times that each mark was reached; 0 for a mark whose condition was checked but
    /// never true.
    pub marks: BTreeMap<&'static str, u64>,
    /// The virtual time.
    pub lasted: Duration,
    /// The number of task turns.
    pub turns: u64,
    /// The names of the processes.
    pub names: Vec<String>,
}

impl Report {
    /// The name of an actor of a [`Line`].
    pub fn name(&self, actor: u64) -> String {
        let process = usize::try_from(actor).ok().and_then(|place| place.checked_sub(1));
        match process.and_then(|place| self.names.get(place)) {
            Some(name) => name.clone(),
            None if actor == 0 => "world".to_owned(),
            None if actor >= 100 => format!("server {}", actor - 99),
            None => "auditor".to_owned(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.violation {
            Some(violation) => write!(f, "{violation}")?,
            None => f.write_str("nothing was broken")?,
        }
        write!(f, " [seed {:#x}, {}]", self.seed, self.personality)
    }
}
