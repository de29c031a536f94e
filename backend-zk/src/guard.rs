//! Guards: children that keep the server's collector away from a node in the place of a container.
//!
//! The collector goes by a list of paths that may be minutes old when their turn comes, and the server
//! then looks only at whether there are children (and not at whether it is a container). So what
//! takes the place of an empty container, and is not ephemeral, gets a child of this session along
//! with it, which stays until such a list is history.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use synod_core::path::Path;
use tokio::time::Instant;

/// How a guard's name begins.
const GUARD: &str = ".synod-guard-5f0e9c-";

/// One byte more than a name has: nobody makes this, and nobody can.
const LENGTH: usize = synod_core::name::MAX_NAME_BYTES + 1;

/// How long a guard stays: the collector takes 6 ms for each container of its list, so this is enough
/// for twenty thousand that are empty at once.
const STAY: Duration = Duration::from_secs(120);

/// The guard of a node.
pub(crate) fn guard(path: &Path) -> String {
    format!("{path}/{GUARD:-<LENGTH$}", path = path.as_str())
}

/// Whether this is the name of a guard.
pub(crate) fn is_guard(name: &str) -> bool {
    name.len() == LENGTH && name.starts_with(GUARD)
}

/// The guards that a session may have made, and when.
#[derive(Debug, Default)]
pub(crate) struct Guards(Mutex<BTreeMap<String, Instant>>);

impl Guards {
    pub(crate) fn add(&self, guard: &str, now: Instant) {
        let mut guards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        guards.insert(guard.to_owned(), now);
    }

    /// Takes those that have stayed long enough.
    pub(crate) fn relieve(&self, now: Instant) -> Vec<String> {
        let mut guards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over = |made: &Instant| now.duration_since(*made) >= STAY;
        let relieved = guards.iter().filter(|(_, made)| over(made));
        let relieved = relieved.map(|(guard, _)| guard.clone()).collect();
        guards.retain(|_, made| !over(made));
        relieved
    }
}

/// The places of empty containers that a session removed, and when: the collector's list may name them still.
#[derive(Debug, Default)]
pub(crate) struct Vacated(Mutex<BTreeMap<Path, Instant>>);

impl Vacated {
    pub(crate) fn add(&self, place: &Path, now: Instant) {
        self.places().insert(place.clone(), now);
    }

    pub(crate) fn has(&self, place: &Path) -> bool {
        self.places().contains_key(place)
    }

    /// Forgets those that no list names any more.
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
