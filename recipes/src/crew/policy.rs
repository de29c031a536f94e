//! [`CrewPolicy`]: the choice of the worker that receives a task. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::crew::worker::CrewWorker;
use crate::mutant::mistake;

/// The choice of the worker that receives a task, while this client is the master. Only able
/// workers are considered: they have room, are not drained, and have the properties that the task
/// [needs](crate::crew::NewTask::needs).
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum CrewPolicy {
    /// The worker with the largest free part of its capacity.
    #[default]
    LeastLoaded,
    /// One worker after the other, in the order of their names. A worker that is added or removed
    /// does not disturb the order.
    RoundRobin,
    /// A worker with the value of this property that the task
    /// [prefers](crate::crew::NewTask::prefers). If no such worker has room, or the task prefers
    /// none, any worker. Among several the least loaded one.
    Property(String),
    /// The worker that this function chooses.
    Chosen(ChooseWorker),
}

/// Chooses a worker for a task, by its index in the slice of able workers. If the function returns
/// `None`, or an index out of range, the task waits until the crew changes.
type ChooseWorker = Arc<dyn Fn(&WaitingTask<'_>, &[FreeWorker<'_>]) -> Option<usize> + Send + Sync>;

impl CrewPolicy {
    /// Creates a [`CrewPolicy::Property`] from the name of the property.
    pub fn property(name: impl Into<String>) -> Self {
        Self::Property(name.into())
    }

    /// Creates a [`CrewPolicy::Chosen`] from a function of the task and the able workers, in the
    /// order of their names. It is called for each waiting task whenever the crew has changed and a
    /// worker has room, so it should be fast. If it returns `None`, or an index out of range, the
    /// task waits, and blocks no other task. If it panics, it is called again for the task after a
    /// second; the other tasks are not affected.
    pub fn chosen(
        choose: impl Fn(&WaitingTask<'_>, &[FreeWorker<'_>]) -> Option<usize> + Send + Sync + 'static,
    ) -> Self {
        Self::Chosen(Arc::new(choose))
    }
}

/// Omits the function.
impl fmt::Debug for CrewPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeastLoaded => f.write_str("LeastLoaded"),
            Self::RoundRobin => f.write_str("RoundRobin"),
            Self::Property(name) => f.debug_tuple("Property").field(name).finish(),
            Self::Chosen(_) => f.write_str("Chosen(..)"),
        }
    }
}

/// The function of a policy panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PolicyPanicked;

/// A policy, and the worker that was chosen last.
#[derive(Debug, Default)]
pub(super) struct CrewTurns {
    policy: CrewPolicy,
    last: Option<String>,
}

impl CrewTurns {
    pub(super) fn new(policy: CrewPolicy) -> Self {
        Self { policy, last: None }
    }

    /// Chooses among the able workers, which are in the order of their names.
    pub(super) fn choose<'a>(
        &self,
        task: &WaitingTask<'_>,
        able: &[FreeWorker<'a>],
    ) -> Result<Option<FreeWorker<'a>>, PolicyPanicked> {
        let chosen = match &self.policy {
            CrewPolicy::LeastLoaded => least_loaded(able.iter()),
            CrewPolicy::RoundRobin => {
                let last = self.last.as_deref();
                let next = able.iter().find(|it| last.is_none_or(|last| it.name > last));
                next.or_else(|| able.first())
            }
            CrewPolicy::Property(name) => {
                let wanted = task.prefers.get(name);
                let has_it = |it: &&FreeWorker<'_>| {
                    wanted.is_some() && it.offers.properties().get(name) == wanted
                };
                least_loaded(able.iter().filter(has_it)).or_else(|| least_loaded(able.iter()))
            }
            CrewPolicy::Chosen(choose) => {
                let place = catch_unwind(AssertUnwindSafe(|| choose(task, able)));
                place.map_err(|_panic| PolicyPanicked)?.and_then(|place| able.get(place))
            }
        };
        mistake!(CrewPolicyIgnored: let chosen = able.first());
        Ok(chosen.copied())
    }

    /// Records the worker that received a task.
    pub(super) fn record_choice(&mut self, worker: &str) {
        if matches!(self.policy, CrewPolicy::RoundRobin) {
            self.last = Some(worker.to_owned());
        }
    }
}

/// Returns the first worker with the smallest load in proportion to its capacity.
fn least_loaded<'w, 'a>(
    mut workers: impl Iterator<Item = &'w FreeWorker<'a>>,
) -> Option<&'w FreeWorker<'a>> {
    let first = workers.next()?;
    Some(workers.fold(first, |least, it| {
        if it.load_in_millionths() < least.load_in_millionths() { it } else { least }
    }))
}

/// A worker that is able to do a task: it has room, and the properties that the task needs.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FreeWorker<'a> {
    /// The name of the worker. No other worker ever has the same name.
    pub name: &'a str,
    /// The capacity and the properties of the worker.
    pub offers: &'a CrewWorker,
    /// The number of tasks that the worker has.
    pub load: usize,
}

