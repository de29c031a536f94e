//! [`Provider`]: chooses an instance of a service for each request.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use synod_core::clock::{self, Instant};
use synod_core::path::Path;
use synod_core::random::Random;

use crate::discovery::endpoint::Endpoint;
use crate::discovery::instance::Instance;
use crate::discovery::service::Service;
use crate::mutant::mistake;

/// The default time for which an instance is marked down.
const DOWN_FOR: Duration = Duration::from_secs(30);

/// Chooses an instance of a service for each request. It sends nothing to the store: while the
/// store is unreachable, it chooses among the last known instances.
///
/// Clones share the order of their choices, and the instances that are marked down.
pub struct Provider<T> {
    service: Service<T>,
    strategy: Strategy<T>,
    filter: Option<EndpointFilter<T>>,
    window: Duration,
    failures: NonZeroU32,
    picks: Arc<Mutex<Picks>>,
}

type EndpointFilter<T> = Arc<dyn Fn(&Endpoint<T>) -> bool + Send + Sync>;

/// The state that clones share.
#[derive(Debug, Default)]
struct Picks {
    last: Option<Path>,
    /// The failures of instances, by their nodes, each until the end of its window.
    failed: BTreeMap<Path, FailedEndpoint>,
}

/// The failures of an instance in a window.
#[derive(Debug)]
struct FailedEndpoint {
    failures: u32,
    /// The end of the window in which failures count, or in which the instance is down. `None` if
    /// it never ends.
    until: Option<Instant>,
}

impl<T: 'static> Provider<T> {
    /// Chooses among the instances of a service.
    pub fn new(service: &Service<T>, strategy: Strategy<T>) -> Self {
        Self {
            service: service.clone(),
            strategy,
            filter: None,
            window: DOWN_FOR,
            failures: NonZeroU32::MIN,
            picks: Arc::default(),
        }
    }

    /// Chooses only instances that pass the filter.
    pub fn filtered(mut self, keep: impl Fn(&Endpoint<T>) -> bool + Send + Sync + 'static) -> Self {
        self.filter = Some(match self.filter.take() {
            Some(first) => Arc::new(move |it| first(it) && keep(it)),
            None => Arc::new(keep),
        });
        self
    }

    /// Marks an instance down for `window` after this number of failures within `window`. The
    /// defaults are 30 seconds and one failure. The window for counting begins with the first
    /// failure. The time for which the instance is down begins with the last.
    pub fn down_for(self, window: Duration, failures: NonZeroU32) -> Self {
        Self { window, failures, ..self }
    }

    /// Records that an instance failed. An instance that is marked down is not chosen for a while,
    /// even if it registers again.
    pub fn failed(&self, endpoint: &Endpoint<T>) {
        self.lock().record_failure(&endpoint.path, clock::now(), self.window, self.failures);
    }

    fn lock(&self) -> MutexGuard<'_, Picks> {
        self.picks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: DeserializeOwned + 'static> Provider<T> {
    /// An instance that may be chosen. `None` if there is none.
    pub fn choose(&self) -> Option<Arc<Endpoint<T>>> {
        let may = self.all();
        let weights = self.strategy.weights(&may);
        let mut picks = self.lock();
        let random = self.service.random();
        let picked = self.strategy.pick(&may, &weights, picks.last.as_ref(), random)?;
        picks.last = Some(picked.path.clone());
        Some(picked)
    }

    /// All instances that may be chosen now: they are enabled, are not marked down, and pass the
    /// filter.
    pub fn all(&self) -> Vec<Arc<Endpoint<T>>> {
        let view = self.service.view();
        let may: Vec<_> = {
            let mut picks = self.lock();
            picks.forget(clock::now());
            let may = view.endpoints.iter();
            may.filter(|it| it.instance.enabled && !picks.is_down(&it.path, self.failures))
                .cloned()
                .collect()
        };
        // The filter is code of the application: it runs outside the lock.
        let passes = |it: &Arc<Endpoint<T>>| self.filter.as_ref().is_none_or(|keep| keep(it));
        may.into_iter().filter(passes).collect()
    }
}

impl Picks {
    /// Records a failure. Failures of an instance that is down are ignored.
    fn record_failure(
        &mut self,
        path: &Path,
        now: Instant,
        window: Duration,
        failures: NonZeroU32,
    ) {
        self.forget(now);
        let until = now.checked_add(window);
        let first = FailedEndpoint { failures: 0, until };
        let failed = self.failed.entry(path.clone()).or_insert(first);
        if failed.failures < failures.get() {
            failed.failures += 1;
            if failed.failures == failures.get() {
                failed.until = until;
            }
        }
    }

