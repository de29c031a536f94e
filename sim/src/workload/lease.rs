//! A lease that processes with wrong clocks take, extend and release.

use std::time::Duration;

use crate::cluster::Site;
use serde::Deserialize;
use synod_core::path::Path;
use synod_recipes::lock::Lease;

use crate::findings::Truth;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::{WATCHED, Workload};

/// Three processes with two holder names take a lease.
pub(super) struct Leases;

const ROUNDS: u64 = 6;

const REFUSED: &str = "another holder had the lease";
const EXTENDED: &str = "a holder extended its term";
const TAKEN_OVER: &str = "a lease was taken after the end of a term";

/// The maximum clock difference that the holders expect.
const MARGIN: Duration = Duration::from_millis(50);

/// The node of a lease. Dates are in milliseconds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Term {
    holder: String,
    since: u64,
    until: u64,
    number: u64,
}

impl Workload for Leases {
    fn name(&self) -> &'static str {
        "lease"
    }

    fn about(&self) -> &'static str {
        "three processes, two of them with one name, take, extend and release a lease"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-LS-1", "L-LS-2", "L-LS-3", "L-CNT-6"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, REFUSED, EXTENDED, TAKEN_OVER]
    }

    fn unreached(&self) -> Vec<Site> {
        [WATCHED, &[Site::SlowReader, Site::NearTheEnd, Site::BeatsCut]].concat()
    }

    fn prepare(&self, sim: Sim) -> Sim {
        // Strangers would restart the numbers.
        sim.without_strangers()
            .processes(3, work)
            .must_end("L-CNT-6")
            .check("L-LS-1", |truth: &Truth| judge(truth, "L-LS-1"))
            .check("L-LS-2", |truth: &Truth| judge(truth, "L-LS-2"))
    }
}

async fn work(me: Process) {
    let Ok(client) = me.impatient_client().await else { return };
    let holder = if me.number().is_multiple_of(3) { "ann" } else { "bob" };
    let path = || Path::new("/lease").expect("it is one");
    let term = Duration::from_millis(200 + me.pick(2_000));
    let lease = Lease::new(&client, path(), term).holder(holder).clock_margin(MARGIN);
    let lease = if me.pick(4) == 0 { lease.aligned() } else { lease };
    let mut last = None;
    for _ in 0..me.rounds(ROUNDS) {
        match me.perhaps(lease.try_acquire()).await {
            Some(Ok(Ok(term))) => {
                me.sometimes(EXTENDED, last == Some(term.number));
                me.sometimes(TAKEN_OVER, last.is_some_and(|last| last + 1 < term.number));
                last = Some(term.number);
            }
            Some(Ok(Err(other))) => {
                me.sometimes(REFUSED, true);
                if other.holder == holder {
                    me.wrong("L-LS-3", || format!("{holder} does not extend {other:?}"));
                }
            }
            Some(Err(_)) | None => {}
        }
        me.rest(Duration::from_millis(500)).await;
        if me.pick(4) == 0 {
            let _released = me.perhaps(lease.release()).await;
        }
        me.rest(Duration::from_millis(500)).await;
    }
}

/// Finds the first term that breaks this law.
fn judge(truth: &Truth, law: &str) -> Result<(), String> {
    let written = truth.log.iter().flat_map(|entry| &entry.changes);
    let terms = written.filter(|change| change.path.as_str() == "/lease");
    let terms = terms.filter_map(|change| change.node.as_ref());
    let terms = terms.filter_map(|node| serde_json::from_slice::<Term>(&node.data).ok());
    let terms: Vec<_> = terms.collect();
    for pair in terms.windows(2) {
        let [before, after] = pair else { continue };
        let broken = breaks(before, after);
        if let Some((_, what)) = broken.filter(|(broken, _)| *broken == law) {
            return Err(format!("{what}: {after:?} after {before:?}"));
        }
    }
    Ok(())
}

/// The law that a term breaks after the one before it.
fn breaks(before: &Term, after: &Term) -> Option<(&'static str, &'static str)> {
    let is_release = after.until == 0;
    let is_same = before.number == after.number;
    let margin = u64::try_from(MARGIN.as_millis()).unwrap_or(u64::MAX);
    if is_release || is_same {
        if !is_same || before.holder != after.holder {
            return Some(("L-LS-2", "another term has the same number"));
        }
        let is_longer = before.until > after.since && before.until <= after.until;
        return (!is_release && !is_longer).then_some(("L-LS-1", "the term is not extended"));
    }
    if after.number != before.number + 1 {
        return Some(("L-LS-2", "a number was left out"));
    }
    let is_free = before.until == 0 || before.until + margin <= after.since;
    let is_other = before.holder != after.holder;
    (is_other && !is_free).then_some(("L-LS-1", "the term before has not ended"))
}
