//! [`Names`]: names of tickets that are free again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use synod_core::path::Path;

/// How many are kept. What is forgotten is never used again.
const MOST: usize = 1_024;

/// The names that a session gave to tickets and that are free again: the ticket is gone, and no request that
/// creates or removes it is on its way.
///
/// A store that keeps a history keeps every name that was ever in it, and scans them all when it lists a line.
/// So a session that acquires again and again reuses a name, where that misleads no reader: a ticket is
/// distinguished from the earlier ones of its name by the revision of its creation.
#[derive(Debug, Default)]
pub(super) struct Names(Mutex<Free>);

/// In each directory.
#[derive(Debug, Default)]
struct Free {
    by_dir: BTreeMap<Path, Vec<Path>>,
    count: usize,
}

impl Names {
    /// A name that ends in this mark. The caller that takes it has it alone.
    pub(super) fn take(&self, dir: &Path, mark: &str) -> Option<Path> {
        let mut free = self.free();
        let names = free.by_dir.get_mut(dir)?;
        let place = names.iter().rposition(|name| name.as_str().ends_with(mark))?;
        let name = names.swap_remove(place);
        if names.is_empty() {
            free.by_dir.remove(dir);
        }
        free.count -= 1;
        Some(name)
    }

    /// This one is free from now on.
    pub(super) fn give(&self, name: &Path) {
        let Some(dir) = name.parent() else { return };
        let mut free = self.free();
        if free.count >= MOST {
            *free = Free::default();
        }
        free.by_dir.entry(dir).or_default().push(name.clone());
        free.count += 1;
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Path {
        Path::new(text).expect("valid")
    }

    #[test]
    fn a_name_is_taken_once_in_its_directory_and_under_its_mark() {
        let names = Names::default();
        names.give(&path("/q/a-lock-"));
        names.give(&path("/q/b-lease-"));
        assert_eq!(names.take(&path("/p"), "lock-"), None);
        assert_eq!(names.take(&path("/q"), "lease-"), Some(path("/q/b-lease-")));
        assert_eq!(names.take(&path("/q"), "lease-"), None);
        assert_eq!(names.take(&path("/q"), "lock-"), Some(path("/q/a-lock-")));
        assert_eq!(names.take(&path("/q"), "lock-"), None);
        assert!(names.free().by_dir.is_empty() && names.free().count == 0);
    }

    #[test]
    fn no_more_are_kept_than_there_is_room_for() {
        let names = Names::default();
        for number in 0..=MOST {
            names.give(&path(&format!("/q{number}/lock-")));
        }
        assert_eq!(names.free().count, 1);
        assert!(names.take(&path(&format!("/q{MOST}")), "lock-").is_some());
    }
}
