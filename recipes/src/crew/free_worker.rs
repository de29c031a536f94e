//! [`FreeWorker`]: a worker that can have a task, as a policy sees it.

use crate::crew::crew_worker::CrewWorker;

/// A worker that can have a task: it has room, and what the task needs.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FreeWorker<'a> {
    /// Its name, which no other worker ever has.
    pub name: &'a str,
    /// What it offers.
    pub offers: &'a CrewWorker,
    /// How many tasks it has.
    pub load: usize,
}

impl FreeWorker<'_> {
    pub(super) fn has_room(&self) -> bool {
        self.load < usize::try_from(self.offers.capacity.get()).unwrap_or(usize::MAX)
    }

    /// How much of its capacity is taken, in millionths.
    pub(super) fn taken(&self) -> u64 {
        let load = u64::try_from(self.load).unwrap_or(u64::MAX);
        load.saturating_mul(1_000_000) / u64::from(self.offers.capacity.get())
    }
}
