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

#[derive(Debug)]
struct FailedEndpoint {
    failures: u32,
    until: Instant,
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

    /// Marks an instance down for so long, instead of 30 seconds, after so many failures in that time, instead of one.
    pub fn down_for(self, window: Duration, failures: NonZeroU32) -> Self {
        Self { window, failures, ..self }
    }

    /// Records that an instance failed. Once it has failed so often that it is marked down, it is not chosen for a while,
    /// whatever it registers meanwhile.
    pub fn failed(&self, endpoint: &Endpoint<T>) {
        let now = clock::now();
        // A window that never ends ends late.
        let until = now.checked_add(self.window).unwrap_or(now + WINDOW);
        let mut picks = self.lock();
        picks.forget(now);
        let first = FailedEndpoint { failures: 0, until };
        let failed = picks.failed.entry(endpoint.path.clone()).or_insert(first);
        failed.failures = failed.failures.saturating_add(1);
        if failed.failures <= self.failures.get() {
            failed.until = until;
        }
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
        let chance = self.service.chance();
        let picked = self.strategy.pick(&may, &weights, picks.last.as_ref(), chance)?;
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
    /// Forgets failures that are over.
    fn forget(&mut self, now: Instant) {
        self.failed.retain(|_, failed| now < failed.until);
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
