use async_trait::async_trait;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::{Backend, SessionOptions, Store};
use synod_core::task;

use super::*;
use crate::harness::{Ability, Profile};

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

fn suite() -> Suite {
    Suite::new(|| Shut).on_paused_time().seeded(7)
}

fn case(act: crate::case::Act) -> Case {
    Case::new("crate::a_case", "L-KV-1", &[], &[], act)
}

#[track_caller]
fn fails(act: crate::case::Act, with: &str) {
    match suite().run(&case(act)) {
        Verdict::Failed { why } => assert!(why.contains(with), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_case_that_returns_has_passed() {
    assert_eq!(suite().run(&case(|_| Box::pin(async {}))), Verdict::Passed);
}

#[test]
fn what_a_panic_says_is_the_reason_with_its_place_and_the_seed() {
    fails(|_| Box::pin(async { panic!("it is wrong") }), "it is wrong (tests.rs:");
    fails(|_| Box::pin(async { panic!("it is wrong") }), "[seed 0x7]");
}

#[test]
fn a_panic_in_a_task_fails_the_case_that_did_not_notice() {
    fails(
        |_| {
            Box::pin(async {
                let mut task = task::spawn(async { panic!("unnoticed") });
                task.finished().await;
            })
        },
        "unnoticed",
    );
}

#[test]
fn a_case_that_waits_for_ever_ends() {
    fails(|_| Box::pin(std::future::pending()), "no end within");
}

#[test]
fn a_case_that_is_busy_for_ever_ends() {
    let busy = case(|_| {
        Box::pin(async {
            loop {
                tokio::task::yield_now().await;
            }
        })
    });
    match suite().give_up_after(Duration::from_millis(50)).run(&busy) {
        Verdict::Failed { why } => assert!(why.contains("still busy"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_need_that_is_not_met_is_the_reason_for_skipping() {
    let needy = Case::new("crate::a_case", "L-KV-1", &[Ability::Links], &[], |_| {
        Box::pin(async { panic!("it ran") })
    });
    assert_eq!(suite().run(&needy), Verdict::Skipped { why: "there is no link".into() });

    let absent = Suite::fallible(|| Err::<Shut, _>("no server here".to_owned()));
    let skipped = Verdict::Skipped { why: "no server here".into() };
    assert_eq!(absent.run(&case(|_| Box::pin(async {}))), skipped);
}

fn on_workers() -> Suite {
    Suite::new(|| Shut).on_workers(2).seeded(7)
}

#[test]
fn a_case_on_workers_has_workers() {
    let counts = case(|_| {
        Box::pin(async {
            let workers = tokio::runtime::Handle::current().metrics().num_workers();
            assert_eq!(workers, 2);
        })
    });
    assert_eq!(on_workers().run(&counts), Verdict::Passed);
}

#[test]
fn a_panic_on_a_worker_fails_the_case_that_did_not_notice() {
    let act = case(|_| {
        Box::pin(async {
            task::spawn(async { panic!("on a worker") }).finished().await;
        })
    });
    match on_workers().run(&act) {
        Verdict::Failed { why } => {
            assert!(why.contains("on a worker") && why.contains("[seed 0x7]"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}
