//! [`Report`]: what came of one history.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use synod_mem::cluster::{Fired, Line, Personality, Rates};

use crate::findings::Violation;

/// What came of one history.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The seed that gives the same history again.
    pub seed: u64,
    /// Whose habits the store had.
    pub personality: Personality,
    /// How often things went wrong, after the swarm had its say.
    pub rates: Rates,
    /// What was broken, if anything was.
    pub violation: Option<Violation>,
    /// Everything that went wrong, in order: what [`Sim::without`](crate::Sim::without) takes.
    pub fired: Vec<Fired>,
    /// What happened, in order, if that was wanted.
    pub lines: Vec<Line>,
    /// A hash of all that happened, whether or not it was wanted.
    pub hash: u64,
    /// How often each mark was reached; 0 for one that was passed and not reached.
    pub marks: BTreeMap<&'static str, u64>,
    /// How long it took in virtual time.
    pub lasted: Duration,
    /// How many turns tasks had.
    pub turns: u64,
    /// The processes, by their names.
    pub names: Vec<String>,
}

impl Report {
    /// What an actor of a [`Line`] is called.
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
