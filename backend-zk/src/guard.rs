//! Guards: children that protect a node in the place of a former container from the server's
//! collector.
//!
//! The collector works through a list of paths that may be minutes old, and then checks only
//! whether a node has children, not whether it is a container. So a non-ephemeral node that
//! replaces an empty container is created together with an ephemeral child of this session, which
//! stays until no such list can name the path any more.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use synod_core::path::Path;
use tokio::time::Instant;

/// The start of a guard's name.
const GUARD: &str = ".synod-guard-5f0e9c-";

/// One byte longer than a valid name, so that no application can create this node.
const LENGTH: usize = synod_core::name::MAX_NAME_BYTES + 1;

/// How long a guard stays. The collector takes 6 ms per container of its list, so this is enough
/// for twenty thousand containers that are empty at once.
const STAY: Duration = Duration::from_secs(120);

/// The path of the guard of a node.
pub(crate) fn guard(path: &Path) -> String {
    format!("{path}/{GUARD:-<LENGTH$}", path = path.as_str())
}

/// Whether this is the name of a guard.
pub(crate) fn is_guard(name: &str) -> bool {
    name.len() == LENGTH && name.starts_with(GUARD)
}

/// The guards that a session may have created, and when.
#[derive(Debug, Default)]
pub(crate) struct Guards(Mutex<BTreeMap<String, Instant>>);

impl Guards {
    pub(crate) fn add(&self, guard: &str, now: Instant) {
        let mut guards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        guards.insert(guard.to_owned(), now);
    }

    /// Removes and returns the guards that have stayed long enough.
    pub(crate) fn relieve(&self, now: Instant) -> Vec<String> {
        let mut guards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over = |made: &Instant| now.duration_since(*made) >= STAY;
        let relieved = guards.iter().filter(|(_, made)| over(made));
        let relieved = relieved.map(|(guard, _)| guard.clone()).collect();
        guards.retain(|_, made| !over(made));
        relieved
    }
}

/// The paths of empty containers that a session removed, and when: the collector's list may still
/// name them.
#[derive(Debug, Default)]
pub(crate) struct Vacated(Mutex<BTreeMap<Path, Instant>>);

impl Vacated {
    pub(crate) fn add(&self, place: &Path, now: Instant) {
        self.places().insert(place.clone(), now);
    }

    pub(crate) fn has(&self, place: &Path) -> bool {
        self.places().contains_key(place)
    }

    /// Forgets the paths that no list can name any more.
    pub(crate) fn forget(&self, now: Instant) {
        self.places().retain(|_, removed| now.duration_since(*removed) < STAY);
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<Path, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_is_nobodys_node() {
        let guard = guard(&Path::new("/a/b").expect("valid"));
        let name = guard.strip_prefix("/a/b/").expect("it is a child");
        assert!(is_guard(name));
        assert!(Path::new(&guard).is_err());
        assert!(!is_guard("b") && !is_guard(GUARD));
    }

    #[test]
    fn a_guard_is_relieved_when_its_time_is_over() {
        let (guards, start) = (Guards::default(), Instant::now());
        guards.add("early", start);
        guards.add("late", start + Duration::from_secs(1));
        guards.add("again", start);
        guards.add("again", start + Duration::from_secs(1));

        assert!(guards.relieve(start + STAY / 2).is_empty());
        assert_eq!(guards.relieve(start + STAY), ["early"]);
        assert_eq!(guards.relieve(start + STAY * 2), ["again", "late"]);
        assert!(guards.relieve(start + STAY * 2).is_empty());
    }

    #[test]
    fn a_vacated_place_is_remembered_for_as_long() {
        let (vacated, start) = (Vacated::default(), Instant::now());
        let place = Path::new("/a").expect("valid");
        vacated.add(&place, start);
        vacated.forget(start + STAY / 2);
        assert!(vacated.has(&place));
        vacated.forget(start + STAY);
        assert!(!vacated.has(&place));
    }
}
