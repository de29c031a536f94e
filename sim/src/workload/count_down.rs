//! A latch that three processes count down and wait for.

use std::num::NonZeroU32;

use crate::cluster::Site;
use futures_util::future::join;
use synod_core::clock;
use synod_core::path::Path;
use synod_core::store::Query;
use synod_recipes::barrier::CountDown;

use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;

/// Three processes, each of them a party, count down repeatedly, and wait for the others.
pub(super) struct CountDowns;

const PARTIES: u32 = 3;

const AGAIN: &str = "a party counted down again";
const PASSED: &str = "a waiter passed";

impl Workload for CountDowns {
    fn name(&self) -> &'static str {
        "count_down"
    }

    fn about(&self) -> &'static str {
        "three processes count one latch down, each several times, and wait for it"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-CD-1", "L-CD-2", "L-CD-3"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, AGAIN, PASSED]
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::SlowReader, Site::NearTheEnd, Site::BeatsCut, Site::WallClockSet]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        // Strangers would remove parties.
        sim.without_strangers().processes(3, work).must_end("L-CD-2")
    }
}

async fn work(me: Process) {
    let Ok(client) = me.client().await else { return };
    let parties = NonZeroU32::new(PARTIES).expect("not zero");
    let latch = CountDown::new(&client, dir(), parties);
    let counts = async {
        for round in 0..me.rounds(3) {
            let counted = me.perhaps(latch.count_down(me.name())).await;
            me.sometimes(AGAIN, round > 0 && matches!(counted, Some(Ok(_))));
            me.rest(me.ttl() / 4).await;
        }
        me.mended().await;
        // The other processes count for a process that is omitted or disconnected for ever.
        for party in ["ann", "bob", "cid"] {
            while !client.is_closed() && latch.count_down(party).await.is_err() {
                clock::sleep(me.ttl() / 4).await;
            }
        }
    };
    let waits = async {
        if latch.wait().await.is_err() {
            return;
        }
        me.sometimes(PASSED, true);
        // L-CD-1: counted nodes stay, so a later read returns all of them.
        let counted = client.read(Query::children(dir()).names_only()).await;
        if let Ok(counted) = counted.map(|view| view.nodes.len())
            && counted != PARTIES as usize
        {
            let law = if counted > PARTIES as usize { "L-CD-3" } else { "L-CD-1" };
            me.wrong(law, || format!("a waiter passed, and {counted} have counted"));
        }
    };
    Box::pin(join(counts, waits)).await;
}

fn dir() -> Path {
    Path::new("/latch").expect("it is one")
}
