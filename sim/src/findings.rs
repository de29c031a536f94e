//! [`Violation`]: a law that was broken; [`Findings`]: what processes report while they run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::cluster::{Death, Entry, Personality};
use synod_core::path::Path;
use synod_core::store::Revision;
use synod_testkit::law;

/// A law that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The law, by its id or as the sentence of the check.
    pub law: String,
    /// The event that broke the law.
    pub what: String,
    /// The time since the beginning.
    pub at: Duration,
    /// The process that reported it; 0 if none.
    pub actor: u64,
}

/// The deletion of a node: its path, and its revision if the store reports it. The path may be used
/// again later.
pub(crate) type Gone = (Path, Option<Revision>);

/// The true history, which only the store knows.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Truth {
    /// Every commit, in order.
    pub log: Vec<Entry>,
    /// Every session that has ended.
    pub deaths: Vec<Death>,
    /// For each deleted node, the number of readers that watched only this node, in sessions that
    /// were alive, were notified.
    pub woken: BTreeMap<Gone, u32>,
    /// The personality of the store.
    pub personality: Personality,
    /// The duration of the run.
    pub lasted: Duration,
    /// `true` if everything was repaired at the end, and nothing stayed frozen.
    pub mended: bool,
}

/// The findings so far. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings(Arc<Mutex<Found>>);

#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) violation: Option<Violation>,
    pub(crate) marks: BTreeMap<&'static str, u64>,
}

impl Findings {
    /// Records a violation. Only the first one counts.
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
    /// The sentence of the law, if it is one of synod's.
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
