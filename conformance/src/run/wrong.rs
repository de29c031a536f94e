//! Runs a case on a store that makes a known mistake.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use synod_core::mutant::{self, Mutant};

use crate::case::Case;
use crate::run::{Suite, Verdict};

impl Suite {
    /// [`Suite::run`] with this mistake switched on, on a thread of its own: a mistake may keep the
    /// thread for ever. Such a case has noticed, and its thread is left behind.
    pub fn run_with(&self, mutant: Mutant, case: &'static Case) -> Verdict {
        let (tell, told) = mpsc::channel();
        let suite = self.clone();
        thread::spawn(move || {
            let verdict = mutant::with(mutant, || suite.run(case));
            // Whoever has given up does not want to know.
            let _told = tell.send(verdict).is_ok();
        });
        // A case that lets go of its thread now and then gives up by itself, and says more.
        told.recv_timeout(self.hang + Duration::from_secs(1)).unwrap_or_else(|_| Verdict::Failed {
            why: format!("it kept its thread for more than {:?}", self.hang),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::Shut;

    static STUCK: Case = Case::new("crate::stuck", "L-KV-1", &[], &[], |_| {
        Box::pin(async { thread::sleep(Duration::from_secs(3_600)) })
    });
    static MISTAKEN: Case = Case::new("crate::mistaken", "L-KV-1", &[], &[], |_| {
        Box::pin(async { assert!(!mutant::is(Mutant::AppliesHalf), "it is mistaken") })
    });

    #[test]
    fn a_case_that_never_comes_back_is_given_up() {
        let suite = Suite::new(|| Shut).give_up_after(Duration::from_millis(10));
        match suite.run_with(Mutant::AppliesHalf, &STUCK) {
            Verdict::Failed { why } => assert!(why.contains("kept its thread"), "{why}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_mistake_is_made_and_no_other() {
        let suite = Suite::new(|| Shut);
        assert_eq!(suite.run_with(Mutant::AppliesTwice, &MISTAKEN), Verdict::Passed);
        let noticed = suite.run_with(Mutant::AppliesHalf, &MISTAKEN);
        assert!(matches!(noticed, Verdict::Failed { .. }), "{noticed:?}");
        assert_eq!(suite.run(&MISTAKEN), Verdict::Passed);
    }
}