    /// Forgets failures whose window has ended.
    fn forget(&mut self, now: Instant) {
        self.failed.retain(|_, failed| failed.until.is_none_or(|until| now < until));
    }

    fn is_down(&self, path: &Path, failures: NonZeroU32) -> bool {
        let is_down = self.failed.get(path).is_some_and(|it| it.failures >= failures.get());
        mistake!(DownIsChosen: let is_down = false);
        is_down
    }
}

impl<T> Clone for Provider<T> {
    fn clone(&self) -> Self {
        Self {
            service: self.service.clone(),
            strategy: self.strategy.clone(),
            filter: self.filter.clone(),
            window: self.window,
            failures: self.failures,
            picks: self.picks.clone(),
        }
    }
}

impl<T> fmt::Debug for Provider<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider")
            .field("service", &self.service)
            .field("strategy", &self.strategy)
            .finish_non_exhaustive()
    }
}

/// The rule by which a [`Provider`](crate::discovery::Provider) chooses an instance.
#[non_exhaustive]
pub enum Strategy<T> {
    /// One after the other, in the order of their ids. Added or removed instances do not disturb
    /// the order.
    RoundRobin,
    /// At random, each with the same probability.
    Random,
    /// The same instance as long as it may be chosen, then another one at random.
    Sticky,
    /// At random, with a probability in proportion to the weight. An instance without weight is
    /// never chosen.
    Weighted(WeightOf<T>),
}

/// The weight of an instance.
type WeightOf<T> = Arc<dyn Fn(&Instance<T>) -> u32 + Send + Sync>;

impl<T> Strategy<T> {
    /// Creates a [`Strategy::Weighted`] with this function.
    pub fn weighted(weight: impl Fn(&Instance<T>) -> u32 + Send + Sync + 'static) -> Self {
        Self::Weighted(Arc::new(weight))
    }

    /// Chooses among instances in the order of their ids, given the last choice.
    pub(super) fn pick(
        &self,
        may: &[Arc<Endpoint<T>>],
        weights: &[u32],
        last: Option<&Path>,
        random: &Random,
    ) -> Option<Arc<Endpoint<T>>> {
        let any = || number(random.below(length(may.len()))).and_then(|at| may.get(at));
        let picked = match self {
            Self::RoundRobin => {
                let next = may.iter().find(|it| last.is_none_or(|last| it.path > *last));
                next.or_else(|| may.first())
            }
            Self::Random => any(),
            Self::Sticky => may.iter().find(|it| Some(&it.path) == last).or_else(any),
            Self::Weighted(_) => heavy(weights, random).and_then(|at| may.get(at)),
        };
        picked.cloned()
    }

    /// The weights of these instances, if the strategy needs them. Calls code of the application.
    pub(super) fn weights(&self, may: &[Arc<Endpoint<T>>]) -> Vec<u32> {
        match self {
            Self::Weighted(weight) => may.iter().map(|it| weight(&it.instance)).collect(),
            _ => Vec::new(),
        }
    }
}

/// An index, with a probability in proportion to its weight.
fn heavy(weights: &[u32], random: &Random) -> Option<usize> {
    let all: u64 = weights.iter().copied().map(u64::from).sum();
    if all == 0 {
        return None;
    }
    let mut left = random.below(all);
    weights.iter().position(|&weight| {
        let is_it = left < u64::from(weight);
        left = left.saturating_sub(u64::from(weight));
        is_it
    })
}

fn length(of: usize) -> u64 {
    u64::try_from(of).unwrap_or(u64::MAX)
}

fn number(random: u64) -> Option<usize> {
    usize::try_from(random).ok()
}

impl<T> Clone for Strategy<T> {
    fn clone(&self) -> Self {
        match self {
            Self::RoundRobin => Self::RoundRobin,
            Self::Random => Self::Random,
            Self::Sticky => Self::Sticky,
            Self::Weighted(weight) => Self::Weighted(weight.clone()),
        }
    }
}

impl<T> fmt::Debug for Strategy<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RoundRobin => "RoundRobin",
            Self::Random => "Random",
            Self::Sticky => "Sticky",
            Self::Weighted(_) => "Weighted",
        })
    }
}

#[cfg(test)]
mod tests {
    use synod_core::path;
    use synod_core::store::{Revision, Stat, Version};

    use super::*;

