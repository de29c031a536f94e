//! [`Workload`]: the description of each workload.

use crate::cluster::Site;

use crate::setup::Sim;

/// The actions of processes, and the laws that must hold for them.
pub trait Workload: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Describes the actions of the processes, in a sentence.
    fn about(&self) -> &'static str;

    /// The ids of the laws that it checks.
    fn laws(&self) -> &'static [&'static str];

    /// The marks that must be reached in one history out of a thousand, in a run of at least
    /// 20,000; otherwise the histories test less than they seem to.
    fn marks(&self) -> &'static [&'static str];

    /// The faults that happen elsewhere but never here, because their sites are not reached. All
    /// others must happen in 20,000 seeds.
    fn unreached(&self) -> Vec<Site> {
        Vec::new()
    }

    /// Returns `true` if the workload is useful with two processes and one round, so that every
    /// order of events can be tried.
    fn has_small_world(&self) -> bool {
        true
    }

    /// Adds the processes and the checks to a simulation.
    fn prepare(&self, sim: Sim) -> Sim;
}

/// The faults that need a watch.
pub(super) const WATCHED: &[Site] = &[
    Site::EventLate,
    Site::EventsJoined,
    Site::ResyncForNothing,
    Site::Compacted,
    Site::SmallBuffer,
    Site::EventAhead,
];
