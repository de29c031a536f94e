//! The list of all cases.

use crate::case::Case;
use crate::{door, every, recipe, store};

/// Every case, in the order of the laws.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    let all = [store::ALL, door::ALL, every::ALL, recipe::ALL];
    all.into_iter().flatten().copied().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use synod_testkit::recipe::kept;

    use super::*;
    use crate::law::{self, SIMULATED, UNCHECKED};

    #[test]
    fn every_case_names_laws_that_exist_and_has_a_name_of_its_own() {
        let mut names = BTreeSet::new();
        for case in cases() {
            assert!(names.insert(case.name()), "{case:?} has the name of another");
            assert!(case.ids().next().is_some(), "{case:?} names no law");
            for id in case.ids() {
                assert!(law::by_id(id).is_some(), "{case:?} names {id}, which is no law");
            }
        }
    }

    #[test]
    fn what_the_table_of_the_recipes_says_of_cases_is_of_those_for_all() {
        let all: BTreeSet<_> = every::ALL.iter().copied().flatten().map(Case::sentence).collect();
        for (case, ids) in kept() {
            assert!(all.contains(case), "{ids}: no case of every/ is called {case}");
        }
    }

    #[test]
    fn every_law_is_checked_by_a_case_or_listed_as_not_checked() {
        for law in law::laws() {
            let checked = cases().any(|case| case.laws().any(|other| other.id == law.id));
            let listed = UNCHECKED.iter().chain(SIMULATED).any(|(id, _)| *id == law.id);
            assert!(checked || listed, "{law} is neither checked nor listed");
        }
        for (id, _) in UNCHECKED.iter().chain(SIMULATED) {
            assert!(law::by_id(id).is_some(), "{id} is listed and is no law");
        }
    }

    #[test]
    fn every_case_is_known_to_catch_something() {
        for case in cases() {
            let fails = !case.catches().is_empty() || !case.breaks().is_empty();
            assert!(fails, "{case:?} was never seen to fail");
        }
    }
}