impl FreeWorker<'_> {
    pub(super) fn has_room(&self) -> bool {
        self.load < usize::try_from(self.offers.capacity.get()).unwrap_or(usize::MAX)
    }

    /// The load of the worker in proportion to its capacity, in millionths.
    pub(super) fn load_in_millionths(&self) -> u64 {
        let load = u64::try_from(self.load).unwrap_or(u64::MAX);
        load.saturating_mul(1_000_000) / u64::from(self.offers.capacity.get())
    }
}

/// A task that waits for a worker, with the terms of its submitter.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WaitingTask<'a> {
    /// The id of the task.
    pub id: &'a str,
    /// The priority of the task.
    pub priority: i32,
    /// The properties that the worker must have.
    pub needs: &'a BTreeMap<String, String>,
    /// The properties that the worker should have.
    pub prefers: &'a BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::crew::worker::CrewWorker;

    fn free<'a>(name: &'a str, offers: &'a CrewWorker, load: usize) -> FreeWorker<'a> {
        FreeWorker { name, offers, load }
    }

    /// The names of the workers that receive this number of tasks with these preferences, one after
    /// the other.
    fn choices(
        policy: CrewPolicy,
        able: &[FreeWorker<'_>],
        prefers: &[(&str, &str)],
        count: usize,
    ) -> Vec<String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let (prefers, needs) = (prefers.iter().map(owned).collect(), BTreeMap::new());
        let task = WaitingTask { id: "a", priority: 0, needs: &needs, prefers: &prefers };
        let mut turns = CrewTurns::new(policy);
        let choose = || {
            let chosen = turns.choose(&task, able).ok()??;
            turns.record_choice(chosen.name);
            Some(chosen.name.to_owned())
        };
        std::iter::repeat_with(choose).take(count).flatten().collect()
    }

    #[test]
    fn each_policy_chooses_as_it_says() {
        let ten = CrewWorker::new().capacity(10.try_into().expect("not zero"));
        let (red, blue) = (ten.clone().property("rack", "red"), ten.property("rack", "blue"));
        let able = [
            free("ann", &blue, 2),
            free("bob", &red, 1),
            free("cid", &red, 1),
            free("dan", &blue, 3),
        ];
        let by_rack = || CrewPolicy::property("rack");
        let last = CrewPolicy::chosen(|_, able| able.len().checked_sub(1));
        let none = CrewPolicy::chosen(|_, _| None);
        let nonsense = CrewPolicy::chosen(|_, able| Some(able.len()));

        assert_eq!(choices(CrewPolicy::default(), &able, &[], 2), ["bob", "bob"]);
        let round = ["ann", "bob", "cid", "dan", "ann"];
        assert_eq!(choices(CrewPolicy::RoundRobin, &able, &[], 5), round);
        assert_eq!(choices(by_rack(), &able, &[("rack", "blue")], 1), ["ann"]);
        assert_eq!(choices(by_rack(), &able, &[("rack", "green")], 1), ["bob"]);
        assert_eq!(choices(by_rack(), &able, &[("disk", "blue")], 1), ["bob"]);
        assert_eq!(choices(last, &able, &[], 1), ["dan"]);
        assert!(choices(none, &able, &[], 1).is_empty());
        assert!(choices(nonsense, &able, &[], 1).is_empty());
        for policy in [CrewPolicy::LeastLoaded, CrewPolicy::RoundRobin, by_rack()] {
            assert!(choices(policy, &[], &[("rack", "blue")], 1).is_empty());
        }
    }

    #[test]
    fn a_worker_without_a_property_is_not_one_that_was_preferred() {
        let (plain, red) = (CrewWorker::new(), CrewWorker::new().property("rack", "red"));
        let able = [free("ann", &red, 1), free("bob", &plain, 0)];
        assert_eq!(choices(CrewPolicy::property("disk"), &able, &[], 1), ["bob"]);
        assert_eq!(choices(CrewPolicy::property("rack"), &able, &[("rack", "red")], 1), ["ann"]);
    }

    #[test]
    fn a_turn_goes_on_after_a_worker_that_left() {
        let offers = CrewWorker::new();
        let (needs, prefers) = (BTreeMap::new(), BTreeMap::new());
        let task = WaitingTask { id: "a", priority: 0, needs: &needs, prefers: &prefers };
        let mut turns = CrewTurns::new(CrewPolicy::RoundRobin);
        let name = |chosen: Result<Option<FreeWorker<'_>>, _>| {
            chosen.ok().flatten().map(|it| it.name.to_owned())
        };
        turns.record_choice("bob");
        let able = [free("ann", &offers, 0), free("cid", &offers, 0)];
        assert_eq!(name(turns.choose(&task, &able)), Some("cid".to_owned()));
        turns.record_choice("cid");
        assert_eq!(name(turns.choose(&task, &able)), Some("ann".to_owned()));
    }
}
