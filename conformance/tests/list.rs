//! The list of all cases, each with the law that it checks; no case passes without a check.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use synod_conformance::cases;
use synod_conformance::harness::{Ability, Harness, Profile};
use synod_conformance::law::{self, SIMULATED, UNCHECKED};
use synod_conformance::run::Suite;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::{Backend, SessionOptions, Store};
use synod_testkit::recipe::kept;

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
    let all: BTreeSet<_> = cases()
        .filter_map(|case| case.name().strip_prefix("every::")?.rsplit("::").next())
        .collect();
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

/// A store that opens no session.
#[derive(Debug)]
struct Shut;

#[async_trait]
impl Backend for Shut {
    async fn open(&self, _: &SessionOptions) -> Result<Box<dyn Store>> {
        Err(Error::new(ErrorKind::Unreachable, "open"))
    }
}

#[async_trait]
impl Harness for Shut {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(Shut)
    }

    fn profile(&self) -> Profile {
        Profile::new(Duration::from_secs(10), Duration::from_secs(60))
            .lacks(Ability::Links, "there is no link")
    }
}

#[test]
fn no_case_passes_on_a_store_that_opens_no_session() {
    let mut told = 0;
    let report = Suite::new(|| Shut).on_paused_time().seeded(7).run_all(|_, _| told += 1);
    assert_eq!(report.passed(), 0);
    assert!(report.failed() > 0 && report.skipped() > 0);
    assert_eq!(report.results.len(), told);
}
