//! `bench`: measures how fast a store is, through synod.

use std::io::{self, Write as _};

use synod::{Config, Error, Scheme};
use synod_bench::ours::Ours;
use synod_bench::plan::{Extent, cases};
use synod_bench::race::{Named, QUICK, Race, THOROUGH};
use synod_bench::racer;
use synod_bench::record::{self, Case, Record};
use synod_bench::table::{OURS, Table};
use synod_bench::task::Work;
use synod_core::random::Random;

use crate::args::Common;
use crate::args::bench::Bench;
use crate::command::{store, until_interrupted};
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

/// Measures below a new node, which is removed again, even on an interrupt.
pub(crate) async fn run(common: &Common, bench: &Bench) -> Result<(), Failure> {
    let random = Random::from_system();
    let url = store(common)?;
    let scheme = Config::new(&url)?.url.scheme();
    // Each connection to `mem://` opens a separate store, so a shared one needs a name.
    let url = if url == "mem://" { format!("mem://bench-{}", random.id()) } else { url };
    let cases = chosen(scheme, bench)?;
    if cfg!(debug_assertions) {
        let hint =
            "built without --release: what the client needs is several times what it would be";
        let _told = writeln!(io::stderr(), "note: {hint}").is_ok();
    }
    let dir = format!("/synod-bench-{}", random.id());
    let ours = Progress::waiting("connecting", Ours::open(&url, &dir)).await.map_err(failure)?;
    let mut racers: [Named; 1] = [(OURS.to_owned(), Box::new(ours))];
    let measured = until_interrupted(measure(common, bench, &cases, &mut racers)).await;
    drop(racers);
    let ours = Ours::open(&url, &dir).await.map_err(failure)?;
    ours.clean_up().await.map_err(failure)?;
    match measured {
        Some(records) => print_report(common, &records?),
        None => Err(Failure::plain("interrupted; what it had made is removed")),
    }
}

fn chosen(scheme: Scheme, bench: &Bench) -> Result<Vec<Case>, Failure> {
    let extent = if bench.full { Extent::Full } else { Extent::Quick };
    let only = bench.only.as_deref().unwrap_or_default();
    let mut cases = cases(scheme.as_str(), false, extent);
    // The background load and thousands of nodes are not for a cluster that may have other users,
    // and there is no process to kill.
    let is_small = |work: Work| work.nodes() == 0 && work.waiting() < 1_000;
    let is_light = |case: &Case| !case.busy && is_small(case.work) && !case.work.kills();
    cases.retain(|case| is_light(case) && case.work.to_string().contains(only));
    if cases.is_empty() {
        return Err(Failure::plain("nothing has that in its name; leave --only out to see all"));
    }
    Ok(cases)
}

async fn measure(
    common: &Common,
    bench: &Bench,
    cases: &[Case],
    racers: &mut [Named],
) -> Result<Vec<Record>, Failure> {
    let race = Race::new(if bench.full { THOROUGH } else { QUICK });
    let progress = Progress::new("measuring", Some(cases.len() as u64));
    let mut records = Vec::new();
    for case in cases {
        let found = race.run(case, racers).await;
        if common.json {
            let mut lines = Vec::new();
            record::write(&found, &mut lines)?;
            progress.suspend(|| output::bytes(&lines))?;
        }
        records.extend(found);
        progress.advance(1);
    }
    Ok(records)
}

fn print_report(common: &Common, records: &[Record]) -> Result<(), Failure> {
    let table = Table::of(records);
    if !common.json {
        output::bytes(table.to_string().as_bytes())?;
    }
    match table.failures().next() {
        Some(failure) => Err(Failure::plain(failure)),
        None => Ok(()),
    }
}

/// The error of the store, if there is one: it includes advice.
fn failure(why: racer::Failure) -> Failure {
    why.downcast::<Error>()
        .map_or_else(|other| Failure::plain(other.to_string()), |error| Failure::Store(*error))
}