    /// The state of an instance, down or not, after failures and checks at these seconds.
    fn downs(window: Duration, failures: u32, at: &[(u64, bool)]) -> Vec<bool> {
        let (start, path, mut picks) = (clock::now(), path!("/web/a"), Picks::default());
        let failures = NonZeroU32::new(failures).expect("more than none");
        let down_after = |(seconds, fails): &(u64, bool)| {
            let now = start + Duration::from_secs(*seconds);
            if *fails {
                picks.record_failure(&path, now, window, failures);
            }
            picks.forget(now);
            picks.is_down(&path, failures)
        };
        at.iter().map(down_after).collect()
    }

    #[test]
    fn failures_count_together_within_one_window() {
        let window = Duration::from_secs(30);
        let far = [(0, true), (29, true), (58, true), (59, true), (60, true)];
        assert_eq!(downs(window, 3, &far), [false, false, false, false, true]);
        let near = [(0, true), (10, true), (29, true), (58, false), (59, false)];
        assert_eq!(downs(window, 3, &near), [false, false, true, true, false]);
    }

    #[test]
    fn an_instance_that_is_down_is_down_for_no_longer_when_it_fails_again() {
        let window = Duration::from_secs(30);
        let again = [(0, true), (20, true), (29, true), (30, false), (31, true), (61, false)];
        assert_eq!(downs(window, 1, &again), [true, true, true, false, true, false]);
    }

    #[test]
    fn a_window_may_be_empty_or_endless() {
        let at = [(0, true), (1, true), (1_000_000_000, false)];
        assert_eq!(downs(Duration::ZERO, 1, &at), [false; 3]);
        assert_eq!(downs(Duration::MAX, 2, &at), [false, true, true]);
        assert_eq!(downs(Duration::MAX, u32::MAX, &at), [false; 3]);
    }

    fn all(names: &str) -> Vec<Arc<Endpoint<u32>>> {
        let stat = Stat::new(Revision::ZERO, Revision::ZERO, Version::new(0), None);
        let one = |name: char| Endpoint {
            instance: Instance::new("web", "here").id(name),
            path: Path::new(&format!("/web/{name}")).expect("valid"),
            stat,
        };
        names.chars().map(|name| Arc::new(one(name))).collect()
    }

    /// The choices from each of these sets in turn.
    fn chosen(strategy: &Strategy<u32>, sets: &[&str]) -> String {
        let (random, mut last) = (Random::seeded(7), None);
        let picked = sets.iter().filter_map(|names| {
            let may = all(names);
            let weights = strategy.weights(&may);
            let picked = strategy.pick(&may, &weights, last.as_ref(), &random)?;
            last = Some(picked.path.clone());
            Some(picked.instance.id.clone())
        });
        picked.collect()
    }

    #[test]
    fn instances_take_turns_although_others_come_and_go() {
        let by_turns = |sets: &[&str]| chosen(&Strategy::RoundRobin, sets);
        assert_eq!(by_turns(&["abc"; 7]), "abcabca");
        assert_eq!(by_turns(&["abc", "bc", "bc", "abc", "acd", "acd"]), "abcacd");
        assert_eq!(by_turns(&["", "b", "", "b"]), "bb");
    }

    #[test]
    fn a_sticky_choice_stays_while_the_instance_exists() {
        let sticky = chosen(&Strategy::Sticky, &["abc"; 20]);
        assert!(sticky.chars().all(|it| sticky.starts_with(it)), "{sticky}");
        let moved = chosen(&Strategy::Sticky, &["a", "abc", "bc", "abc", "abc"]);
        assert!(["aabbb", "aaccc"].contains(&&*moved), "{moved}");
    }

    #[test]
    fn a_random_choice_depends_on_the_weight() {
        let count = |of: &str, name: char| of.matches(name).count();
        let any = chosen(&Strategy::Random, &["abcd"; 400]);
        assert!("abcd".chars().all(|name| (60..140).contains(&count(&any, name))), "{any}");
        let weight = |it: &Instance<u32>| match &*it.id {
            "a" => 0,
            "b" => 1,
            _ => u32::MAX,
        };
        let heavy = chosen(&Strategy::weighted(weight), &["abcd"; 400]);
        assert!(!heavy.contains('a') && count(&heavy, 'c') > 140 && count(&heavy, 'd') > 140);
        let three =
            chosen(&Strategy::weighted(|it| if it.id == "a" { 3 } else { 1 }), &["ab"; 400]);
        assert!((250..350).contains(&count(&three, 'a')), "{three}");
        assert_eq!(chosen(&Strategy::weighted(weight), &["a", ""]), "", "none has any weight");
    }
}
