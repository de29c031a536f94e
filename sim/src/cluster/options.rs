//! [`ClusterOptions`]: the settings of a simulated store.

use std::time::Duration;

use synod_testkit::choice::Choice;

use crate::cluster::flaw::Flaw;
use crate::cluster::personality::Personality;
use crate::cluster::site::{Rates, Site};

/// The settings of a simulated store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClusterOptions {
    /// The kind of store that it imitates.
    pub personality: Personality,
    /// The rates of the faults.
    pub rates: Rates,
    /// The source of the decisions.
    pub choice: Choice<Site>,
    /// Keep every line of the trace, instead of only its hash.
    pub keep_trace: bool,
    /// The time to live to which the lengths of faults are relative.
    pub ttl: Duration,
    /// A planted defect of its servers, to test the tests.
    pub flaw: Option<Flaw>,
}

impl ClusterOptions {
    /// A store of this personality without faults.
    pub fn new(personality: Personality) -> Self {
        Self {
            personality,
            rates: Rates::none(),
            choice: Choice::never(),
            keep_trace: false,
            ttl: Duration::from_secs(1),
            flaw: None,
        }
    }
}
