//! [`Provider`]: chooses an instance of a service, again and again.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use synod_core::clock::{self, Instant};
use synod_core::path::Path;

use crate::discovery::endpoint::Endpoint;
use crate::discovery::service::Service;
use crate::discovery::strategy::Strategy;
use crate::mutant::mistake;

/// For how long an instance is marked down.
const WINDOW: Duration = Duration::from_secs(30);

/// Chooses an instance of a service for each request. It never asks a server: while the store is out of reach, it chooses among
/// the instances that were known last.
///
/// Clones share their turns, and which instances are marked down.
pub struct Provider<T> {
    service: Service<T>,
    strategy: Strategy<T>,
    filter: Option<EndpointFilter<T>>,
    window: Duration,
    failures: NonZeroU32,
    picks: Arc<Mutex<Picks>>,
}

type EndpointFilter<T> = Arc<dyn Fn(&Endpoint<T>) -> bool + Send + Sync>;

/// What clones share.
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
    /// The end of the window: of the time in which failures count, or in which the instance is down. `None` if it never ends.
    until: Option<Instant>,
}

impl<T: 'static> Provider<T> {
    /// Chooses among the instances of a service.
    pub fn new(service: &Service<T>, strategy: Strategy<T>) -> Self {
        Self {
            service: service.clone(),
            strategy,
            filter: None,
            window: WINDOW,
            failures: NonZeroU32::MIN,
            picks: Arc::default(),
        }
    }

    /// Chooses only instances that pass.
    pub fn filtered(mut self, keep: impl Fn(&Endpoint<T>) -> bool + Send + Sync + 'static) -> Self {
        self.filter = Some(match self.filter.take() {
            Some(first) => Arc::new(move |it| first(it) && keep(it)),
            None => Arc::new(keep),
        });
        self
    }

    /// Marks an instance down for so long, instead of 30 seconds, after so many failures in that time, instead of one. The time in
    /// which failures are counted begins with the first of them, and the time in which the instance is down with the last.
    pub fn down_for(self, window: Duration, failures: NonZeroU32) -> Self {
        Self { window, failures, ..self }
    }

    /// Records that an instance failed. Once it has failed so often that it is marked down, it is not chosen for a while,
    /// whatever it registers meanwhile.
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

    /// All instances that may be chosen now: those that are enabled, are not marked down, and pass the filter.
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
        // Code of the application: not under the lock.
        let passes = |it: &Arc<Endpoint<T>>| self.filter.as_ref().is_none_or(|keep| keep(it));
        may.into_iter().filter(passes).collect()
    }
}

impl Picks {
    /// Records a failure. Those of an instance that is down count for nothing.
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

    /// Forgets failures that are over.
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

#[cfg(test)]
mod tests {
    use synod_core::path;

    use super::*;

    /// Failures and questions at these seconds: whether the instance is down after each.
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
    fn failures_count_together_that_are_in_one_window() {
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
    fn a_window_may_have_no_length_and_no_end() {
        let at = [(0, true), (1, true), (1_000_000_000, false)];
        assert_eq!(downs(Duration::ZERO, 1, &at), [false; 3]);
        assert_eq!(downs(Duration::MAX, 2, &at), [false, true, true]);
        assert_eq!(downs(Duration::MAX, u32::MAX, &at), [false; 3]);
    }
}
