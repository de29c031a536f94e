//! The output for a failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use synod_sim::{Fault, Hunt, Process, Sim, Site};

/// Fails if a reply was lost.
async fn fragile(me: Process) {
    let Ok(client) = me.client().await else { return };
    let _at_work = me.during("at work");
    for _ in 0..me.rounds(4) {
        let path = synod_core::path::Path::new("/a").expect("it is one");
        let _either_way = client.get(&path).await.is_ok();
        if me.suffered(&[Site::ReplyLost]) > 0 {
            me.wrong("no reply is lost", || "/a was lost on the way".to_owned());
        }
        me.rest(Duration::from_millis(200)).await;
    }
}

fn trial() -> Hunt {
    Hunt::new("fragile", |sim: Sim| sim.processes(3, fragile)).seeds(0..500).jobs(2)
}

#[test]
fn a_failure_is_cut_down_to_what_it_needs() {
    let found = trial().run();
    let failure = found.failure.expect("replies are lost");
    let shrunk = failure.smaller.case.shrunk.as_ref().expect("it was shrunk");
    let sites: Vec<_> = shrunk.faults.iter().map(|(spot, _)| spot.site).collect();
    assert_eq!(sites, [Site::ReplyLost], "{failure}");
    assert_eq!(shrunk.absent.len(), 2, "{failure}");
    assert!(failure.smaller.runs < 200, "{} runs", failure.smaller.runs);

    let again = trial().run().failure.expect("it fails again");
    assert_eq!(again.case, failure.case, "the lowest seed, on however many threads");
    assert_eq!(again.smaller.case, failure.smaller.case);
}

#[test]
fn a_failure_is_printed_with_its_law_its_seed_and_its_lanes() {
    let failure = trial().run().failure.expect("replies are lost");
    let story = failure.to_string();
    let told =
        ["no reply is lost is broken", "SYNOD_SIM_SEED=0x", "F2 reply lost (", "│ the store"];
    for told in told {
        assert!(story.contains(told), "{told} is not in\n{story}");
    }
    let marked: Vec<_> = story.lines().filter(|line| line.starts_with('▶')).collect();
    assert!(marked.iter().any(|line| line.contains("WRONG")), "{story}");
    assert!(marked.iter().any(|line| line.contains("┏ at work")), "what goes on then: {story}");
    let lanes = failure.diagram().text(100);
    assert!(lanes.lines().all(|line| line.chars().count() <= 104), "{lanes}");

    let page = failure.diagram().html("a <title>", &failure.summary());
    assert!(page.contains("a &lt;title&gt;") && page.contains("class=\"marked\""), "{page}");
}

#[test]
fn without_its_fault_nothing_fails_and_missing_events_are_listed() {
    let replies = Fault::by_number(2).expect("there is one");
    let hunt = trial().without(replies);
    let found = hunt.run();
    found.expect_clean();
    assert_eq!(found.tally.histories, 500);
    let few = trial().without(replies).seeds(0..3);
    let tally = few.run().tally;
    assert!(!few.idle(&tally).is_empty(), "three histories have not seen everything");
}

#[test]
fn an_absent_process_does_not_run_and_leaves_the_others_as_they_were() {
    let ran = Arc::new(AtomicU64::new(0));
    let runs = ran.clone();
    let sim = Sim::new(7).absent([2]).processes(3, move |me| {
        runs.fetch_or(1 << me.number(), Ordering::Relaxed);
        std::future::ready(())
    });
    assert!(sim.run().violation.is_none());
    assert_eq!(ran.load(Ordering::Relaxed), 0b1010);
}
