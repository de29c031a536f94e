//! [`Violation`]: a law that was broken; [`Findings`]: what processes have to say while they run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use synod_conformance::law;
use synod_mem::cluster::{Death, Entry, Personality};

use crate::watched::Gone;

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The law, by its id or in the words of whoever asked for it.
    pub law: String,
    /// What happened instead.
    pub what: String,
    /// When, since the beginning.
    pub at: Duration,
    /// The process in which it showed; 0 if in none.
    pub actor: u64,
}

/// What really happened, as only the store knows.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Truth {
    /// Every commit, in order.
    pub log: Vec<Entry>,
    /// Every session that is over.
    pub deaths: Vec<Death>,
    /// How many who watched one node, in sessions that lived, were told of the end of each.
    pub woken: BTreeMap<Gone, u32>,
    /// Whose habits the store had.
    pub personality: Personality,
    /// How long it took.
    pub lasted: Duration,
    /// Whether everything was mended in the end, and nothing was left frozen.
    pub mended: bool,
}

/// What was found so far. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings(Arc<Mutex<Found>>);

#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) violation: Option<Violation>,
    pub(crate) marks: BTreeMap<&'static str, u64>,
}

impl Findings {
    /// Something is wrong. The first that is counts.
    pub(crate) fn wrong(&self, law: &str, what: String, at: Duration, actor: u64) {
        let violation = Violation { law: law.to_owned(), what, at, actor };
        self.lock().violation.get_or_insert(violation);
    }

    pub(crate) fn is_wrong(&self) -> bool {
        self.lock().violation.is_some()
    }

    pub(crate) fn mark(&self, mark: &'static str, reached: bool) {
        *self.lock().marks.entry(mark).or_default() += u64::from(reached);
    }

    pub(crate) fn take(&self) -> Found {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Found> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Violation {
    /// What the law says, if it is one of synod's.
    pub fn sentence(&self) -> &str {
        law::by_id(&self.law).map_or(&self.law, |law| law.sentence)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.law)?;
        if self.sentence() != self.law {
            write!(f, " ({})", self.sentence())?;
        }
        write!(f, ": {}, at {:?}", self.what, self.at)
    }
}
