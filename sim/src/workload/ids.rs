//! Unique numbers that three processes draw from blocks.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::cluster::Site;
use futures_util::future::join;
use synod_core::path::Path;
use synod_recipes::value::Ids;

use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::{WATCHED, Workload};

/// Three processes, each with two tasks, draw numbers from blocks of two.
pub(super) struct Numbers;

const ROUNDS: u64 = 5;

const FAILED: &str = "no number was drawn";

/// All numbers that were taken. Clones share them.
type Drawn = Arc<Mutex<BTreeSet<u64>>>;

impl Workload for Numbers {
    fn name(&self) -> &'static str {
        "ids"
    }

    fn about(&self) -> &'static str {
        "three processes, with two tasks each, draw unique numbers from blocks of two"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-ID-1", "L-CNT-6"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, FAILED]
    }

    fn unreached(&self) -> Vec<Site> {
        [WATCHED, &[Site::SlowReader, Site::NearTheEnd, Site::BeatsCut, Site::WallClockSet]]
            .concat()
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let drawn = Drawn::default();
        // Strangers would restart the numbers.
        sim.without_strangers().processes(3, move |me| work(me, drawn.clone())).must_end("L-CNT-6")
    }
}

async fn work(me: Process, drawn: Drawn) {
    let Ok(client) = me.impatient_client().await else { return };
    let two = NonZeroU64::new(2).expect("not zero");
    let ids = || Ids::new(&client, Path::new("/ids").expect("it is one"), two);
    // Two tasks share a recipe value, and with it the largest number so far, or each has its own in
    // the same session.
    let first = (ids(), Arc::new(Mutex::new(None)));
    let second = if me.pick(2) == 0 { first.clone() } else { (ids(), Arc::default()) };
    let rounds = async |(ids, highest): (Ids, Arc<Mutex<Option<u64>>>)| {
        for _ in 0..me.rounds(ROUNDS) {
            let before = *highest.lock().unwrap_or_else(PoisonError::into_inner);
            match me.perhaps(ids.next()).await {
                Some(Ok(number)) => {
                    judge(&me, &drawn, before, number);
                    let mut highest = highest.lock().unwrap_or_else(PoisonError::into_inner);
                    *highest = (*highest).max(Some(number));
                }
                Some(Err(_)) => me.sometimes(FAILED, true),
                None => {}
            }
            me.rest(Duration::from_millis(100)).await;
        }
    };
    Box::pin(join(rounds(first), rounds(second))).await;
}

/// L-ID-1: a number is handed out once, and is larger than the largest number of the same recipe
/// value before the call.
fn judge(me: &Process, drawn: &Drawn, before: Option<u64>, number: u64) {
    let mut drawn = drawn.lock().unwrap_or_else(PoisonError::into_inner);
    if !drawn.insert(number) {
        me.wrong("L-ID-1", || format!("{number} was handed out before"));
    }
    if before >= Some(number) {
        me.wrong("L-ID-1", || format!("{number} comes after {before:?}"));
    }
}
